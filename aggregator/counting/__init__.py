"""Consume, count, commit, and prove the sums."""
