"""The state of an alarm in Redis, a function of the log and the definitions."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from aggregator.features.alarms.answers import AlarmRaised, Baseline
from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.lazy_log import LazyLog
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from estimators import Metric
from producers.wire.decoding import decode_msgpack

MAX_STORED_RAISED = 100
"""The most events that an alarm's state has."""

log = LazyLog("dither.alarms")


class SeriesState(msgspec.Struct, kw_only=True):
    """A series: the sums of its baseline, the detector's state, and the results of its last step.

    Attributes
    ----------
    baseline : bytes or None
        int64, little-endian; None if the definition states the baseline, or before it is final.
    detector : bytes or None
        None if the series is not watched, or not yet.
    known : Baseline or None
        The value of the baseline, for readers.
    reason : str
        Why the series cannot be watched; empty if it can.
    """

    baseline: bytes | None = None
    detector: bytes | None = None
    known: Baseline | None = None
    evidence: float | None = None
    smallest_shift: float | None = None
    panes: int = 0
    alarms: int = 0
    reason: str = ""


class StoredAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm: the next pane, and its series in the order of slices and categories."""

    next_ms: int
    skipped: int = 0
    is_learning: bool
    series: list[SeriesState]
    raised: list[AlarmRaised] = []
    reason: str = ""


def identity(definition: AlarmDefinition, metric: Metric) -> str:
    """Return an alarm's name with a 32-bit hash of the definitions that its state depends on."""
    slicing = "" if metric.slicing is None or not definition.sliced else metric.slicing.key
    text = f"{definition.key} {metric_key(metric.name, metric.revision)} {slicing}"
    return f"{definition.name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def state_key(topic: str, alarm: str) -> str:
    """Return the key of an alarm's state; `alarm` is its :func:`identity`."""
    return f"{publisher_key(topic)}:alarm:{alarm}"


def read_state(store: Store, alarm: str) -> StoredAlarm | None:
    """Return the stored state of an alarm, by its :func:`identity`; None if it is unusable."""
    state: Any = store.client.get(state_key(store.topic, alarm))
    if state is None:
        return None
    try:
        return decode_msgpack(state, StoredAlarm)
    except ValueError as error:
        log.warning("state of an alarm is unreadable", alarm=alarm, error=str(error))
        return None
