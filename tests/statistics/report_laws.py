"""The law of a report of each mechanism with few possible reports, from its definition."""

from typing import Any

import numpy as np

from estimators import LocalMetric
from estimators.estimate import Floats
from tests.support.reports.populations import LEVELS, Population, sketch_chances, symbol_chances

CATEGORIES = 5
MEANS = ("randomized_response", "windows")
PACKED = ("rappor", "oue", "subset_selection")
SYMBOLS = (
    *("grr", "hadamard_response", "recursive_hadamard"),
    *("projective_geometry_response", "projection"),
)
FINITE = (*MEANS, *PACKED, *SYMBOLS)


def metric_of(name: str) -> LocalMetric:
    """Return a metric of five categories, or of a mean."""
    theta: Any = 0.0 if name in (*MEANS, "laplace") else (1 / CATEGORIES,) * CATEGORIES
    return Population(name, theta, ()).metric


def reports_of(name: str, chances: Floats) -> Any:
    """Return all reports, in the order of their chances."""
    every = np.arange(chances.shape[1])
    return every[:, None] if name in PACKED else every


def chances_of(name: str, level: int) -> Floats:
    """Return the chance of each report for each category, or for -1 and 1."""
    e, mechanism = float(np.exp(LEVELS[level])), metric_of(name).randomizer
    if name == "randomized_response":
        return np.array([[e, 1.0], [1.0, e]]) / (1 + e)
    if name not in PACKED:
        return symbol_chances(mechanism, level)
    bits = np.arange(2**CATEGORIES)[:, None] >> np.arange(CATEGORIES) & 1
    if name == "subset_selection":
        size: Any = mechanism
        is_subset = bits.sum(axis=1) == size.sizes[level]
        odds = np.where(is_subset, np.where(bits, e, 1.0).T, 0.0)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
    own, other = (0.5, 1 / (1 + e)) if name == "oue" else (1 / (1 + e**-0.5), 1 / (1 + e**0.5))
    is_own = np.eye(CATEGORIES)[:, None, :]
    one = is_own * own + (1 - is_own) * other
    return np.asarray(np.where(bits, one, 1 - one).prod(axis=2))


def sketched(population: Population, level: int) -> Floats:
    """Return the chance of each report of a sketch for each name, given its hashes."""
    mechanism: Any = population.metric.randomizer
    if population.mechanism == "count_sketch":
        return sketch_chances(population, level)
    rows = mechanism.hashed_rows[level]
    space = rows.geometry.space
    own = rows.points(population.metric.domain.to_unit(np.array(population.names)))
    row, point = np.divmod(np.arange(rows.symbols), space.points)
    inside = np.isin((point - own[:, row]) % space.points, space.members)
    odds = np.where(inside, np.exp(LEVELS[level]), 1.0)
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
