"""Data for experiments: records of people, or stand-ins for data that cannot be shipped.

A stand-in has the paper's number of people and bins, and its stated shape.
`dither reproduce NAME --data FILE` puts the published records in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats

PEOPLE_WITH_WAGES = 50_000
"""The number of people that HDP-WC draws from its file."""
CASES, TYPES = 17_000, 10
RATINGS, MOVIES, LARGEST_AGE = 283_228, 53_889, 150


@dataclasses.dataclass(frozen=True)
class Task:
    """An extreme to be found.

    Attributes
    ----------
    name : str
        The task's name in the output.
    kind : {"minimum", "maximum"}
        Which extreme is searched for.
    values : ndarray of float64, shape (users,)
        The users' values.
    range : pair of float
        The domain that the search starts with.
    alpha : float or None
        How thin the tail is, by the paper: a share of t^alpha lies within t of the extreme; None if
        unknown.
    """

    name: str
    kind: str
    values: Floats
    range: tuple[float, float]
    alpha: float | None = None


@dataclasses.dataclass(frozen=True)
class Records:
    """Published records, which replace stand-ins; None or empty where there are none.

    Attributes
    ----------
    told : tuple of str
        Descriptions of the records, for the output.
    wages : ndarray of float64, shape (people,), optional
        The yearly pay of each person, at least 0.
    cases : ndarray of int64, shape (types,), optional
        The number of people with each type of cancer, or in each category of another kind.
    tasks : tuple of Task
        The extremes to find.
    """

    told: tuple[str, ...] = ()
    wages: Floats | None = None
    cases: NDArray[np.int64] | None = None
    tasks: tuple[Task, ...] = ()

    @property
    def held(self) -> set[str]:
        """The names of the attributes that have records."""
        attributes = {"wages": self.wages, "cases": self.cases, "tasks": self.tasks or None}
        return {name for name, records in attributes.items() if records is not None}

    def joined(self, other: Records) -> Records:
        """Return these records merged with `other`, whose records win where both have some."""
        return Records(
            self.told + other.told,
            self.wages if other.wages is None else other.wages,
            self.cases if other.cases is None else other.cases,
            other.tasks or self.tasks,
        )


STAND_INS = Records()
"""Records of nobody, for which experiments draw stand-ins."""


def wages(records: Records, rng: np.random.Generator) -> tuple[Floats, str]:
    """Return up to 50,000 wages and a description: by default log-normal around 60,000."""
    if records.wages is None:
        made = rng.lognormal(np.log(60_000), 0.7, PEOPLE_WITH_WAGES)
        return made, f"log-normal wages of {made.size:,}"
    people = min(PEOPLE_WITH_WAGES, records.wages.size)
    return rng.choice(records.wages, people, replace=False), f"wages of {people:,} in the file"


def cases(records: Records, rng: np.random.Generator) -> tuple[NDArray[np.int64], str]:
    """Return the type of each case and a description: by default 17,000 cases of ten types."""
    if records.cases is None:
        shares = rng.dirichlet(np.full(TYPES, 3.0))
        return rng.choice(TYPES, CASES, p=shares), f"{CASES:,} cases of {TYPES} types"
    types = np.repeat(np.arange(records.cases.size), records.cases)
    return types, f"{types.size:,} cases of {records.cases.size} types in the file"


def ratings(average: Floats, number: NDArray[np.int64] | Floats) -> tuple[Task, ...]:
    """Return MIN's tasks on MovieLens: each user's average rating and number of ratings."""
    counts, max_ratings = np.asarray(number, dtype=np.float64), MOVIES / 2
    return (
        Task("lowest average rating", "minimum", average, (0.0, 5.0), 7.69),
        Task("highest average rating", "maximum", average, (0.0, 5.0), 2.50),
        Task("fewest ratings", "minimum", counts, (0.0, max_ratings), 1.31),
        Task("most ratings", "maximum", counts, (0.0, max_ratings), 113.0),
    )


def ages(groups: Sequence[tuple[str, Floats, float | None]]) -> tuple[Task, ...]:
    """Return MIN's tasks on purchases: the least age in each group of customers."""
    return tuple(
        Task(f"least age, {name}", "minimum", values, (0.0, float(LARGEST_AGE)), alpha)
        for name, values, alpha in groups
    )


def tasks(records: Records, rng: np.random.Generator) -> tuple[Task, ...]:
    """Return the tasks: by default with beta laws, whose tails are as thin as in the paper."""
    if records.tasks:
        return records.tasks
    average = 5 * rng.beta(7.69, 2.50, RATINGS)
    number = MOVIES / 2 * rng.beta(1.31, 113.0, RATINGS)
    groups = [
        (name, LARGEST_AGE * rng.beta(alpha, 2.75 * alpha, 2**17), alpha)
        for name, alpha in (
            ("JPY 0 to 10,000", 3.98),
            ("JPY 40,000 to 50,000", 4.31),
            ("music software", 3.60),
            ("baby, kids, maternity", 4.79),
        )
    ]
    return ratings(average, number) + ages(groups)
