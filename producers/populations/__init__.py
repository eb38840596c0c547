"""Simulated and replayed populations of devices, and their truth."""
