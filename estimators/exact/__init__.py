"""Exact integers: thresholds, sampling, noise, hashing and finite fields."""
