"""Suggests definitions of metrics for columns of a CSV file."""
