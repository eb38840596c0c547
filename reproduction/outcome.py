"""Experiments and their outcomes, as plain values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reproduction.records import Records

Tick = Callable[[float], None]
"""Takes the share of an experiment that is done, from 0 to 1."""


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of the paper, and ours.

    Attributes
    ----------
    name : str
        Where the number stands in the paper: a row and a column of a table, or a point of a curve.
    ours : float
        Our number.
    error : float
        Monte Carlo standard error of ours; 0 if it is exact.
    paper : float or None
        The paper's number; None if the paper has a plot, or nothing, in its place.
    within : float or None
        How far apart the numbers may be, in addition to 3 standard errors; None if they are only
        shown.
    """

    name: str
    ours: float
    error: float = 0.0
    paper: float | None = None
    within: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the numbers are close enough; None if `paper` or `within` is None."""
        if self.paper is None or self.within is None:
            return None
        return abs(self.ours - self.paper) <= self.within + 3 * self.error


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim, and whether it holds.

    Attributes
    ----------
    holds : bool
        Whether the claim holds.
    measured : str
        The numbers that decide it, as text.
    """

    name: str
    holds: bool
    measured: str


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line of a plot.

    Attributes
    ----------
    x, y : sequence of float
        The coordinates of the points.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Plot:
    """Curves over the same axes, whose labels are `x` and `y`."""

    x: str
    y: str
    curves: Sequence[Curve]
    logarithmic: tuple[bool, bool] = (True, True)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of an experiment.

    Attributes
    ----------
    numbers, claims, notes : sequence
        The numbers, the claims, and remarks for the output.
    plot : Plot or None
        The figure; None if there is none.
    data : str
        The data that were used, if they are not the experiment's; otherwise empty.
    """

    numbers: Sequence[Number] = ()
    claims: Sequence[Claim] = ()
    plot: Plot | None = None
    notes: Sequence[str] = ()
    data: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every number is close enough and every claim holds."""
        return all(number.agrees is not False for number in self.numbers) and all(
            claim.holds for claim in self.claims
        )


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper, or a question of our own.

    Attributes
    ----------
    title, source, data : str
        What it shows; where in which paper; what data it uses.
    runs, quick : int
        The number of runs by default, and with ``--quick``.
    run : callable
        Takes the number of runs, a seed and a :data:`Tick`; returns an :class:`Outcome`.
    run_on : callable, optional
        As `run`, with :class:`reproduction.records.Records` as the first argument.
    takes : tuple of str
        The attributes of the records that it reads.
    """

    title: str
    source: str
    data: str
    runs: int
    quick: int
    run: Callable[[int, int, Tick], Outcome]
    run_on: Callable[[Records, int, int, Tick], Outcome] | None = None
    takes: tuple[str, ...] = ()


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent values and its standard error.

    Examples
    --------
    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    n = len(values)
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, n - 1)
    return mean, math.sqrt(variance / n)


def slope(
    x: Sequence[float], y: Sequence[float], errors: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the exponent of y ~ x^slope, by least squares of logarithms, and its standard error.

    Parameters
    ----------
    x, y : sequence of float
        The coordinates of points, above zero.
    errors : sequence of float, optional
        Standard errors of y; without them y is exact.

    Examples
    --------
    >>> exponent, error = slope([1.0, 10.0, 100.0], [2.0, 20.0, 200.0], [0.2, 2.0, 20.0])
    >>> round(exponent, 6), round(error, 4)
    (1.0, 0.0307)
    """
    across, up = [math.log(v) for v in x], [math.log(v) for v in y]
    middle = math.fsum(across) / len(across)
    shares = [(a - middle) / math.fsum((b - middle) ** 2 for b in across) for a in across]
    relative = [error / value for error, value in zip(errors or [0.0] * len(y), y, strict=True)]
    exponent = math.fsum(share * height for share, height in zip(shares, up, strict=True))
    return exponent, math.hypot(*(s * r for s, r in zip(shares, relative, strict=True)))
