"""The AsyncAPI document, which describes the Kafka topics."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from typing import Any

import msgspec

from aggregator.config.settings import Settings
from aggregator.dead_letters.writer import HEADER_PREFIX, TRUNCATED_HEADER, UNREADABLE_HEADER
from aggregator.feature import EventType
from aggregator.publishing import events
from aggregator.reading.serialization import Answer
from aggregator.reading.slices.slice_answers import FinalAnswer
from producers.device.rounds import ROUND_EVENT_TYPE, Round

EVENT_SCHEMA_REFERENCE = "#/components/schemas/{name}"
PROTOBUF_TYPE = "application/vnd.google.protobuf;version=3"
KAFKA_BINDING_VERSION = "0.5.0"
TEXT_SCHEMA = {"type": "string"}
DEAD_LETTER_HEADERS = {
    HEADER_PREFIX + "topic": "The topic it came from.",
    HEADER_PREFIX + "partition": "The partition it came from.",
    HEADER_PREFIX + "offset": "Its offset there.",
    HEADER_PREFIX + "stage": "Where it was refused.",
    HEADER_PREFIX + "class.name": "What refused it.",
    HEADER_PREFIX + "exception.class.name": "The reason, as `dither_reports_total` has it.",
    HEADER_PREFIX + "exception.message": "What was wrong with it, in words.",
    TRUNCATED_HEADER: "Its size, if the broker did not accept the whole message.",
    UNREADABLE_HEADER: "Why its own headers are missing, if they could not be read.",
}

ESTIMATE_EVENTS = (
    EventType(
        events.FINAL_TYPE,
        FinalAnswer,
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
    topics, source = settings.topics, events.source(settings.topics.reports)
    estimates = (*ESTIMATE_EVENTS, *events.feature_event_types().values())
    structs = [Answer, *(kind.data for kind in (*estimates, ROUND_EVENT))]
    _, components = msgspec.json.schema_components(structs, ref_template=EVENT_SCHEMA_REFERENCE)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Dither",
            "version": version("dither"),
            "description": "Locally private reports go in, estimates with bounds come out. Brokers "
            "are those of the deployment's settings.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "channels": {
            "reports": _channel(
                topics.reports,
                "What devices report, randomized before it leaves them.",
                "reportBatch",
            ),
            "estimates": _channel(
                topics.estimates,
                "Estimates as CloudEvents 1.0 in binary mode; read committed.",
                *(kind.message for kind in estimates),
                is_compacted=True,
            ),
            "rounds": _channel(
                topics.rounds,
                "Rounds of minimum and maximum metrics, for devices; read committed.",
                "round",
                is_compacted=True,
            ),
            "deadletters": _channel(
                topics.deadletters,
                "Messages of the reports topic that could not be counted.",
                "deadLetter",
            ),
        },
        "operations": {
            "countReports": _operation("receive", "reports", "Reports are counted."),
            "publishEstimates": _operation("send", "estimates", "Estimates are published."),
            "openRounds": _operation("send", "rounds", "Rounds are opened."),
            "refuseReports": _operation("send", "deadletters", "Refused messages are kept."),
        },
        "components": {
            "messages": {
                "reportBatch": _report_batch(),
                **{kind.message: _event(kind, source) for kind in (ROUND_EVENT, *estimates)},
                "deadLetter": _dead_letter(),
            },
            "schemas": components,
        },
    }


def _channel(
    topic: str, description: str, *messages: str, is_compacted: bool = False
) -> dict[str, Any]:
    compacted = {"topicConfiguration": {"cleanup.policy": ["compact"]}} if is_compacted else {}
    return {
        "address": topic,
        "description": description,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {
            "kafka": {"topic": topic, **compacted, "bindingVersion": KAFKA_BINDING_VERSION}
        },
    }


def _operation(action: str, channel: str, summary: str) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}


def _keyed(described: str) -> dict[str, Any]:
    key = {"type": "string", "description": described}
    return {"kafka": {"key": key, "bindingVersion": KAFKA_BINDING_VERSION}}


def _report_batch() -> dict[str, Any]:
    proto = files("producers").joinpath("wire", "reports.proto").read_text(encoding="utf-8")
    return {
        "name": "ReportBatch",
        "summary": "Reports of one metric and one event time.",
        "contentType": "application/x-protobuf",
        "payload": {"schemaFormat": PROTOBUF_TYPE, "schema": proto},
        "bindings": _keyed("The batch's id, 16 random bytes: nothing that identifies anybody."),
    }


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
    return {
        "name": kind.name,
        "summary": kind.summary,
        "contentType": events.CONTENT_TYPE,
        "headers": {"type": "object", "required": [*headers], "properties": headers},
        "payload": {"$ref": EVENT_SCHEMA_REFERENCE.format(name=kind.data.__name__)},
        "bindings": _keyed(kind.key),
    }


def _dead_letter() -> dict[str, Any]:
    headers = {n: {**TEXT_SCHEMA, "description": text} for n, text in DEAD_LETTER_HEADERS.items()}
    required = [name for name in headers if name not in (TRUNCATED_HEADER, UNREADABLE_HEADER)]
    return {
        "name": "DeadLetter",
        "summary": "A message as it came, with the reason in the headers of Kafka Connect.",
        "contentType": "application/octet-stream",
        "headers": {"type": "object", "required": required, "properties": headers},
        "payload": {"type": "string", "format": "binary"},
        "bindings": _keyed("The key of the refused message."),
    }
