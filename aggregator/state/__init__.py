"""Computes a partition's state from its log, without a clock or the network."""
