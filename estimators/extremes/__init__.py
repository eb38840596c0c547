"""The minimum or maximum of private values, found in rounds of randomized answers.

`binary_search` has the questions and decisions, `tail` the exponent of the tail near the extreme.
"""

from __future__ import annotations

from estimators.extremes.binary_search import (
    Decision,
    Progress,
    Search,
    lower_alpha_setting,
    unknown_alpha_setting,
)
from estimators.extremes.tail import Tail, tail

__all__ = [
    "Decision",
    "Progress",
    "Search",
    "Tail",
    "lower_alpha_setting",
    "tail",
    "unknown_alpha_setting",
]
