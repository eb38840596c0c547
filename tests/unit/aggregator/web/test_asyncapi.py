"""The AsyncAPI document is valid, and true of what is in the topics."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest

from aggregator.config.settings import Settings, Topics
from aggregator.dead_letters.writer import letters
from aggregator.kafka.headers import Header
from aggregator.publishing import events
from aggregator.reading.reader import Reader
from aggregator.reading.serialization import answer
from aggregator.reading.windows import Sums, Window
from aggregator.web.asyncapi import document
from estimators import LocalMetric, Metric, define
from tests.support.paths import ROOT
from tests.support.reports.messages import EPOCH, LogMessage
from tests.support.rows import row

SCHEMA = ROOT / "tests" / "schemas" / "asyncapi-3.0.0.json"
SETTINGS = Settings(
    topics=Topics(reports="in", estimates="out", deadletters="dead", rounds="asked")
)
METRICS = [
    define(name="delay", kind="mean", mechanism="laplace", range=(0, 1), levels=[1], pane="1h"),
    define(
        name="carrier", kind="frequency", mechanism="grr", categories=["AA", "B6", "DL"], levels=[1]
    ),
    define(
        name="position",
        kind="vector_mean",
        mechanism="hemisphere",
        dimension=3,
        radius=1,
        levels=[1, 2],
    ),
]


def resolved(schema: Any) -> Any:
    """Return a schema of the document that validates by itself."""
    return {**schema, "components": document(SETTINGS)["components"]}


def message(name: str) -> Any:
    return document(SETTINGS)["components"]["messages"][name]


def window_of(metric: Metric) -> Window:
    statistic = metric.zero()
    level = metric.level_of([1.0] * 200)
    values: dict[str, Any] = {"mean": 0.5, "frequency": 1, "vector_mean": [0.5, 0, 0]}
    reports = LocalMetric.require(metric).randomize([values[metric.kind]] * 200, level)
    metric.accumulate(statistic, level, reports)
    return Window(
        metric=metric,
        start_ms=EPOCH,
        end_ms=EPOCH + metric.pane_ms,
        status="final",
        content=Sums(statistic),
        arrived_ms=EPOCH,
    )


def test_it_is_valid_asyncapi_3_with_the_topics_of_the_settings() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    found = json.loads(msgspec.json.encode(document(SETTINGS)))
    assert not [error.message for error in validator.iter_errors(found)]
    broken = {**found, "channels": {"reports": {"address": 1}}}
    assert not validator.is_valid(broken)
    assert {name: channel["address"] for name, channel in found["channels"].items()} == {
        "reports": "in",
        "estimates": "out",
        "rounds": "asked",
        "deadletters": "dead",
    }


def test_every_reference_in_it_leads_somewhere() -> None:
    found = document(SETTINGS)
    references = set(re.findall(r'"\$ref":"([^"]+)"', msgspec.json.encode(found).decode()))
    assert references
    for reference in references:
        place: Any = found
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_events_are_as_it_says() -> None:
    for name, make in (
        ("finalEstimate", events.final),
        ("provisionalEstimate", events.provisional),
    ):
        described = message(name)
        for metric in METRICS:
            with row(name, metric.kind):
                event = make(window_of(metric), 2, events.source("in"))
                jsonschema.validate(json.loads(event.data), resolved(described["payload"]))
                texts = {key: v.decode() for key, v in event.headers if isinstance(v, bytes)}
                jsonschema.validate(texts, described["headers"])
                assert set(texts) == set(described["headers"]["properties"])


def test_an_answer_of_every_kind_is_as_it_says_and_others_are_not() -> None:
    payload = resolved(message("finalEstimate")["payload"])
    for metric in METRICS:
        window = window_of(metric)
        told = json.loads(msgspec.json.encode(answer(window, Reader.answer(window))))
        jsonschema.validate(told, payload)
        del told["status"]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(told, payload)


def test_dead_letters_have_the_headers_that_it_names() -> None:
    class Refused(LogMessage):
        def topic(self) -> str:
            return "in"

        def partition(self) -> int:
            return 3

        def key(self) -> bytes:
            return b"key"

        def headers(self) -> None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

        def set_headers(self, headers: list[Header]) -> None:
            assert not headers

    whole, short, _ = letters(Refused(7, b"x"), "late", "too late")
    described = message("deadLetter")["headers"]
    for letter in (whole, short):
        jsonschema.validate(
            {name: value.decode() for name, value in letter.headers if isinstance(value, bytes)},
            described,
        )
    assert {name for name, _ in short.headers} == set(described["properties"])
