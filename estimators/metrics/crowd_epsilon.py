"""The epsilon of a report in a metric's crowd, which is smaller than that of its level."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from estimators.metrics.crowd import LARGEST_CROWD, Crowd
from estimators.metrics.metric import Metric
from estimators.rounding import loss
from estimators.shuffling.amplification import shuffled_epsilon
from estimators.shuffling.set_laws import SetLaw

EPSILON_DIGITS = 3


def crowd_epsilon(metric: Metric) -> float | None:
    """Return the epsilon of a report that hides among the honest reports of the smallest crowd.

    It is proved together with the crowd's `delta`, for the reports of one pane: for a person who
    reports in w panes, both are w times as large. It is rounded up to three significant digits.

    Returns
    -------
    float or None
        None if there is no crowd, or if no epsilon below that of the level is proved.

    Examples
    --------
    >>> from estimators import define
    >>> late = define(name="late", kind="mean", mechanism="randomized_response", range=(0, 1),
    ...               levels=[3], lateness="1d", crowd={"minimum": 10_000, "wait": "12h"})
    >>> crowd_epsilon(late)
    0.232
    """
    if metric.crowd is None:
        return None
    laws = tuple(metric.randomizer.set_laws(0))
    epsilon = _epsilon(laws, metric.crowd.honest, metric.crowd.delta)
    return epsilon if epsilon < metric.levels[0] else None


def crowd_warnings(metrics: Iterable[Metric]) -> list[str]:
    """Return a warning for each metric whose crowd proves nothing, with what to change."""
    return [
        f"metric {metric.name!r}: a crowd of {crowd.minimum} proves no epsilon below "
        f"{metric.levels[0]:g}, which each report has without it: expected "
        f"{_larger_minimum(metric, crowd)}a lower level (`dither audit {metric.name} "
        "--shuffled N` shows what N honest reports prove)"
        for metric in metrics
        if (crowd := metric.crowd) is not None and crowd_epsilon(metric) is None
    ]


def _larger_minimum(metric: Metric, crowd: Crowd) -> str:
    laws, minimum = tuple(metric.randomizer.set_laws(0)), 2 * crowd.minimum
    while minimum <= LARGEST_CROWD:
        larger = dataclasses.replace(crowd, minimum=minimum)
        if larger.size_fault(metric.randomizer.width):
            break
        if _epsilon(laws, larger.honest, crowd.delta) < metric.levels[0]:
            return f"minimum = {minimum}, or "
        minimum *= 2
    return ""


@functools.lru_cache(maxsize=1024)
def _epsilon(laws: Sequence[SetLaw], reports: int, delta: float) -> float:
    return float(loss(shuffled_epsilon(laws, reports, delta), EPSILON_DIGITS))
