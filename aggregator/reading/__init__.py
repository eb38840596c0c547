"""Reads sums from Redis and answers queries about metrics."""
