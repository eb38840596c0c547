"""Metrics whose devices report their values in one step, without rounds."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from estimators.exact.randomness import Bits, SystemBits
from estimators.mechanisms.mechanism import Reports
from estimators.metrics.metric import Metric

NUMBERS_PER_BLOCK = 2**16
"""Numbers that are randomized together: intermediate arrays stay in the processor's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportedMetric(Metric):
    """A metric for which a device reports its value."""

    def randomize(self, values: ArrayLike, level: ArrayLike, bits: Bits | None = None) -> Reports:
        """Randomize values at their levels; only this step sees raw values.

        For a metric that ``sends_true_values`` nothing is random: a report is the value, on a grid.

        Parameters
        ----------
        values : array_like, shape (n,); (n, dimension) for a vector mean
            Numbers for a mean (clipped to the range); vectors for a vector mean (shortened to the
            radius); category names or indices for a frequency; strings for an open vocabulary,
            where "other" replaces denied ones.
        level : array_like of int, shape (n,)
            Indices into the metric's levels, from :meth:`level_of`.
        bits : Bits, optional
            The source of randomness; the operating system's by default.

        Raises
        ------
        ValueError
            If a value is not a number, a category is unknown, or a level is out of range.
        """
        array, levels = self.domain.as_array(values), np.asarray(level)
        row = () if self.dimension is None else (self.dimension,)
        if levels.ndim != 1 or array.shape != (*levels.shape, *row):
            raise ValueError(
                f"values of shape {array.shape} with levels of shape {levels.shape}: "
                "expected two arrays of the same length"
                + (f", {self.dimension} numbers a value" if row else "")
            )
        if levels.size and not (levels.min() >= 0 and levels.max() < len(self.levels)):
            raise ValueError(f"level: expected 0 to {len(self.levels) - 1}")
        source = SystemBits() if bits is None else bits
        size = max(1, NUMBERS_PER_BLOCK // (self.dimension or 1))
        blocks = [slice(i, i + size) for i in range(0, max(1, levels.size), size)]
        reports = [
            self.randomizer.randomize(
                self.domain.to_unit(self.domain.reported(array[b])), levels[b], source
            )
            for b in blocks
        ]
        return reports[0] if len(reports) == 1 else np.concatenate(reports)
