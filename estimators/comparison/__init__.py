"""Comparisons of two arms: what differs between two slices, windows or metrics, and by how much.

`comparison` has the function and its result, `arms` makes sums of reports with a law of statistics,
and `joint` finds their limits: `fixed` has the test for a fixed number of reports, with the moments
of `moments`. `union` serves arms that may depend on each other. docs/comparisons.md has the proofs.
"""

from estimators.comparison.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
