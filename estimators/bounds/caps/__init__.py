"""Bounds for the mean of vectors that are chosen among ranked random directions."""
