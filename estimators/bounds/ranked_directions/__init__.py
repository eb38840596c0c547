"""Bounds for the mean of ranked random directions: docs/proofs/ranked-directions.md."""
