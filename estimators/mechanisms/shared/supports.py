"""The base of frequency mechanisms whose reports each support some of the categories."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats
from estimators.mechanisms.mechanism import Mechanism, Reports


class SupportReports(Mechanism):
    """A frequency mechanism whose reports are likeliest for the categories that they support."""

    kinds = frozenset({"frequency"})

    @abstractmethod
    def supports(self, reports: Reports, level: int, category: Any) -> NDArray[np.bool_]:
        """Return which `reports`, n rows of one level, support a category, shape (n,).

        `level`: its index; `category`: an index, or the 64-bit key of a string.
        """

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of the largest ratio for a report that supports the category."""
        return np.where(self.supports(reports, level, value), self.log_ratio(level), 0.0)
