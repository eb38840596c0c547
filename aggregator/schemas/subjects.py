"""The schemas of a deployment: reports in Protobuf, events in JSON Schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

import msgspec

from aggregator.config.settings import Settings
from aggregator.publishing import events
from producers.device.rounds import ROUND_EVENT_TYPE, Round
from producers.wire.reports_pb2 import ReportBatch

JSON_SCHEMA_DRAFT = "http://json-schema.org/draft-07/schema#"
"""The newest draft that all registries can read."""
REFERENCE_TEMPLATE = "#/definitions/{name}"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A schema of a topic's values, and the subject name under which it is registered."""

    name: str
    topic: str
    kind: Literal["PROTOBUF", "JSON"]
    schema: str


def subjects(settings: Settings) -> list[Subject]:
    """Return the subjects of a deployment, reports first.

    If subjects are named after topics, all events on a topic share one schema.
    """
    topics = settings.topics

    def subject(topic: str, record: str, kind: Literal["PROTOBUF", "JSON"], schema: str) -> Subject:
        names = {"topic": f"{topic}-value", "record": record, "topic_record": f"{topic}-{record}"}
        return Subject(names[settings.schemas.naming], topic, kind, schema)

    proto = files("producers").joinpath("wire", "reports.proto").read_text(encoding="utf-8")
    all_subjects = [subject(topics.reports, ReportBatch.DESCRIPTOR.full_name, "PROTOBUF", proto)]
    structs_by_topic: dict[str, Mapping[str, type[msgspec.Struct]]] = {
        topics.estimates: events.data_types(),
        topics.rounds: {ROUND_EVENT_TYPE: Round},
    }
    for topic, kinds in structs_by_topic.items():
        if settings.schemas.naming == "topic":
            all_subjects.append(subject(topic, "", "JSON", json_schema(kinds)))
        else:
            all_subjects += [
                subject(topic, name, "JSON", json_schema({name: kind}))
                for name, kind in kinds.items()
            ]
    return all_subjects


def json_schema(kinds: Mapping[str, type[msgspec.Struct]]) -> str:
    """Return the JSON Schema, as text with sorted keys, of the data of events.

    Parameters
    ----------
    kinds : mapping of str to struct
        The structs by type of event; the schema accepts the data of any of them.
    """
    schemas, components = msgspec.json.schema_components(
        list(kinds.values()), ref_template=REFERENCE_TEMPLATE
    )
    if len(kinds) == 1:  # draft 7 ignores all keys beside a reference
        title, combination = next(iter(kinds)), {"allOf": [dict(schemas[0])]}
    else:
        title, combination = "The data of Dither's events", {"anyOf": list(schemas)}
    definitions = _draft_7(components)
    document = {"$schema": JSON_SCHEMA_DRAFT, "title": title, **combination}
    return msgspec.json.encode(document | {"definitions": definitions}, order="sorted").decode()


def _draft_7(schema: Any) -> Any:
    """Return a schema converted to draft 7, in which `items` stands for `prefixItems`."""
    if isinstance(schema, list):
        return [_draft_7(subschema) for subschema in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {name: _draft_7(subschema) for name, subschema in schema.items()}
    if "prefixItems" in schema:
        converted["additionalItems"] = converted.pop("items", True)
        converted["items"] = converted.pop("prefixItems")
    return converted
