"""The AsyncAPI document, which describes the Kafka topics."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from aggregator.config.settings import Settings
from aggregator.feature import EventType
from aggregator.publishing import events
from aggregator.reading.serialization import Answer
from producers.device.rounds import ROUND_EVENT_TYPE, Round
from producers.wire.decoding import decode_json

EVENT_SCHEMA_REFERENCE = "#/components/schemas/{name}"
KAFKA_BINDING_VERSION = "0.5.0"
ESTIMATE_EVENTS = (
    EventType(
        events.FINAL_TYPE,
        events.FinalAnswer,
        message="finalEstimate",
        summary="The estimate of one closed pane: once for each id, and never changed.",
        key="The metric, its revision and the pane, as in delay@0000001f/2013-01-01T01:00:00Z.",
    ),
    EventType(
        events.PROVISIONAL_TYPE,
        Answer,
        message="provisionalEstimate",
        summary="The running total of a metric, whenever it has changed.",
        key="The metric.",
    ),
)
ROUND_EVENT = EventType(
    ROUND_EVENT_TYPE,
    Round,
    message="round",
    summary="The round of a metric that is open, with the decisions that led to it.",
    key="The metric and its revision, as in longest@0000001f.",
)


def document(settings: Settings) -> dict[str, Any]:
    """Return the AsyncAPI document of a deployment's topics."""
    text = Path(__file__).with_suffix(".json").read_bytes()  # what is the same everywhere
    described = decode_json(text, dict[str, Any])
    described["info"]["version"] = version("dither")
    topics, channels = settings.topics, described["channels"]
    for name, channel in channels.items():
        topic = getattr(topics, name)
        channel["address"] = channel["bindings"]["kafka"]["topic"] = topic
    estimates = (*ESTIMATE_EVENTS, *events.feature_event_types().values())
    channels["estimates"]["messages"] = {
        kind.message: {"$ref": f"#/components/messages/{kind.message}"} for kind in estimates
    }
    components, source = described["components"], events.source(topics.reports)
    proto = files("producers").joinpath("wire", "reports.proto").read_text(encoding="utf-8")
    components["messages"]["reportBatch"]["payload"]["schema"] = proto
    for kind in (ROUND_EVENT, *estimates):
        components["messages"][kind.message] = _event(kind, source)
    structs = [Answer, *(kind.data for kind in (*estimates, ROUND_EVENT))]
    _, components["schemas"] = msgspec.json.schema_components(
        structs, ref_template=EVENT_SCHEMA_REFERENCE
    )
    return described


def _event(kind: EventType, source: str) -> dict[str, Any]:
    headers = {
        "ce_specversion": {"type": "string", "const": "1.0"},
        "ce_id": {"type": "string", "description": "The same for the same event, whenever sent."},
        "ce_source": {"type": "string", "const": source},
        "ce_type": {"type": "string", "const": kind.name},
        "ce_time": {"type": "string", "format": "date-time"},
        "ce_subject": {"type": "string", "description": "The metric, alarm or comparison."},
        "content-type": {"type": "string", "const": events.CONTENT_TYPE},
    }
    key = {"type": "string", "description": kind.key}
    return {
        "name": kind.name,
        "summary": kind.summary,
        "contentType": events.CONTENT_TYPE,
        "headers": {"type": "object", "required": [*headers], "properties": headers},
        "payload": {"$ref": EVENT_SCHEMA_REFERENCE.format(name=kind.data.__name__)},
        "bindings": {"kafka": {"key": key, "bindingVersion": KAFKA_BINDING_VERSION}},
    }
