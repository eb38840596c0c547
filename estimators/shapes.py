"""The shapes of answers, by which every display chooses its format."""

from __future__ import annotations

import enum


class Shape(enum.Enum):
    """The shape of a metric's answers."""

    NUMBER = "number"
    """One number, with bounds."""
    NAMED_NUMBERS = "named numbers"
    """A number for each label, with bounds that hold for all at once."""
    DISTRIBUTION = "distribution"
    """Quantiles and a distribution function, with bounds that hold for all at once."""
    SEARCH = "search"
    """The progress of a search in rounds."""
