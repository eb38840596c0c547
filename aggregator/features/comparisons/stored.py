"""The state of a living comparison in Redis, a function of the log and the definitions."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.features.comparisons.answers import ComparedArm
from aggregator.features.comparisons.definitions import ComparisonDefinition
from aggregator.lazy_log import LazyLog
from aggregator.reading.serialization import Moment, Numbers
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from estimators import LocalMetric
from producers.wire.decoding import decode_msgpack

log = LazyLog("dither.comparisons")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison as it stood at the end of a final pane, with the reports of both arms."""

    at: Moment
    value: Numbers
    lower: Numbers
    upper: Numbers
    reports: tuple[int, int]


class ComparisonDecided(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a comparison's event: its arms are proved to be different.

    `at` is the end of the first final pane at which 0 (for a ratio: 1) is outside of `lower` and
    `upper`. The numbers are those of all final panes from the start to `at`. `incomplete` is the
    number of these panes some of whose reports are in no table of slices. Each category or
    coordinate has a separate event; the bounds hold for all together. The estimate at the time of a
    decision is too large on average; the bounds are not.
    """

    comparison: str
    metric: str
    unit: str
    of: str
    category: str | UnsetType = UNSET
    at: Moment
    value: Numbers
    lower: Numbers
    upper: Numbers
    p_value: Numbers
    bound: str
    beta: float
    covers: str
    law: str
    split: float | None
    a: ComparedArm
    b: ComparedArm
    rest: bool
    incomplete: int = 0


class StoredComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison: the next pane, and the sums of both arms from the start up to it.

    Attributes
    ----------
    sums : tuple of bytes
        int64, little-endian.
    incomplete : int
        The number of panes with reports in no table of slices.
    stride : int
        The number of panes between two looks in `history`.
    """

    next_ms: int
    sums: tuple[bytes, bytes]
    incomplete: int
    stride: int
    history: list[Look]
    decided: list[ComparisonDecided]


def identity(definition: ComparisonDefinition, *metrics: LocalMetric) -> str:
    """Return a comparison's name with a 32-bit hash of the definitions that it depends on."""
    keys = [metric_key(metric.name, metric.revision) for metric in metrics]
    keys += ["" if metric.slicing is None else metric.slicing.key for metric in metrics]
    text = " ".join((definition.key, *keys))
    return f"{definition.name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def state_key(topic: str, comparison: str) -> str:
    """Return the key of a comparison's state; `comparison` is its :func:`identity`."""
    return f"{publisher_key(topic)}:comparison:{comparison}"


def read_state(store: Store, comparison: str) -> StoredComparison | None:
    """Return the stored state of a comparison, by its :func:`identity`; None if it is unusable."""
    state: Any = store.client.get(state_key(store.topic, comparison))
    if state is None:
        return None
    try:
        return decode_msgpack(state, StoredComparison)
    except ValueError as error:
        log.warning("state of a comparison is unreadable", name=comparison, error=str(error))
        return None
