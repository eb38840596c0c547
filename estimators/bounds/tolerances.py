"""Margins of limits and probabilities, far above rounding errors."""

LOG_P_SAFETY = 1e-6
"""Relative to p: far above the rounding errors of the sums (below 1e-9 at 1e9 reports)."""
THETA_ROUNDING = 1e-12
"""In theta: far above the rounding errors of contrasts and coefficients, far below any width."""
LOG_P_TOLERANCE = 4e-3  # in ln p: below 0.1% of the half-width
