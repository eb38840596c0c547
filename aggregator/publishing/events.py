"""Events on the estimates topic: CloudEvents 1.0, in Kafka's binary mode.

The counted reports, the policy of weights and the settings determine an event's id and bytes. A
release is drawn at random, too.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.feature import EventType, features
from aggregator.kafka.headers import read
from aggregator.publishing.connect_schemas import enveloped, without_envelope
from aggregator.reading.discovered_strings import DiscoveryAnswer, PaneDiscovery, pane_discovery
from aggregator.reading.serialization import Answer, answer
from aggregator.reading.slices.estimates import Slices, SlicesAnswer, slices_answer
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from aggregator.timestamps import iso
from producers.wire.decoding import decode_json

if TYPE_CHECKING:
    from estimators import Estimate

FINAL_TYPE = "dither.estimate.final"
PROVISIONAL_TYPE = "dither.estimate.provisional"
CONTENT_TYPE = "application/json"
HEADER_ATTRIBUTES = ("id", "source", "type", "time", "subject")
"""The attributes of CloudEvents that a message has as headers."""
MAX_EVENT_BYTES = 900_000
"""The most bytes of an event's data: by default librdkafka, brokers and consumers accept 1 MB."""
DIGEST_BYTES = 12


class FinalAnswer(Answer, frozen=True, kw_only=True):
    """The answer about a final pane, as its event contains it.

    `slices` is present if a whole stretch of `by_pane` ends with this pane, and `publish.slices`
    names the metric: it has the slices of this stretch for each grouping that the setting names.
    `discovery` is present if the metric discovers strings, unless `publish.unsearched` names it.
    """

    slices: list[SlicesAnswer] | UnsetType = UNSET
    discovery: PaneDiscovery | UnsetType = UNSET


class _Policy(msgspec.Struct, frozen=True):
    policy: str


def feature_event_types() -> dict[str, EventType]:
    """Return the features' types of events, by name."""
    return {kind.name: kind for feature in features() for kind in feature.event_types()}


def data_types() -> dict[str, type[msgspec.Struct]]:
    """Return the structs of events' data, by event type."""
    of_features = {name: kind.data for name, kind in feature_event_types().items()}
    return {FINAL_TYPE: FinalAnswer, PROVISIONAL_TYPE: Answer, **of_features}


@dataclasses.dataclass(frozen=True)
class Event:
    """A CloudEvent for Kafka.

    Attributes
    ----------
    id, type, source, subject, time : str
        The attributes of CloudEvents: `subject` is the name of the metric, or of a feature's
        definition; `time` is a pane's end, or the arrival of the last counted report in Kafka.
    key : str
        The message's key: the metric for a running total, the metric and the pane for a final
        event, the id for an event of a feature. So compaction keeps only the newest running total,
        but all events of other types.
    data : bytes
        The event's data, in JSON.
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
        """The headers of the Kafka message."""
        return [
            ("ce_specversion", b"1.0"),
            *((f"ce_{name}", getattr(self, name).encode()) for name in HEADER_ATTRIBUTES),
            ("content-type", CONTENT_TYPE.encode()),
        ]

    @property
    def enveloped(self) -> bytes:
        """The data in the envelope of Kafka Connect."""
        return enveloped(self.type, data_types()[self.type], self.data)

    @classmethod
    def parse(cls, message: Any) -> Self | None:
        """Return the event in a message, with or without envelope; None if there is none."""
        try:
            headers = {n: v.decode() for n, v in read(message) or [] if isinstance(v, bytes)}
            return cls(
                headers["ce_id"],
                headers["ce_type"],
                headers["ce_source"],
                headers.get("ce_subject", ""),
                headers.get("ce_time", ""),
                message.key().decode(),
                without_envelope(message.value() or b""),
            )
        except (KeyError, ValueError, AttributeError):
            return None


def source(reports_topic: str) -> str:
    """Return the CloudEvents attribute `source` of a deployment, given its reports topic."""
    return f"/dither/{reports_topic}"


def pane_key(metric: str, start_ms: int) -> str:
    """Return the message key of a pane's final event.

    Examples
    --------
    >>> pane_key("delay@0000001f", 1_357_002_000_000)
    'delay@0000001f/2013-01-01T01:00:00Z'
    """
    return f"{metric}/{iso(start_ms)}"


def final_event(
    window: Window,
    estimate: Estimate,
    top: int,
    origin: str,
    slices: Sequence[Slices] = (),
    strings: DiscoveryAnswer | None = None,
) -> Event:
    """Return the event of a final pane, without the arrival of its last report.

    `window`: a window of one pane; `estimate`: its estimate; `top`: maximum number of categories,
    coordinates or strings; `origin`: the CloudEvent's source; `slices`: the slices of the slice
    panes that end with this pane; `strings`, optional: the strings that were discovered in the
    pane.
    """
    pane = dataclasses.replace(window, arrived_ms=NO_TIME)
    return _final(window, window.policy, _data(pane, estimate, top, slices, strings), origin)


def _final(window: Window, policy: str, data: bytes, origin: str) -> Event:
    assert window.start_ms is not None and window.end_ms is not None  # noqa: S101, PT018
    metric = window.metric
    key = pane_key(metric_key(metric.name, metric.revision), window.start_ms)
    identity, time = f"{key}/final/{policy}", iso(window.end_ms)
    return Event(identity, FINAL_TYPE, origin, metric.name, time, key, data)


def release_event(window: Window, data: bytes, origin: str) -> Event:
    """Return the final event of a release, with the weight policy that its data names.

    Parameters
    ----------
    window : Window
        A window of one pane.
    data : bytes
        The event's data, from :func:`release_data`.
    origin : str
        The CloudEvent's source.
    """
    return _final(window, decode_json(data, _Policy).policy, data, origin)


def release_data(window: Window, estimate: Estimate) -> bytes:
    """Return the JSON of a release, with as many categories as fit into an event."""
    return _data(window, estimate, max(1, len(estimate.labels)))


def provisional_event(window: Window, estimate: Estimate, top: int, origin: str) -> Event:
    """Return the event of a running total, whose id is a hash of its contents.

    `window`: the running total; `estimate`: its estimate; `top`: maximum number of categories or
    coordinates; `origin`: the CloudEvent's source.
    """
    metric = window.metric
    data = _data(window, estimate, top)
    digest = hashlib.sha256(data).hexdigest()[: 2 * DIGEST_BYTES]
    time = iso(window.arrived_ms)
    identity = f"{metric_key(metric.name, metric.revision)}/provisional/{digest}"
    return Event(identity, PROVISIONAL_TYPE, origin, metric.name, time, metric.name, data)


def _data(
    window: Window,
    estimate: Estimate,
    top: int,
    slices: Sequence[Slices] = (),
    strings: DiscoveryAnswer | None = None,
) -> bytes:
    """Return an answer in JSON; if it is too long, with fewer slices, then with fewer numbers."""
    max_slices = max((len(grouping.slices) for grouping in slices), default=0)
    while True:
        document = answer(window, estimate, top)
        if slices or strings:
            document = FinalAnswer(
                **msgspec.structs.asdict(document),
                slices=[slices_answer(grouping.first(max_slices)) for grouping in slices] or UNSET,
                discovery=UNSET if strings is None else pane_discovery(strings, top),
            )
        data = msgspec.json.encode(document)
        if len(data) <= MAX_EVENT_BYTES or (top <= 1 and not max_slices):
            return data
        if max_slices:
            max_slices //= 2
        else:
            top //= 2
