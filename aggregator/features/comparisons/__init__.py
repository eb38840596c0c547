"""Comparisons of slices, windows and metrics."""
