"""Samples of reports of windows, drawn as counts of symbols."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from estimators.bounds import PiecewiseLaw
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.piecewise.limits import symbol_limits
from estimators.estimate import Counts, Floats
from estimators.exact.piecewise_shapes import WindowShape, shape_at
from estimators.question import Question

HARD = ("ends", "uniform", "narrow", "top", "knot", "rare")
"""Kinds of data: -1 and 1; even in [-1, 1], in [0.2, 0.4]; all 1; all at a knot; 1 % are 1."""


def knots_of(shape: WindowShape, values: Floats) -> Floats:
    """Return each knot's probability, shape (windows,), for values rounded to knots at random."""
    share = np.zeros(shape.windows)
    left = np.clip(np.searchsorted(shape.knots, values, side="right") - 1, 0, shape.windows - 2)
    up = (values - shape.knots[left]) / (shape.knots[left + 1] - shape.knots[left])
    np.add.at(share, left, (1 - up) / len(values))
    np.add.at(share, left + 1, up / len(values))
    return share


class Sample:
    """Reports of levels with these epsilons, counts and shares of the weights."""

    def __init__(
        self,
        epsilons: Sequence[str],
        counts: Floats,
        shares: Sequence[float] | Floats,
        *,
        free: bool,
    ) -> None:
        shapes = [shape_at(Fraction(epsilon)) for epsilon in epsilons]
        self.law = PiecewiseLaw.of(shapes, counts, np.array(shares) / counts, free=free)
        self.chances = [shape.chances for shape in shapes]

    def values(self, kind: str) -> Floats:
        """Return the users' values: at most 200, which are equally likely."""
        values = {
            "ends": np.array([-1.0, 1.0]),
            "uniform": (np.arange(200) + 0.5) / 100 - 1,
            "narrow": 0.2 + (np.arange(200) + 0.5) / 1000,
            "top": np.array([1.0]),
            "knot": self.law.shapes[0].knots[-2:-1],
            "rare": np.where(np.arange(100) == 0, 1.0, -1.0),
        }
        return values[kind]

    def laws(self, kind: str) -> list[Floats]:
        """Return the probabilities of the symbols, for each level."""
        return [
            knots_of(shape, self.values(kind)) @ chance
            for shape, chance in zip(self.law.shapes, self.chances, strict=True)
        ]

    def bets(self, counts: Sequence[Counts | Floats]) -> SymbolBets:
        """Return bets on these counts of symbols."""
        table = np.zeros((len(counts), max(len(row) for row in counts)))
        for row, filled in zip(table, counts, strict=True):
            row[: len(filled)] = filled
        return SymbolBets(self.law, table)

    def draw(self, rng: np.random.Generator, laws: Sequence[Floats]) -> SymbolBets:
        """Return bets on drawn counts."""
        sizes = self.law.counts.astype(int)
        return self.bets([rng.multinomial(n, law) for n, law in zip(sizes, laws, strict=True)])

    def missed(
        self,
        kind: str,
        beta: float,
        runs: int,
        rng: np.random.Generator,
        data: Sequence[Floats] | None = None,
    ) -> int:
        """Return how many of `runs` samples have bounds that miss the mean.

        `data` has the probabilities of each level's symbols, if the data of the levels differ.
        """
        laws = self.laws(kind) if data is None else data
        share = self.law.counts * self.law.coefficient
        own = [law @ shape.values for law, shape in zip(laws, self.law.shapes, strict=True)]
        theta = float(share @ np.array(own))
        counts = np.array([self.draw(rng, laws).counts for _ in range(runs)])
        bets = SymbolBets(self.law.rows(None).rows(np.zeros(runs, dtype=np.intp)), counts)
        low, high = symbol_limits(bets, Question(bound="fixed"), math.log(beta / 2), 1.0)
        return int(((low > theta) | (high < theta)).sum())
