"""The least worst-case variance of an unbiased private report of a value in [-1, 1]."""

from __future__ import annotations

LEAST_VARIANCES = {
    "0.1": 400.0,
    "0.25": 64.0,
    "0.5": 16.0,
    "1": 3.99,
    "1.5": 1.693,
    "2": 0.866,
    "2.6": 0.4465,
    "3": 0.3043,
    "4": 0.127,
    "5": 0.05743,
    "6": 0.02716,
    "8": 0.006505,
    "10": 0.001634,
}
"""By epsilon, from a convex programme on fine grids; up to 0.5 also (coth S) / S - 1 with S =
tanh(epsilon / 2)."""
