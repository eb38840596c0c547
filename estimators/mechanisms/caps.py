"""Ranked random directions for the mean of a vector in the unit ball: signed bytes."""

from __future__ import annotations

import bisect
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds import Directions
from estimators.bounds.ranked_directions.candidates import Candidates
from estimators.bounds.ranked_directions.coordinates import CoordinateBounds
from estimators.bounds.ranked_directions.report_law import ReportLaw, report_law
from estimators.bounds.spheres import VectorLaw
from estimators.estimate import Bools, Counts, Floats
from estimators.mechanisms.mechanism import Epsilons, Reports
from estimators.mechanisms.shared.ranked_directions import NUMBERS_AT_A_TIME, RankedDirections
from estimators.weights import LevelFacts

CANDIDATE_COUNTS = (
    (Fraction(0), 8),
    (Fraction("0.6"), 16),
    (Fraction("1.4"), 32),
    (Fraction("2.4"), 64),
    (Fraction("3.5"), 128),
    (Fraction(5), 256),
    (Fraction("6.5"), 512),
    (Fraction("7.5"), 1024),
    (Fraction("8.75"), 2048),
    (Fraction("9.75"), 4096),
)
"""Pairs of the least epsilon and the number of candidates used from there on. Up to epsilon 10, the
variance of a report is then at most 6% above the least of all mechanisms on the sphere."""
MAX_NORMAL_NUMBERS = 2**21
"""The most normal numbers that a device draws for a report; it limits the number of candidates."""
MAX_BYTE_DIMENSION = 1024  # coordinates up to which a report has a byte for each
SIGNED_BYTE, SIGNED_WORD = 127, 2**14  # the grids of one and two bytes


class Caps(RankedDirections):
    """One of k random directions, preferably one of the W nearest to the value.

    The candidates are k / 2 directions u uniform on the unit sphere, and their opposites, ordered
    by <u, v>, where v = x / |x| or, with probability 1/2 - |x| / 2, its opposite. A private coin
    decides whether the report is uniform among the first W or among the other k - W. The report is
    rounded at random to the grid 1/g. The estimate is the mean of B U / g, where U is the report
    and B removes the bias. k and W depend on epsilon and d alone (:func:`best_caps`).

    The statistic of a level is the number of reports, the sum of each coordinate, and the sum of
    each coordinate's squares, from which the bounds find how uneven the data are.

    Source: PrivUnit (Bhowmick, Duchi, Freudiger, Kapoor and Rogers, 2018), the best mechanism on
    the sphere (Asi, Feldman and Talwar, 2022), on random candidates instead of a cap, as in the
    minimal random coding of Shah et al. (2022).

    **Privacy.** Theorem 4 of docs/proofs/privacy.md, which also holds in floating point. A device
    computes k, W and T itself, so a server cannot choose them.

    **No bias.** Theorem 4 of docs/proofs/mechanisms.md. m = (p_in - p_out) E[sum of the best W
    scores] is computed as one integral:
    :class:`estimators.bounds.ranked_directions.candidates.Candidates`.

    **Random words.** For one value: the directions, of :func:`~estimators.exact.sampling.
    normal_numbers`, with ceil(b d / 2) words for each block of b = max(1, floor(2^17 / d))
    directions (the last block has what is left). A coin of probability (1 + |x|) / 2 by `round_up`;
    if it fails, v is the opposite. The coin of T by `bernoulli`; true is a miss. Unless k = 2, an
    integer by `uniform_below` W or, after a miss, k - W. Candidate i < k / 2 is direction i, and
    candidate k / 2 + i its opposite. The first W are the candidates with the largest <u, x>; if
    some are equal, those with smaller numbers. The integer counts these, or the others, by their
    numbers. Last, `round_up` rounds the coordinates of the chosen *direction*, up from their floor.
    Their signs change if its opposite was chosen, and again if v is the opposite of x. For many
    values each step is for all values of a chunk with the same k and W.

    Parameters
    ----------
    dimension : int
        d, at least 1.
    grid : int, optional
        g, at most 2^24. A coordinate takes one byte for g < 2^7, two for g < 2^15, and four
        otherwise. The default is 127 up to 1,024 coordinates, and 2^14 above: the rounding adds at
        most d / (4 g^2) to the variance of a report.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Caps([Fraction(1), Fraction(4)], dimension=3)
    >>> mechanism.sets
    ((16, 6), (128, 15))
    >>> mechanism.randomize(np.array([[0.6, 0.0, 0.8]]), np.array([1]), SeededBits(1)).shape
    (1, 3)
    """

    name = "caps"

    def __init__(self, epsilons: Epsilons, *, dimension: int, grid: int | None = None) -> None:
        if grid is None:
            grid = SIGNED_BYTE if dimension <= MAX_BYTE_DIMENSION else SIGNED_WORD
        sets = [best_caps(epsilon, dimension) for epsilon in epsilons]
        super().__init__(epsilons, dimension, grid, sets)
        self.dtype = np.dtype("i1" if grid < 2**7 else "<i2" if grid < 2**15 else "<i4")
        self.columns = 1 + 2 * dimension

    # only estimates need what follows; devices do not

    @functools.cached_property
    def laws(self) -> list[ReportLaw]:
        """The law of a report at each level."""
        levels = zip(self.sets, self.chances, strict=True)
        return [report_law(self.dimension, *kw, float(p), float(q)) for kw, (p, q) in levels]

    @functools.cached_property
    def scale(self) -> Floats:  # type: ignore[override]
        """B per level: the factor by which a report is multiplied to be unbiased."""
        return np.array([1 / law.mean for law in self.laws])

    @functools.cached_property
    def facts(self) -> LevelFacts:  # type: ignore[override]
        """The constants from which weights are computed."""
        variances = self.scale**2 / self.dimension
        return LevelFacts.of(self.epsilons, variances, np.square(self._levels))

    @property
    def public_constants(self) -> dict[str, Any]:
        """The numbers k and W of each level."""
        candidates, best_counts = (list(x) for x in zip(*self.sets, strict=True))
        return {"candidates": candidates, "inside": best_counts}

    def _add(self, sums: Counts, reports: Reports) -> None:
        d, rows = self.dimension, max(1, NUMBERS_AT_A_TIME // self.dimension)
        for start in range(0, len(reports), rows):
            wide_reports = reports[start : start + rows].astype(np.int64)
            sums[:d] += wide_reports.sum(axis=0)
            sums[d:] += np.einsum("ij,ij->j", wide_reports, wide_reports)

    def _law(
        self, table: Counts, used: Bools, coefficient: Floats, mean: Floats, one_law: bool
    ) -> VectorLaw:
        n = table[used, 0].astype(np.float64)
        if self.dimension == 1:  # a sign
            contrast = np.array([law.mean for law in self.laws])[used]
            return Directions(1, n, coefficient, 1 / self.grid, contrast)
        laws = tuple(law for law, wanted in zip(self.laws, used.tolist(), strict=True) if wanted)
        squares = table[used, 1 + self.dimension :] / (self.grid**2 * n)[:, None]
        arguments = self.dimension, n, coefficient, 1 / self.grid, laws, one_law, mean
        return CoordinateBounds(*arguments, squares=squares, levels=len(self.epsilons))

    def _squares(self, tables: Counts, used: Bools) -> Floats:
        n, unit = tables[:, used, 0], self.scale[used] / self.grid
        return tables[:, used, 1 + self.dimension :] * (unit**2 / n)[..., None]

    def find_error(self, table: Counts) -> str | None:
        """Return why no reports can give a stored table; None if some can."""
        if (table[:, 1 + self.dimension :] < 0).any():
            return "a negative sum of squares"
        return super().find_error(table)

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the log likelihood of each report's direction for a vector in the unit ball.

        Rounding to the grid, which is ignored, moves a score by less than sqrt(d) / g.
        """
        vector = np.asarray(value, dtype=np.float64)
        length = float(np.linalg.norm(vector))
        if length == 0:
            return np.zeros(len(reports))
        wide_reports = reports.astype(np.float64)
        score = wide_reports @ (vector / length) / np.linalg.norm(wide_reports, axis=1)
        aligned, shorter = self.laws[level].density(score), min(length, 1.0)
        opposite = self.laws[level].density(-score)
        return np.log((1 + shorter) / 2 * aligned + (1 - shorter) / 2 * opposite)


@functools.lru_cache(maxsize=4096)
def best_caps(epsilon: Fraction, dimension: int) -> tuple[int, int]:
    """Return k, the number of candidates, and W, the number of preferred ones, of a level.

    k is from :data:`CANDIDATE_COUNTS`, halved until a report takes at most
    :data:`MAX_NORMAL_NUMBERS` normal numbers. W minimises B, the factor of a report: as W grows, B
    first falls and then rises, because it is a linear function of W divided by the sum of the W
    best scores, which is concave in W. `epsilon`: above 0; `dimension`: d, at least 1. At d = 1
    the report is a sign, by randomized response.

    >>> [best_caps(Fraction(e), 1024) for e in (1, 2, 4, 8)]
    [(16, 6), (32, 7), (128, 9), (1024, 4)]
    """
    if dimension == 1:
        return 2, 1
    candidates = max(k for start, k in CANDIDATE_COUNTS if start <= epsilon)
    while candidates > 2 and candidates // 2 * dimension > MAX_NORMAL_NUMBERS:
        candidates //= 2
    tail = math.exp(-float(epsilon))

    def size(best_count: int) -> float:
        weight = best_count + tail * (candidates - best_count)
        return weight / best_score(dimension, candidates, best_count)

    def grows(best_count: int) -> bool:
        return size(best_count + 1) >= size(best_count)

    return candidates, 1 + bisect.bisect_left(range(1, candidates // 2), True, key=grows)


@functools.lru_cache(maxsize=4096)
def best_score(dimension: int, candidates: int, best_count: int) -> float:
    """Return the mean of the sum of the W best of k scores <u, v>.

    `dimension`: d, that of the directions u and v; `candidates`: k; `best_count`: W.
    """
    return float(Candidates(dimension, candidates, best_count).best_scores()[-1])
