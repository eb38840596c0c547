"""`dither schemas`: the wire format and the events in a schema registry."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.schemas.schema_registry import SchemaRegistry, printable
from aggregator.schemas.subjects import Subject, subjects
from aggregator.terminal.estimate_text import table
from aggregator.terminal.options import settings_options

REGISTERED_STATE, NEW_STATE, COMPATIBLE_STATE = "registered", "new", "compatible"
INCOMPATIBLE_STATE = "incompatible"


@click.command()
@click.option(
    "--check",
    is_flag=True,
    help="Register nothing: say what is registered, and what would be compatible; exit with 1 "
    "unless all is.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def schemas(settings: Settings, check: bool, as_json: bool) -> None:
    """Register the schemas of reports and events with the registry of schemas.url.

    Reports are registered in Protobuf, events in JSON Schema. Schemas that are already registered
    do not change, so the command may run at each deployment.

    \b
    dither schemas --set schemas.url=http://localhost:8081
    dither schemas --check --set schemas.url=https://registry.example
    """  # noqa: D301  click reads the backspace: these lines stay as they are
    registry = SchemaRegistry(settings.schemas)
    subject_states = [
        _check(registry, subject)
        if check
        else _subject_row(subject, REGISTERED_STATE, registry.register(subject))
        for subject in subjects(settings)
    ]
    document = {"schemas": subject_states}
    click.echo(json.dumps(document) if as_json else "\n".join(_lines(subject_states)))
    if any(subject["state"] == INCOMPATIBLE_STATE for subject in subject_states):
        sys.exit(1)


def _check(registry: SchemaRegistry, subject: Subject) -> dict[str, Any]:
    has_subject, number = registry.lookup(subject)
    if number is not None:
        return _subject_row(subject, REGISTERED_STATE, number)
    if not has_subject:
        return _subject_row(subject, NEW_STATE)
    conflicts = registry.conflicts(subject)
    state = INCOMPATIBLE_STATE if conflicts else COMPATIBLE_STATE
    return _subject_row(subject, state) | {"conflicts": conflicts}


def _subject_row(subject: Subject, state: str, number: int | None = None) -> dict[str, Any]:
    named = {"subject": subject.name, "topic": subject.topic, "type": subject.kind}
    return {**named, "state": state, "id": number}


def _lines(subject_states: list[dict[str, Any]]) -> Iterator[str]:
    keys = ("subject", "type", "state", "id")
    rows = [tuple("" if s[key] is None else s[key] for key in keys) for s in subject_states]
    yield table(keys, rows)
    for state in subject_states:
        for conflict in state.get("conflicts", ()):
            yield f"{state['subject']}: {printable(conflict)}"
    if subject_states[0]["id"] is not None:
        yield f"Frames of reports: schemas.schema_id = {subject_states[0]['id']}"
