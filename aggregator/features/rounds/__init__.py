"""Coordinates the rounds of minimum and maximum."""
