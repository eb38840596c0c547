"""Releases of metrics that are collected in trust, as they are kept and read back.

A release is drawn once. Its one durable record is the final event on the estimates topic; Redis has
a copy of the event's data, which alone is ever shown. Nothing here reads a sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from aggregator.errors import StateUnreadable
from aggregator.storage import parsing
from aggregator.storage.redis_keys import final_key, publisher_key, release_key
from estimators import Metric, TrustedMetric
from estimators.estimate import Estimate, Floats

if TYPE_CHECKING:
    from aggregator.storage.store import Store

CENTRAL = "central"
Number = float | None
Numbers = Number | list[Number]


class _Level(msgspec.Struct, frozen=True):
    epsilon: float
    reports: int
    weight: Number
    loss: Number


class _Told(msgspec.Struct, frozen=True):
    """The part of a release's event that an estimate is made of."""

    status: str
    value: Numbers
    lower: Numbers
    upper: Numbers
    reports: int
    effective_reports: Number
    beta: float
    bound: str
    target: str
    policy: str
    levels: list[_Level]
    saturation: Number
    categories: list[str] = []


class _Kind(msgspec.Struct, frozen=True):
    """The part of an event's data that says whether it is a release."""

    trust: str = "local"


_told, _kind = msgspec.json.Decoder(_Told), msgspec.json.Decoder(_Kind)


def is_release(data: bytes) -> bool:
    """Return whether the data of a final event is a release.

    Examples
    --------
    >>> is_release(b'{"metric": "pay", "trust": "central"}'), is_release(b'{"metric": "age"}')
    (True, False)
    """
    try:
        return _kind.decode(data).trust == CENTRAL
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


@dataclasses.dataclass(frozen=True)
class Release:
    """A release that is on the estimates topic, and what it says.

    Attributes
    ----------
    start_ms : int
        Where its pane begins.
    estimate : Estimate
        With its status, `privacy` and `saturation`. NaN for categories that the event was too
        small for.
    """

    start_ms: int
    estimate: Estimate

    @classmethod
    def read(cls, key: str, start_ms: int, data: bytes, metric: Metric) -> Release:
        """Return the release that an event's data is.

        Raises
        ------
        StateUnreadable
            If it is none of this metric.
        """
        try:
            told = _told.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateUnreadable(key, str(error), "a release") from None
        epsilons = [level.epsilon for level in told.levels]
        own = {label: index for index, label in enumerate(metric.labels)}
        if epsilons != [float(e) for e in metric.levels] or not own.keys() >= {*told.categories}:
            raise StateUnreadable(key, "another definition", f"a release of {metric.name!r}")
        places = [own[label] for label in told.categories]

        def numbers(x: Numbers) -> Any:
            if not isinstance(x, list):
                return np.nan if x is None else x
            found = np.full(len(own), np.nan)
            found[places] = _floats(x)
            return found

        return cls(
            start_ms,
            Estimate(
                value=numbers(told.value),
                lower=numbers(told.lower),
                upper=numbers(told.upper),
                reports=told.reports,
                effective_reports=float(_floats([told.effective_reports])[0]),
                beta=told.beta,
                bound=told.bound,
                target=told.target,
                policy=told.policy,
                levels=tuple(epsilons),
                counts=np.array([level.reports for level in told.levels], dtype=np.int64),
                weights=_floats([level.weight for level in told.levels]),
                privacy=_floats([level.loss for level in told.levels]),
                saturation=told.saturation,
                labels=tuple(metric.labels),
                status=told.status,
            ),
        )


class Releases:
    """The releases of a deployment that may be shown: those that are on the estimates topic.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store, self._prefix = store, publisher_key(store.topic)

    def latest(
        self, metric: Metric, key: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> Release | None:
        """Return the latest release of a metric whose pane begins in [start, end)."""
        return next(iter(self.newest(metric, key, start_ms, end_ms, 1)), None)

    def newest(
        self, metric: Metric, key: str, start_ms: int | None, end_ms: int | None, most: int
    ) -> list[Release]:
        """Return the newest releases of panes that begin in [start, end), the oldest first.

        Those that have expired are left out.
        """
        finals = final_key(self._prefix, key)
        low, high = _edges(start_ms, end_ms)
        words = (high, low, "BYSCORE", "REV", "LIMIT", 0, most)
        (members,) = self._store.ask([("ZRANGE", finals, *words)])
        starts = [parsing.integer(finals, one, 0) for one in reversed(members)]
        if not starts:
            return []
        names = [release_key(self._prefix, key, start) for start in starts]
        (found,) = self._store.ask([("MGET", *names)])
        return [
            Release.read(name, start, data, metric)
            for name, start, data in zip(names, starts, found, strict=True)
            if data is not None
        ]


def none_yet(metric: Metric, policy: str) -> Estimate:
    """Return what is known of a trusted metric before its first release: its definition."""
    nothing = TrustedMetric.require(metric).release(metric.zero(), weights=policy)
    return dataclasses.replace(nothing, status="not_ready")


def answered(
    metric: Metric,
    release: Estimate,
    beta: float,
    weights: str | None,
    bound: str,
    target: str,
    categories: Sequence[str | int] | None,
    simultaneous: bool,
) -> Estimate:
    """Return a release, or some of its categories, as an answer to what is asked.

    Raises
    ------
    ValueError
        If anything else is asked than was drawn: a release is drawn once.
    """
    questions: list[tuple[str, object, object]] = [
        ("beta", beta, release.beta),
        ("weights", weights or release.policy, release.policy),
        ("bound", "fixed" if bound == "auto" else bound, release.bound),
        ("target", target, release.target),
        ("pointwise", not simultaneous, False),
    ]
    for name, asked, drawn in questions:
        if asked != drawn:
            raise ValueError(
                f"{name} = {asked!r}: metric {metric.name!r} is collected in trust, and a release "
                f"is drawn once: expected {drawn!r}"
            )
    if categories is None:
        return release
    labels, _ = metric.domain.select(categories)
    which = [release.labels.index(label) for label in labels]
    value, lower, upper = (
        np.asarray(x)[which] for x in (release.value, release.lower, release.upper)
    )
    return dataclasses.replace(release, value=value, lower=lower, upper=upper, labels=labels)


def _edges(start_ms: int | None, end_ms: int | None) -> tuple[str, str]:
    low = "-inf" if start_ms is None else str(start_ms)
    return low, "+inf" if end_ms is None else f"({end_ms}"


def _floats(numbers: Sequence[Number]) -> Floats:
    return np.array([np.nan if x is None else x for x in numbers], dtype=np.float64)
