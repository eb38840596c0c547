"""Events on the estimates topic: CloudEvents 1.0, in Kafka's binary mode.

An event is a function of what was counted, of the policy of weights and of the settings: whoever
publishes it, and whenever, its id and its bytes are the same. So are those of a release once it was
drawn.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from aggregator.feature import EventType, features
from aggregator.kafka.headers import read
from aggregator.publishing.connect_schemas import enveloped, without_envelope
from aggregator.reading.discovered_strings import DiscoveryAnswer, pane_discovery
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import Answer, answer
from aggregator.reading.slices.answers import FinalAnswer, final_answer
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.windows import Window
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from aggregator.timestamps import iso
from producers.wire.decoding import decode_json

if TYPE_CHECKING:
    from estimators import Estimate

FINAL = "dither.estimate.final"
PROVISIONAL = "dither.estimate.provisional"
CONTENT_TYPE = "application/json"
MAX_BYTES = 900_000
"""Of an event's data: librdkafka, brokers and consumers take about 1 MB unless told otherwise."""
DIGEST_BYTES = 12


class _Policy(msgspec.Struct, frozen=True):
    policy: str


def feature_event_types() -> dict[str, EventType]:
    """Return the types of events that features publish, by name."""
    return {kind.name: kind for feature in features() for kind in feature.event_types()}


def data_types() -> dict[str, type[msgspec.Struct]]:
    """Return the struct of an event's data, by the event's type."""
    of_features = {name: kind.data for name, kind in feature_event_types().items()}
    return {FINAL: FinalAnswer, PROVISIONAL: Answer, **of_features}


@dataclasses.dataclass(frozen=True)
class Event:
    """A CloudEvent, as it goes to Kafka.

    Attributes
    ----------
    id, type, source, subject, time : str
        The attributes of CloudEvents: `subject` is the name of the metric, or of what a feature
        defines; `time` a pane's end, or when the last report that is counted reached Kafka.
    key : str
        The message's key: the metric for a running total, the metric and the pane for a final
        event, the id for an event of a feature. So compaction keeps the newest running total, and
        every other event.
    data : bytes
        The answer, in JSON.
    """

    id: str
    type: str
    source: str
    subject: str
    time: str
    key: str
    data: bytes

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """The message's headers."""
        return [
            ("ce_specversion", b"1.0"),
            ("ce_id", self.id.encode()),
            ("ce_source", self.source.encode()),
            ("ce_type", self.type.encode()),
            ("ce_time", self.time.encode()),
            ("ce_subject", self.subject.encode()),
            ("content-type", CONTENT_TYPE.encode()),
        ]

    @property
    def enveloped(self) -> bytes:
        """The data with the schema for Kafka Connect: ``{"schema": ..., "payload": ...}``."""
        return enveloped(self.type, data_types()[self.type], self.data)

    @classmethod
    def parse(cls, message: Any) -> Self | None:
        """Return the event that a message is, whether in an envelope; None if it is none."""
        try:
            found = {n: v.decode() for n, v in read(message) or [] if isinstance(v, bytes)}
            return cls(
                found["ce_id"],
                found["ce_type"],
                found["ce_source"],
                found.get("ce_subject", ""),
                found.get("ce_time", ""),
                message.key().decode(),
                without_envelope(message.value() or b""),
            )
        except (KeyError, ValueError, AttributeError):
            return None


def source(reports_topic: str) -> str:
    """Return where the events of a deployment come from."""
    return f"/dither/{reports_topic}"


def pane_key(metric: str, start_ms: int) -> str:
    """Return the message key of a pane's final event.

    Examples
    --------
    >>> pane_key("delay@0000001f", 1_357_002_000_000)
    'delay@0000001f/2013-01-01T01:00:00Z'
    """
    return f"{metric}/{iso(start_ms)}"


def final(
    window: Window,
    top: int,
    origin: str,
    slices: Sequence[Slices] = (),
    strings: DiscoveryAnswer | None = None,
) -> Event:
    """Return the event of a pane that is final.

    When its last report arrived is left out: the store knows that of the metric, not of the pane.

    Parameters
    ----------
    window : Window
        One pane.
    top : int
        Categories, coordinates or strings to tell at most.
    origin : str
        The CloudEvent's source.
    slices : sequence of Slices
        Of the stretch that ends with the pane.
    strings : DiscoveryAnswer, optional
        What was found in the pane.
    """
    shown = dataclasses.replace(window, arrived_ms=NO_TIME)
    data = _data(shown, MetricReader.answer(shown), top, slices, strings)
    return _final(window, window.policy, data, origin)


def _final(window: Window, policy: str, data: bytes, origin: str) -> Event:
    assert window.start_ms is not None  # noqa: S101
    key = metric_key(window.metric.name, window.metric.revision)
    place = pane_key(key, window.start_ms)
    time = iso(window.end_ms)
    assert time is not None  # noqa: S101
    identity = f"{place}/final/{policy}"
    return Event(identity, FINAL, origin, window.metric.name, time, place, data)


def released(window: Window, data: bytes, origin: str) -> Event:
    """Return the event of a release that was drawn: `data` is its answer, as :func:`drawn` has it.

    Whose weights they are that it was drawn with, is in the data.

    Parameters
    ----------
    window : Window
        One pane.
    data : bytes
        The release's answer, in JSON.
    origin : str
        The CloudEvent's source.
    """
    return _final(window, decode_json(data, _Policy).policy, data, origin)


def drawn(window: Window, found: Estimate) -> bytes:
    """Return a release as an event tells it, with all categories that there is room for."""
    return _data(window, found, max(1, len(found.labels)))


def provisional(window: Window, top: int, origin: str) -> Event:
    """Return the event of a running total: its id is that of its contents.

    Parameters
    ----------
    window : Window
        The running total.
    top : int
        Categories or coordinates to tell at most.
    origin : str
        The CloudEvent's source.
    """
    metric = window.metric
    data = _data(window, MetricReader.answer(window), top)
    digest = hashlib.sha256(data).hexdigest()[: 2 * DIGEST_BYTES]
    time = iso(window.arrived_ms)
    assert time is not None  # noqa: S101
    identity = f"{metric_key(metric.name, metric.revision)}/provisional/{digest}"
    return Event(identity, PROVISIONAL, origin, metric.name, time, metric.name, data)


def _data(
    window: Window,
    found: Estimate,
    top: int,
    slices: Sequence[Slices] = (),
    strings: DiscoveryAnswer | None = None,
) -> bytes:
    """Return an answer in JSON; with fewer slices, then categories, if Kafka refused it.

    Parameters
    ----------
    window : Window
    found : Estimate
    top : int
        Categories, coordinates or strings at most.
    slices : sequence of Slices
    strings : DiscoveryAnswer, optional
    """
    most = max((len(one.slices) for one in slices), default=0)
    while True:
        shown = answer(window, found, top)
        if slices or strings:
            discovery = None if strings is None else pane_discovery(strings, top)
            shown = final_answer(shown, [one.first(most) for one in slices], discovery)
        data = msgspec.json.encode(shown)
        if len(data) <= MAX_BYTES or (top <= 1 and not most):
            return data
        if most:
            most //= 2
        else:
            top //= 2
