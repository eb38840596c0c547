"""The AsyncAPI document is valid, and true of what is in the topics."""

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from aggregator.config.settings import Settings, Topics
from aggregator.features.reader import Reader
from aggregator.publishing import events
from aggregator.reading.window import Window, WindowStatistic
from aggregator.web.asyncapi import document
from estimators import LocalMetric, Metric, define
from tests.support.paths import ROOT
from tests.support.reports.messages import EPOCH
from tests.support.rows import row

SCHEMA = ROOT / "tests" / "schemas" / "asyncapi-3.0.0.json"
SETTINGS = Settings(
    topics=Topics(reports="in", estimates="out", deadletters="dead", rounds="asked")
)
METRICS = [
    define(name="delay", kind="mean", mechanism="laplace", range=(0, 1), levels=[1], pane="1h"),
    define(name="carrier", kind="frequency", mechanism="grr", categories=["AA", "B6"], levels=[1]),
    define(name="position", kind="vector_mean", dimension=3, radius=1, levels=[1, 2]),
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
        content=WindowStatistic(statistic),
        arrived_ms=EPOCH,
    )


def test_it_is_valid_asyncapi_3_with_the_topics_of_the_settings() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    found = json.loads(msgspec.json.encode(document(SETTINGS)))
    assert not [error.message for error in validator.iter_errors(found)]
    assert not validator.is_valid({**found, "channels": {"reports": {"address": 1}}})
    assert {name: channel["address"] for name, channel in found["channels"].items()} == {
        "reports": "in",
        "estimates": "out",
        "rounds": "asked",
        "deadletters": "dead",
    }


def test_events_are_as_it_says() -> None:
    makers = {"finalEstimate": events.final_event, "provisionalEstimate": events.provisional_event}
    for name, make in makers.items():
        described = message(name)
        for metric in METRICS:
            with row(name, metric.kind):
                seen = window_of(metric)
                event = make(seen, Reader.answer(seen), 2, events.source("in"))
                jsonschema.validate(json.loads(event.data), resolved(described["payload"]))
                texts = {key: v.decode() for key, v in event.headers if isinstance(v, bytes)}
                jsonschema.validate(texts, described["headers"])
                assert set(texts) == set(described["headers"]["properties"])
                told = json.loads(event.data)
                del told["status"]
                with pytest.raises(jsonschema.ValidationError):
                    jsonschema.validate(told, resolved(described["payload"]))
