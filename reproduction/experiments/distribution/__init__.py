"""Compares the mechanism of distributions with rivals, which are simulated here alone."""
