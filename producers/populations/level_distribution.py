"""The proportions of privacy levels in a simulated population."""

from __future__ import annotations

import dataclasses
import math
from typing import Self

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.metric import Metric

_EXPECTED_SHARES = (
    "expected epsilon:share pairs such as 0.5:0.3,1:0.5,2:0.2, the shares adding up to 1"
)


@dataclasses.dataclass(frozen=True)
class LevelDistribution:
    """The share of a population with each epsilon.

    Parameters
    ----------
    epsilons : tuple of float
        The epsilons, positive and distinct.
    shares : tuple of float
        The share of each epsilon, at least 0; the sum is 1.
    """

    epsilons: tuple[float, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise ValueError unless the epsilons are distinct, and the shares sum to 1."""
        for epsilon in self.epsilons:
            if not (epsilon > 0 and math.isfinite(epsilon)):
                raise ValueError(f"epsilon {epsilon}: expected a finite number above 0")
        if len(set(self.epsilons)) != len(self.epsilons):
            raise ValueError(f"epsilons {list(self.epsilons)}: expected each epsilon once")
        for share in self.shares:
            if not 0 <= share <= 1:
                raise ValueError(f"share {share}: expected a number from 0 to 1")
        if abs(math.fsum(self.shares) - 1) > 1e-9:
            raise ValueError(
                f"shares that add up to {math.fsum(self.shares):g}: {_EXPECTED_SHARES}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read proportions such as ``"0.25:0.1,0.5:0.2,1:0.4,2:0.2,4:0.1"``.

        Raises ValueError if a part cannot be read; it names that part.

        Examples
        --------
        >>> LevelDistribution.parse("0.5:0.25, 2:0.75")
        LevelDistribution(epsilons=(0.5, 2.0), shares=(0.25, 0.75))
        """
        epsilons, shares = [], []
        for part in text.split(","):
            epsilon, _, share = part.partition(":")
            try:
                epsilons.append(float(epsilon))
                shares.append(float(share))
            except ValueError:
                raise ValueError(
                    f"{part.strip()!r} in the mix {text!r}: {_EXPECTED_SHARES}"
                ) from None
        return cls(tuple(epsilons), tuple(shares))

    @classmethod
    def even(cls, metric: Metric) -> Self:
        """Return equal shares of a metric's levels."""
        count = len(metric.levels)
        return cls(tuple(float(level) for level in metric.levels), (1 / count,) * count)

    def check(self, metric: Metric) -> None:
        """Raise ValueError if an epsilon is below the metric's lowest level."""
        try:
            metric.level_of(self.epsilons)
        except ValueError as error:
            raise ValueError(f"the mix cannot be used: {error}") from None

    def assign(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Draw the epsilon of each of `count` simulated devices.

        The seeded generator simulates people's choices; it is never used to randomize a report.
        """
        shares = np.asarray(self.shares)
        chosen = generator.choice(len(self.epsilons), size=count, p=shares / shares.sum())
        return np.asarray(self.epsilons)[chosen]
