"""Checks an application's values, charges the ledger, and randomizes them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.errors import shortened
from estimators.exact.randomness import Bits
from estimators.mechanisms.mechanism import Reports
from estimators.metrics.categories import OPEN_VOCABULARY, Vocabulary
from estimators.metrics.denial import Deny
from estimators.metrics.domains import as_numbers, refuse_misread
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.metrics.reported import ReportedMetric

if TYPE_CHECKING:
    from producers.ledger.ledger import Ledger


def check_metric(metric: object) -> None:
    """Raise TypeError for what is given in place of a metric, with what is expected.

    Examples
    --------
    >>> check_metric("late")
    Traceback (most recent call last):
    TypeError: metric = 'late': expected a Metric, as in load_metrics('metrics.toml')['late']
    """
    if isinstance(metric, Metric):
        return
    shown = f"metric = {metric!r:.200}"
    hint = "load_metrics('metrics.toml')['NAME'], or define(name=..., kind=..., ...)"
    if isinstance(metric, Mapping):
        names = [str(name) for name, candidate in metric.items() if isinstance(candidate, Metric)]
        shown = f"metric is a {type(metric).__name__}"
        if names:
            shown = f"metric is a {type(metric).__name__} of {len(names)} metrics"
            hint = f"metrics[{names[0]!r}]"
        elif "kind" in metric:
            hint = "define(name='NAME', **definition) of estimators"
    elif isinstance(metric, str | PurePath):
        text = str(metric)
        is_file = isinstance(metric, PurePath) or text.endswith(".toml") or "/" in text
        file, name = (text, "NAME") if is_file else ("metrics.toml", text)
        hint = f"load_metrics({file!r})[{name!r}]"
    raise TypeError(f"{shown}: expected a Metric, as in {hint}")


def values_of(metric: Metric, value: ArrayLike) -> NDArray[Any]:
    """Return the application's values as an array of values, or of rows.

    Raises
    ------
    ValueError
        If it has another shape than the metric's values, or something is not a number.
    """
    dimension = metric.dimension
    refuse_misread(value, f"values of {metric.name!r}")
    try:
        values = metric.domain.as_array(value)
    except ValueError:  # rows of different lengths
        expected = "a flat array" if dimension is None else f"rows of {dimension} numbers"
        raise ValueError(
            f"values {shortened(value)} of {metric.name!r}: expected {expected}"
        ) from None
    if metric.domain.of_numbers or dimension is not None:
        values = as_numbers(values, metric.name)
    if dimension is not None:
        if values.ndim not in (1, 2) or values.shape[-1] != dimension:
            raise ValueError(
                f"values of shape {values.shape} for {metric.name!r}: "
                f"expected one vector of {dimension} numbers or rows of them"
            )
        return values.reshape(-1, dimension)
    if values.ndim > 1:
        raise ValueError(
            f"values of shape {values.shape} for {metric.name!r}: "
            "expected one value or a flat array of them"
        )
    return values.reshape(-1)


def rules_of(metric: Metric, app_rule: Deny | None) -> tuple[Deny, ...]:
    """Return what decides which strings are not reported: the application's rule, the metric's.

    Raises
    ------
    ValueError
        If the application has a rule, and the metric is not one of strings.
    """
    domain = metric.domain
    if app_rule is not None and not isinstance(domain, Vocabulary):
        raise ValueError(
            f"deny for {metric.name!r}: expected a metric of strings, "
            f"with categories = {OPEN_VOCABULARY!r}"
        )
    rules = (app_rule, domain.deny_rule if isinstance(domain, Vocabulary) else None)
    return tuple(rule for rule in rules if rule is not None)


def randomized(
    metric: ReportedMetric,
    values: NDArray[Any],
    level: NDArray[np.uint8],
    times: NDArray[np.int64],
    ledger: Ledger | None,
    permanent: float | None,
    changes: int,
    bits: Bits | None,
) -> Reports:
    """Return the reports of values; with a ledger, after charging it.

    Parameters
    ----------
    metric, values, level, times
        With n rows: values, level indices and event times in ms.
    ledger, permanent, changes, bits
        As for :class:`producers.Reporter`.

    Raises
    ------
    ValueError
        If a value, or `permanent`, cannot be used.
    BudgetSpent, DefinitionChanged, AlreadyAnswered, LedgerError
        As for the ledger.
    """
    memoized = isinstance(metric, LocalMetric) and metric.memoized
    if permanent is not None and (ledger is None or not memoized):
        raise ValueError(
            f"permanent = {permanent} for {metric.name!r}: expected a ledger, which keeps the "
            "answers, and a metric with `memoized = true`"
        )
    if ledger is None or metric.sends_true_values:
        return metric.randomize(values, level, bits)
    if memoized:
        from producers.ledger.permanent_answers import repeat_or_draw

        answers = None if permanent is None else Fraction(str(permanent))
        return repeat_or_draw(ledger, metric, values, level, times, answers, changes, bits)
    metric.domain.to_unit(values)  # what cannot be reported costs nothing
    epsilons = metric.randomizer.epsilons
    counts = np.bincount(level, minlength=len(epsilons)).tolist()
    cost = sum(epsilon * count for epsilon, count in zip(epsilons, counts, strict=True))
    ledger.spend(metric.name, Fraction(cost), len(values), fingerprint=metric.fingerprint)
    return metric.randomize(values, level, bits)
