"""What a deployment registers: reports' wire format in Protobuf, its events in JSON Schema."""

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

PROTOBUF, JSON = "PROTOBUF", "JSON"
DRAFT = "http://json-schema.org/draft-07/schema#"
"""The newest that all registries read; of later ones only what it has, too, is used here."""
TEMPLATE = "#/definitions/{name}"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A schema, and the subject under which it is registered.

    Attributes
    ----------
    name : str
        The subject.
    topic : str
        The topic whose values have the schema.
    kind : str
        As registries call it.
    schema : str
        Its text.
    """

    name: str
    topic: str
    kind: Literal["PROTOBUF", "JSON"]
    schema: str


def subjects(settings: Settings) -> list[Subject]:
    """Return what a deployment registers.

    The subject of the reports comes first. Named after the topic, the events on one topic are one
    subject, with a schema that any of them fits.
    """
    topics, naming = settings.topics, settings.schemas.naming
    proto = files("producers").joinpath("wire", "reports.proto").read_text(encoding="utf-8")
    records: list[tuple[str, str, Literal["PROTOBUF", "JSON"], str]] = [
        (topics.reports, ReportBatch.DESCRIPTOR.full_name, "PROTOBUF", proto)
    ]
    told: dict[str, Mapping[str, type[msgspec.Struct]]] = {
        topics.estimates: events.data_types(),
        topics.rounds: {ROUND_EVENT_TYPE: Round},
    }
    for topic, kinds in told.items():
        if naming == "topic":
            records.append((topic, "", "JSON", json_schema(kinds)))
        else:
            records += [(topic, name, "JSON", json_schema({name: kinds[name]})) for name in kinds]
    return [
        Subject(_subject(naming, topic, record), topic, kind, text)
        for topic, record, kind, text in records
    ]


def _subject(naming: str, topic: str, record: str) -> str:
    if naming == "topic":
        return f"{topic}-value"
    return record if naming == "record" else f"{topic}-{record}"


def json_schema(kinds: Mapping[str, type[msgspec.Struct]]) -> str:
    """Return the JSON Schema of the data of events, as text that is always the same.

    Parameters
    ----------
    kinds : mapping of str to struct
        By the events' type. Of several, data may be of any.
    """
    found, components = msgspec.json.schema_components(list(kinds.values()), ref_template=TEMPLATE)
    title = next(iter(kinds)) if len(kinds) == 1 else "The data of Dither's events"
    schemas: Any = dict(found[0]) if len(kinds) == 1 else {"anyOf": list(found)}
    if len(kinds) == 1:  # in draft 7 nothing may stand beside a reference
        schemas = {"allOf": [schemas]}
    document = {"$schema": DRAFT, "title": title, **schemas, "definitions": _draft_7(components)}
    return msgspec.json.encode(document, order="sorted").decode()


def _draft_7(schema: Any) -> Any:
    """Return a schema in draft 7, where an array's first items are `items`."""
    if isinstance(schema, list):
        return [_draft_7(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _draft_7(one) for name, one in schema.items()}
    if "prefixItems" in schema:
        found["additionalItems"] = found.pop("items", True)
        found["items"] = found.pop("prefixItems")
    return found
