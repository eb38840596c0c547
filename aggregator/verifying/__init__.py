"""Proves the sums: replays the log, and compares the result with the state in Redis."""
