"""Checks that a reporter gets a metric, and everything that the metric's reports need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from estimators.metrics.categories import OPEN_VOCABULARY, Vocabulary
from estimators.metrics.denial import Deny
from estimators.metrics.metric import Metric


def check_metric(metric: object) -> None:
    """Raise TypeError, which says what is expected, if a value is not a metric.

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


def check_relay(metric: Metric, *, has_relay: bool) -> None:
    """Raise ValueError if a metric's reports need a relay, and there is none."""
    if metric.crowd is not None and not has_relay:
        raise ValueError(
            f"not_sealed: metric {metric.name!r} has a crowd, so its reports go to a relay: "
            "expected HttpReporter(..., relay=URL, key=DIGITS), with the public key's digits"
        )


def check_ledger(metric: Metric, ledger: object) -> None:
    """Raise ValueError if a metric with a crowd has no ledger."""
    if ledger is None:
        raise ValueError(
            f"metric {metric.name!r} has a crowd, in which a person reports once a pane: expected "
            "a ledger, which remembers it"
        )


def rules_of(metric: Metric, app_rule: Deny | None) -> tuple[Deny, ...]:
    """Return the rules of the application and of the metric for strings that are not reported.

    Raises ValueError if the application has a rule, and the metric's values are not strings.
    """
    domain = metric.domain
    if app_rule is not None and not isinstance(domain, Vocabulary):
        raise ValueError(
            f"deny for {metric.name!r}: expected a metric of strings, "
            f"with categories = {OPEN_VOCABULARY!r}"
        )
    rules = (app_rule, domain.deny_rule if isinstance(domain, Vocabulary) else None)
    return tuple(rule for rule in rules if rule is not None)
