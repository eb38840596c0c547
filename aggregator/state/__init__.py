"""Turns a log into state. Pure code, without clock or network."""
