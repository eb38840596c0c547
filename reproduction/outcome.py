"""Experiments and their outcomes, as plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Tick = Callable[[float], None]
"""Takes the share of an experiment that is done, from 0 to 1."""


def steps(items: Collection[Item], tick: Tick) -> Iterator[Item]:
    """Yield the items of an experiment, and tell after each which share of them is done."""
    for done, item in enumerate(items, 1):
        yield item
        tick(done / len(items))


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
        Takes the number of runs, a seed, a :data:`Tick`, and, if it reads some,
        :class:`reproduction.records.Records`; returns an :class:`Outcome`.
    takes : tuple of str
        The attributes of the records that it reads.
    """

    title: str
    source: str
    data: str
    runs: int
    quick: int
    run: Callable[..., Outcome]
    takes: tuple[str, ...] = ()
