"""Trusted collection: devices send true values, and only noisy releases of their sums are shown.

`release_weights` has the weights of reports, `release` the noise, `release_bounds` the confidence
bounds, and `collection` the sums.
"""
