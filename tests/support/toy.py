"""A kind of question and a mechanism that Dither does not have: an example of a plug-in.

The question is what share of the devices would say yes. One file beside the packages is all that it
takes: docs/extending.md shows it.
"""

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import Law
from estimators.errors import ReportError
from estimators.estimate import Counts, Floats
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli
from estimators.mechanisms.mechanism import Levels, Reports
from estimators.mechanisms.shared.means import ScalarMean
from estimators.mechanisms.shared.signs import FlippedSigns
from estimators.metrics.domains import Domain
from estimators.metrics.kinds import Kind
from estimators.question import Question
from estimators.shapes import Shape
from estimators.weights import LevelFacts


@dataclasses.dataclass(frozen=True, kw_only=True)
class YesOrNo(Domain):
    """One of two words; `yes` is the one whose share is asked for."""

    yes: str = "yes"
    no: str = "no"

    def __post_init__(self) -> None:
        """Refuse the same word for both."""
        if self.yes == self.no:
            self.refuse("no", f"another word than {self.yes!r}")

    @property
    def parameters(self) -> dict[str, Any]:
        """No parameters: the mechanism randomizes -1 or 1."""
        return {}

    @property
    def unit(self) -> tuple[float, float]:
        """The offset and the scale, a half each: they turn -1 into 0 and 1 into 1."""
        return 0.5, 0.5

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest share."""
        return 0.0, 1.0

    @property
    def meaning(self) -> dict[str, Any]:
        """The two words, by name."""
        return {"yes": self.yes, "no": self.no}

    @property
    def opposite(self) -> tuple[str, str]:
        """The two values that differ most: the two words."""
        return self.yes, self.no

    def to_unit(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return 1 for yes and -1 for no."""
        is_yes, is_no = values == self.yes, values == self.no
        if strange := values[~(is_yes | is_no)].tolist():
            raise ValueError(f"value {strange[0]!r}: expected {self.yes!r} or {self.no!r}")
        return np.where(is_yes, 1.0, -1.0)


class Coin(ScalarMean):
    """Reverses the answer with probability 1 / (1 + e^eps), by a biased coin.

    A report is 1 for yes and 0 for no. Statistic of a level: the reports, and those that say yes.
    """

    name = "coin"
    kinds = frozenset({"share_of_yes"})
    dtype = np.dtype(np.uint8)
    columns = 2

    def __init__(self, epsilons: Sequence[Fraction]) -> None:
        super().__init__(epsilons)
        self._signs = FlippedSigns(self.epsilons)
        contrast = self._signs.contrast
        self.facts = LevelFacts(
            epsilons=np.array([float(e) for e in self.epsilons]),
            variances=1 / contrast**2,
            paper=contrast**2,
        )

    def randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        """Return one report for each value, -1 or 1."""
        return ((values > 0) ^ bernoulli(bits, self._signs.thresholds, level)).astype(np.uint8)

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Refuse a report other than 0 or 1."""
        if max(values, default=0) > 1:
            raise ReportError("bad_value", f"report {max(values)}: expected 0 or 1")

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, those that say yes)."""
        np.add.at(table[:, 0], level, 1)
        np.add.at(table[:, 1], level, reports)

    def level_means(self, table: Counts) -> Floats:
        """Return the unbiased mean of each level, zero where there is no report."""
        return self._signs.means(table[:, 0], table[:, 1:])[:, 0]

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of unbiased signs; some count is above zero."""
        return self._signs.law(counts, shares, question)

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of each report's probability under -1 or 1."""
        flip = float(self._signs.flip[level])
        found: Floats = np.log(np.where((reports == 1) == (value > 0), 1 - flip, flip))
        return found

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that the reports no and yes estimate."""
        return self._signs.range()

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the ratio of either report under yes and under no, exactly."""
        return self._signs.ratio(level)


SHARE_OF_YES = Kind("share_of_yes", YesOrNo, Shape.NUMBER)
