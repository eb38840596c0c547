"""Bounds on tails from the modulus of a characteristic function."""
