"""Consume, count, and commit."""
