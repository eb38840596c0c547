"""Randomized response for the mean of a value in [-1, 1]: one bit a report."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.errors import ReportError
from estimators.estimate import Counts, Estimate, Question
from estimators.mechanisms.mechanism import Levels, Mechanism, Reports
from estimators.randomness import Bits
from estimators.sampling import bernoulli, round_up
from estimators.thresholds import WORD, flip_threshold
from estimators.weights import LevelFacts, level_weights


class RandomizedResponse(Mechanism):
    """Randomized response: a sign, flipped with probability 1 / (1 + e^epsilon).

    A value x in [-1, 1] is first rounded at random to +1, with probability (1 + x) / 2, or to -1;
    binary data stay as they are. A report is 1 for the sign +1 and 0 for -1. Statistic of a level: the
    number of reports and the number of ones. Source: HLDP, Algorithm 2; Warner (1965).

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.

    Examples
    --------
    >>> from estimators.randomness import SeededBits
    >>> mechanism = RandomizedResponse([Fraction(1)])
    >>> mechanism.randomize(np.ones(8), np.zeros(8, dtype=int), SeededBits(1))
    array([0, 1, 1, 1, 0, 0, 1, 1], dtype=uint8)
    """

    name = "randomized_response"
    kinds = frozenset({"mean"})
    dtype = np.dtype(np.uint8)
    columns = 2

    def __init__(self, epsilons: Sequence[Fraction]) -> None:
        super().__init__(epsilons)
        self._flips = [flip_threshold(epsilon) for epsilon in self.epsilons]
        self._thresholds = np.array(self._flips, dtype=np.uint64)
        self.contrast = np.array([float(Fraction(WORD - 2 * t, WORD)) for t in self._flips])
        """E[sign reported] / x per level: 1 - 2 T / 2^64, tanh(epsilon / 2) up to rounding."""
        self._facts = LevelFacts(
            epsilons=np.array([float(e) for e in self.epsilons]),
            variances=1 / self.contrast**2,
            paper=self.contrast**2,
        )

    def randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        """Return one report, 0 or 1, for each value in [-1, 1]."""
        positive = round_up(bits, (1 + values) / 2)
        return (positive ^ bernoulli(bits, self._thresholds[level])).astype(np.uint8)

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Refuse a report other than 0 or 1."""
        if strange := values.translate(None, b"\x00\x01"):
            raise ReportError("bad_value", f"report {strange[0]}: expected 0 or 1")

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, ones)."""
        cells = level.astype(np.intp) * 2 + reports
        tally = np.bincount(cells, minlength=2 * len(self.epsilons)).reshape(-1, 2)
        table[:, 0] += tally.sum(axis=1)
        table[:, 1] += tally[:, 1]

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Estimate the mean in [-1, 1]."""
        counts, ones = table[:, 0], table[:, 1]
        shares = level_weights(question.weights, counts, self._facts)
        used = counts > 0
        per_report = np.zeros(len(counts))
        per_report[used] = shares[used] / (counts[used] * self.contrast[used])
        value = float(per_report @ (2 * ones - counts)) if used.any() else np.nan
        noise = float(counts @ per_report**2)
        half = np.sqrt(2 * noise * np.log(2 / question.beta)) if used.any() else np.inf
        lower, upper = (np.nan_to_num(value) + side * half for side in (-1, 1))
        return Estimate(
            value=value,
            lower=float(np.clip(lower, -1, 1)),
            upper=float(np.clip(upper, -1, 1)),
            reports=int(counts.sum()),
            effective_reports=1 / noise if used.any() else 0.0,
            beta=question.beta,
            bound=question.bound,
            target=question.target,
            policy=question.weights,
            levels=tuple(float(e) for e in self.epsilons),
            counts=counts.copy(),
            weights=shares,
        )

    def privacy_ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T, exactly: the ratio of either report under x = +1 and x = -1."""
        flips = self._flips[level]
        return Fraction(WORD - flips, flips)
