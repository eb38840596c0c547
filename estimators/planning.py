"""How wide bounds will be, and by which tickets devices best share a budget between metrics.

Widths come from the metric's own code: synthetic values are randomized, summed and estimated.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from estimators.distribution import DistributionEstimate
from estimators.estimate import Array, Estimate, Floats, Integers
from estimators.exact.randomness import SeededBits
from estimators.extremes import Progress
from estimators.limits import LEVEL_DIGITS
from estimators.metrics.categories import OPEN_VOCABULARY, Categories
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric, ReportedMetric
from estimators.metrics.search import SearchMetric
from estimators.metrics.trusted import TrustedMetric

SAMPLE_REPORTS = 20_000
"""The most synthetic reports that are drawn. For more reports, their sums are multiplied."""
MOST_DEVICES = 200_000
"""The most synthetic reports of a distribution, whose sums are not multiplied, and the most
synthetic devices of a search."""
MAX_STRINGS = 10
"""The most strings that synthetic devices hold; each is held by a tenth of them."""
MOST_REPORTS = 1e12
STEPS_A_DECADE = 2
FINEST_LEVEL = 0.0001
MOST_TICKETS = 400
LARGEST_LOSS = 1.03
"""A plan with small whole tickets needs at most this many times the least number of devices."""


def synthetic_values(metric: Metric, count: int) -> Array:
    """Return `count` values: numbers uniform on the range, categories equally frequent."""
    domain, generator = metric.domain, np.random.default_rng(20_261_129)
    if domain.of_numbers:
        high, low = domain.opposite
        values: Array = generator.uniform(low, high, count)
    elif metric.categories == OPEN_VOCABULARY:
        values = generator.choice(np.array(strings_of(metric), dtype=object), count)
    elif metric.dimension is not None:
        values = generator.uniform(-1, 1, (count, metric.dimension))
    elif isinstance(domain, Categories):
        values = domain.from_indices(generator.integers(len(domain.labels), size=count))
    else:  # a kind of another distribution
        values = np.array([*domain.opposite] * -(-count // 2))[:count]
    return values


def strings_of(metric: Metric) -> list[str]:
    """Return the strings that synthetic devices hold: those on watch, or invented ones."""
    return [*metric.labels, *(f"word {number}" for number in range(MAX_STRINGS))][:MAX_STRINGS]


def half_width(
    metric: Metric,
    epsilon: float,
    reports: float,
    sums: dict[tuple[float, int], Integers] | None = None,
) -> float:
    """Return half of the width of the 95% bounds, in the metric's unit.

    If there are several numbers, the widest bounds count: for a distribution, those of its
    cumulative shares; for a metric with shares among, those of these shares.

    Parameters
    ----------
    metric : Metric
        The metric, whose code computes the width.
    epsilon : float
        The level of all reports; the definition need not have it.
    reports : float
        The number of reports; for a minimum or maximum, the number of devices.
    sums : dict, optional
        A cache for the sums of synthetic reports, by epsilon and number of reports.

    Examples
    --------
    >>> from estimators import define
    >>> late = define(name="late", kind="mean", mechanism="randomized_response", range=(0, 1),
    ...               levels=[1])
    >>> round(half_width(late, 1, 10_000), 3)
    0.021
    """
    metric = _with_level(metric, epsilon)
    if isinstance(metric, SearchMetric):
        return _width(_searched(metric, int(min(reports, MOST_DEVICES))))
    assert isinstance(metric, ReportedMetric)  # noqa: S101
    is_distribution = metric.domain.names == "quantiles"
    count = int(max(1, min(reports, MOST_DEVICES if is_distribution else SAMPLE_REPORTS)))
    copies = 1 if is_distribution else max(1, round(reports / count))  # copied bands would cross
    sums, key = {} if sums is None else sums, (epsilon, count)
    if key not in sums:
        sums[key] = _sums(metric, count)
    statistic = copies * sums[key]
    if isinstance(metric, TrustedMetric):
        estimate = metric.release(statistic, SeededBits(1))
    else:
        assert isinstance(metric, LocalMetric)  # noqa: S101
        is_open = metric.categories == OPEN_VOCABULARY
        names = strings_of(metric) if is_open else metric.share_names
        estimate = metric.estimate(statistic, categories=names or None)
    return _width(estimate) * math.sqrt(copies * count / max(1, reports))


def _with_level(metric: Metric, epsilon: float) -> Metric:
    """Return the metric with the single level `epsilon`, and without slices."""
    if isinstance(metric, LocalMetric) and (metric.by or metric.attributes):
        metric = dataclasses.replace(metric, by=(), attributes={})
    return metric if metric.levels == (epsilon,) else dataclasses.replace(metric, levels=(epsilon,))


def _sums(metric: ReportedMetric, count: int) -> Integers:
    statistic, level = metric.zero(), np.zeros(count, dtype=np.uint8)
    reports = metric.randomize(synthetic_values(metric, count), level, SeededBits(count))
    metric.accumulate(statistic, level, reports)
    return statistic


def _searched(metric: SearchMetric, devices: int) -> Estimate:
    """Return the estimate of a search after all its rounds, with synthetic devices."""
    search, progress, bits = metric.search, Progress(()), SeededBits(devices)
    values = synthetic_values(metric, devices)
    is_split = metric.split == "users"
    own_rounds = search.own_round(devices, bits) if is_split else np.zeros(devices)
    while not search.finished(progress):
        answering = values[own_rounds == len(progress.decisions)] if is_split else values
        level, statistic = np.zeros(answering.size, dtype=np.uint8), search.zero()
        threshold = search.threshold(progress)
        search.accumulate(statistic, level, search.answer(answering, level, threshold, bits))
        progress = search.decide(progress, statistic)
    return search.estimate(progress)


def _width(estimate: Estimate) -> float:
    lower, upper = estimate.lower, estimate.upper
    if isinstance(estimate, DistributionEstimate):
        lower, upper = estimate.cdf_lower, estimate.cdf_upper
    return float(np.max(np.asarray(upper) - np.asarray(lower))) / 2


@dataclasses.dataclass(frozen=True)
class Wish:
    """A metric of a plan: how wide its bounds may be, and how many devices have a report for it.

    Attributes
    ----------
    metric : Metric
        The planned metric.
    within : float or None
        The wished half-width of the bounds, in the metric's unit; None if they should be as narrow,
        relative to the range, as those of the other metrics.
    happens : float
        The share of devices that have something to report in a turn, above 0 and at most 1.
    """

    metric: Metric
    within: float | None = None
    happens: float = 1.0

    @property
    def name(self) -> str:
        """The metric's name."""
        return self.metric.name

    @property
    def scale(self) -> float:
        """The wished half-width; if there is none, the width of the range."""
        if self.within is not None:
            return self.within
        low, high = self.metric.domain.ends
        return 1.0 if self.metric.domain.names == "quantiles" else high - low

    def level_for(self, budget: float) -> float | None:
        """Return the largest level that a budget affords; None if there is none."""
        return max((level for level in self.metric.levels if level <= budget), default=None)

    def width(self, epsilon: float, reports: float) -> float:
        """Return the half-width of the bounds; infinity below one report.

        It interpolates :func:`half_width`, computed at two numbers of reports in each decade.
        """
        if reports < 1:
            return math.inf
        step = STEPS_A_DECADE * math.log10(reports)
        ends = [self._width_at(epsilon, math.floor(step) + more) for more in (0, 1)]
        part = step - math.floor(step)
        return math.exp((1 - part) * math.log(ends[0]) + part * math.log(ends[1]))

    def needed(self, epsilon: float, width: float) -> float:
        """Return how many reports give bounds of half-width `width`; infinity if no number does."""
        return _root(functools.partial(self.width, epsilon), width, (1.0, MOST_REPORTS), 0.002)

    @functools.cached_property
    def sums(self) -> dict[tuple[float, int], Integers]:
        """The cache of sums of synthetic reports for :func:`half_width`."""
        return {}

    @functools.cached_property
    def _width_at(self) -> Callable[[float, int], float]:
        """A function that computes each width once, by level and step (s for 10^(s/2) reports)."""
        metric_at = functools.cache(functools.partial(_with_level, self.metric))

        def width(epsilon: float, step: int) -> float:
            reports = 10 ** (step / STEPS_A_DECADE)
            return max(1e-300, half_width(metric_at(epsilon), epsilon, reports, self.sums))

        return functools.cache(width)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a number of devices best share a budget between metrics.

    Attributes
    ----------
    tickets : dict of str to int
        The best tickets of a lottery.
    reports : dict of str to float
        The number of reports for each metric in a turn of the lottery.
    lottery, split, first_come : dict of str to float
        Half of the width of each metric's bounds, for three ways to spend the budget: the lottery;
        the best split; and first come: each metric, in the given order, takes its level while
        budget is left. Infinity if the metric has no reports.
    split_levels : dict of str to float
        The levels of the best split.
    needed : float
        The number of devices with which all wishes are fulfilled, with whole tickets. It is about
        `devices` if a metric has no wish.
    needed_split : float
        The number of devices that the best split needs for the same widths.
    """

    tickets: dict[str, int]
    reports: dict[str, float]
    lottery: dict[str, float]
    split: dict[str, float]
    first_come: dict[str, float]
    split_levels: dict[str, float]
    needed: float
    needed_split: float


def make_plan(wishes: Sequence[Wish], devices: int, budget: float) -> Plan:
    """Return the best plan for a lottery, and for two other ways of spending the budget.

    A metric's tickets are in proportion to the reports that it needs, divided by the share of
    devices that have something to report. `wishes`: the metrics; `devices`: the number of devices;
    `budget`: the epsilon of a device, at least the lowest level of each metric.

    Raises
    ------
    ValueError
        If a metric has no level that the budget affords.
    """
    levels = {}
    for wish in wishes:
        level = wish.level_for(budget)
        if level is None:
            raise ValueError(
                f"budget = {budget:g}: the lowest level of {wish.name!r} is "
                f"{min(wish.metric.levels):g}; expected a budget of at least that, or a level of "
                f"at most {budget:g} in its definition"
            )
        levels[wish.name] = level

    def shares(times: float) -> dict[str, float]:
        """Return how many devices must draw each metric for widths of `times` the wished ones."""
        return {w.name: w.needed(levels[w.name], times * w.scale) / w.happens for w in wishes}

    times = _root(lambda times: sum(shares(times).values()), devices)
    goal = times if any(wish.within is None for wish in wishes) else 1.0
    best = shares(goal)
    needed = sum(best.values())
    tickets = small_tickets(shares(times))
    if goal == 1 and math.isfinite(needed):
        enough = small_tickets(best)
        count = sum(enough.values())
        needed = float(math.ceil(max(best[name] * count / enough[name] for name in best)))
        tickets = enough if devices >= needed else tickets
    total = sum(tickets.values())
    reports = {w.name: devices * tickets[w.name] / total * w.happens for w in wishes}
    split_levels = best_split(wishes, devices, budget)
    first = first_come_reports(wishes, levels, devices, budget)

    def widths(epsilons: Mapping[str, float], counts: Mapping[str, float]) -> dict[str, float]:
        return {w.name: w.width(epsilons[w.name], counts[w.name]) for w in wishes}

    everybody = {wish.name: devices * wish.happens for wish in wishes}
    return Plan(
        tickets=tickets,
        reports=reports,
        lottery=widths(levels, reports),
        split=widths(split_levels, everybody),
        first_come=widths(levels, first),
        split_levels=split_levels,
        needed=needed,
        needed_split=_needed_split(wishes, budget, goal),
    )


def small_tickets(shares: Mapping[str, float]) -> dict[str, int]:
    """Return the smallest whole tickets that need at most 3% more devices than these shares.

    >>> small_tickets({"late": 100, "country": 620.0})
    {'late': 1, 'country': 6}
    """
    needed = sum(shares.values())
    for total in range(len(shares), MOST_TICKETS + 1):
        tickets = {name: max(1, round(total * share / needed)) for name, share in shares.items()}
        count = sum(tickets.values())
        losses = (share * count / (needed * tickets[name]) for name, share in shares.items())
        if max(losses) <= LARGEST_LOSS:
            break
    return tickets


def best_split(wishes: Sequence[Wish], devices: float, budget: float) -> dict[str, float]:
    """Return levels whose sum is at most the budget, with widths in proportion to the wishes.

    No level is above the largest level of its metric that the budget affords, as in a lottery.
    `wishes`, `devices`, `budget`: as for :func:`make_plan`.
    """
    lowest = max(FINEST_LEVEL, budget / len(wishes) / 16)

    def curve(wish: Wish) -> tuple[Floats, Floats]:
        highest = wish.level_for(budget) or budget
        grid = np.geomspace(min(lowest, highest), highest, 13)
        grid = np.unique(np.round(grid, LEVEL_DIGITS)).tolist()
        ratios = [wish.width(level, devices * wish.happens) / wish.scale for level in grid]
        # widths must fall with the level, even if the domain cuts them off
        return np.log(np.maximum.accumulate(ratios[::-1])[::-1]), np.log(grid)

    curves = {wish.name: curve(wish) for wish in wishes}

    def levels(times: float) -> dict[str, float]:
        return {
            name: float(np.exp(np.interp(-math.log(times), -widths, epsilons)))
            for name, (widths, epsilons) in curves.items()
        }

    times = _root(lambda times: sum(levels(times).values()), budget)
    return {
        name: max(FINEST_LEVEL, round(math.floor(level / FINEST_LEVEL) * FINEST_LEVEL, 4))
        for name, level in levels(times).items()
    }


def _needed_split(wishes: Sequence[Wish], budget: float, times: float) -> float:
    """Return how many devices the best split needs for widths of `times` the wished ones."""

    def ratio(devices: float) -> float:
        levels = best_split(wishes, devices, budget)
        return max(w.width(levels[w.name], devices * w.happens) / w.scale for w in wishes)

    return _root(ratio, times, (1e-6, MOST_REPORTS))


def first_come_reports(
    wishes: Sequence[Wish], levels: Mapping[str, float], devices: int, budget: float
) -> dict[str, float]:
    """Return the mean number of reports of each metric, if metrics are served in a fixed order.

    On each of the `devices`, the metrics that have something to report take their `levels` from the
    `budget` in the order of `wishes`; a metric whose level no longer fits is skipped. The events of
    different metrics are assumed to be independent.
    """
    spent, reports = {0.0: 1.0}, {}
    for wish in wishes:
        chances: dict[float, float] = {}
        level, fitting = levels[wish.name], 0.0
        for amount, chance in spent.items():
            fits = amount + level <= budget + FINEST_LEVEL / 2
            fitting += chance * fits
            paid = chance * wish.happens * fits
            chances[amount] = chances.get(amount, 0.0) + chance - paid
            total = round(amount + level, 4)
            chances[total] = chances.get(total, 0.0) + paid
        reports[wish.name], spent = devices * wish.happens * fitting, chances
    return reports


def _root(
    falling: Callable[[float], float],
    goal: float,
    ends: tuple[float, float] = (1e-6, 1e6),
    tolerance: float = 0.01,
) -> float:
    """Return the least argument, within a relative tolerance, with a function of at most `goal`.

    If there is none up to the larger of the `ends`, return that, or infinity if it is above 10^6.
    """
    if falling(ends[1]) > goal:
        return math.inf if ends[1] > 1e6 else ends[1]
    low, high = map(math.log, ends)
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if falling(math.exp(middle)) <= goal else (middle, high)
    return math.exp(high)
