"""Draws populations from a distribution, by a random generator with a seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.errors import meant
from estimators.metrics.categories import OPEN_VOCABULARY
from estimators.metrics.metric import Metric
from producers.populations.population import Arrivals, Column, Population

SIMULATED_WORDS = 1000
"""How many distinct strings of an open vocabulary are simulated."""

OF_NUMBERS = {
    "uniform": "uniform: over the range",
    "normal": "normal:MEAN,DEVIATION: clipped to the range",
    "bernoulli": "bernoulli:P: the upper end of the range with probability P, else the lower",
}
OF_CATEGORIES = {
    "uniform": "uniform: every category equally often",
    "zipf": "zipf:S: the i-th category in proportion to i to the power of -S",
}
PARAMETER_COUNTS = {"uniform": (0,), "normal": (0, 2), "bernoulli": (0, 1), "zipf": (0, 1)}


def simulate(
    metric: Metric, count: int, distribution: str, arrivals: Arrivals, seed: int = 0
) -> Population:
    """Draw a population for a metric.

    Attributes are drawn uniformly from their declared values, independently of the metric's values.

    Parameters
    ----------
    metric : Metric
        The metric.
    count : int
        The number of devices.
    distribution : str
        A name in `OF_NUMBERS` or `OF_CATEGORIES`, then a colon and its parameters:
        ``"normal:17,5"``, ``"bernoulli:0.2"``, ``"zipf:1.1"``. Parameters have defaults.
    arrivals : Arrivals
        The event times.
    seed : int
        Equal seeds give equal populations.

    Raises
    ------
    ValueError
        If this kind of metric has no such distribution, or a parameter cannot be used.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="m", kind="frequency", mechanism="rappor", categories=4, levels=[1])
    >>> simulate(metric, 5, "zipf:1", Arrivals(1000), seed=1).columns["m"].tolist()
    [1, 3, 0, 3, 0]
    """
    if count < 0:
        raise ValueError(f"count = {count}: expected a number of devices, 0 or more")
    generator = np.random.default_rng(seed)
    if metric.domain.names == "coordinates":
        raise ValueError(
            f"metric {metric.name!r} is a {metric.kind}: expected numbers or categories"
        )
    if metric.domain.of_numbers:
        column: Column = _numbers(metric, count, distribution, generator)
    else:
        names = _words(metric) if metric.categories == OPEN_VOCABULARY else None
        size = len(metric.category_names if names is None else names)
        column = _categories(metric, size, count, distribution, generator)
        column = column if names is None else names[column]
    return Population(
        arrivals.times(count), {metric.name: column}, attributes=_attributes(metric, count, seed)
    )


def _attributes(metric: Metric, count: int, seed: int) -> dict[str, Column]:
    """Draw attributes with a separate generator, so that values do not depend on them."""
    generator = np.random.default_rng([seed, 2])
    declared = {} if metric.slicing is None else metric.slicing.attributes
    return {
        name: np.array(values, dtype=object)[generator.integers(len(values), size=count)]
        for name, values in declared.items()
    }


def _numbers(
    metric: Metric, count: int, distribution: str, generator: np.random.Generator
) -> NDArray[np.float64]:
    high, low = metric.domain.opposite
    name, parameters = _parse(distribution, metric)
    if name == "uniform":
        return generator.uniform(low, high, count)
    if name == "normal":
        mean, deviation = parameters or ((low + high) / 2, (high - low) / 6)
        if deviation < 0:
            raise ValueError(f"deviation {deviation} in {distribution!r}: expected 0 or more")
        return np.clip(generator.normal(mean, deviation, count), low, high)
    (chance,) = parameters or [0.5]
    if not 0 <= chance <= 1:
        raise ValueError(f"probability {chance} in {distribution!r}: expected 0 to 1")
    return np.where(generator.random(count) < chance, float(high), float(low))


def _words(metric: Metric) -> NDArray[Any]:
    """Return the metric's watched strings, then invented strings."""
    invented = (f"word {number}" for number in range(1, SIMULATED_WORDS + 1))
    return np.array([*metric.labels, *invented][:SIMULATED_WORDS], dtype=object)


def _categories(
    metric: Metric, size: int, count: int, distribution: str, generator: np.random.Generator
) -> NDArray[np.int64]:
    ranks = np.arange(1, size + 1, dtype=np.float64)
    name, parameters = _parse(distribution, metric)
    (exponent,) = parameters or [0.0 if name == "uniform" else 1.0]
    if exponent < 0:
        raise ValueError(f"exponent {exponent} in {distribution!r}: expected 0 or more")
    weights = ranks**-exponent
    return generator.choice(ranks.size, size=count, p=weights / weights.sum()).astype(np.int64)


def _parse(distribution: str, metric: Metric) -> tuple[str, list[float]]:
    """Return a distribution's name and parameters; raise ValueError if a metric has none such."""
    name, _, parameter_text = distribution.partition(":")
    distributions = OF_NUMBERS if metric.domain.of_numbers else OF_CATEGORIES
    if name not in distributions:
        raise ValueError(
            f"distribution {name!r} for kind {metric.kind!r}: {meant(name, distributions)}"
        )
    try:
        parameters = [float(part) for part in parameter_text.split(",")] if parameter_text else []
    except ValueError:
        parameters = [math.nan]
    if len(parameters) not in PARAMETER_COUNTS[name] or not np.isfinite(parameters).all():
        raise ValueError(f"distribution {distribution!r}: expected {distributions[name]}")
    return name, parameters
