"""The epsilon that a metric's crowd adds to its level."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from estimators.errors import explain_missing_scipy
from estimators.metrics.metric import Metric
from estimators.rounding import loss
from estimators.shuffling.crowds import shuffled_epsilon
from estimators.shuffling.set_laws import SetLaw

EPSILON_DIGITS = 3


@explain_missing_scipy("the epsilon of a crowd")
def crowd_epsilon(metric: Metric) -> float | None:
    """Return the epsilon of a report among the honest ones of a metric's smallest crowd.

    It holds with the crowd's `delta`, for the reports of one pane: a person who reports in w panes
    has w times both. It is proved, and rounded up to three digits.

    Returns
    -------
    float or None
        None if there is no crowd, or if nothing below the level is proved.

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


@functools.lru_cache(maxsize=1024)
def _epsilon(laws: Sequence[SetLaw], reports: int, delta: float) -> float:
    return float(loss(shuffled_epsilon(laws, reports, delta), EPSILON_DIGITS))
