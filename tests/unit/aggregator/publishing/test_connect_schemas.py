"""Events fit their schemas: that of Kafka Connect's envelope, and that of a registry."""

import dataclasses
import json
import re
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from aggregator.config.settings import Settings
from aggregator.features.alarms.due_events import ALARM_EVENT
from aggregator.features.comparisons.due_events import DECISION_EVENT
from aggregator.publishing import events
from aggregator.publishing.connect_schemas import connect_schema, without_envelope
from aggregator.publishing.events import Event, data_types
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import SearchState, Window, WindowStatistic
from aggregator.schemas.subjects import subjects
from estimators import Metric, SearchMetric, define
from estimators.extremes import Decision, Progress
from producers.device.rounds import Round
from tests.support.paths import ROOT
from tests.support.rows import row

MEAN = define(name="m", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[1])
SHARES = define(name="s", kind="frequency", mechanism="grr", categories=["a", "b"], levels=[1])
SPREAD = define(name="d", kind="distribution", range=(0, 8), bins=8, levels=[1])
LONGEST = SearchMetric.require(
    define(name="l", kind="maximum", range=(0, 512), rounds=1, levels=[1])
)
DECIDED_ROUND = Decision(256.0, (10_000,), (5_000,), 0.5, 0.1, outwards=True)
OVER = Round.of(LONGEST, Progress((DECIDED_ROUND,)), 0)


def answers(metric: Metric, statistic: Any = None) -> list[Event]:
    """Return the events of a running total and of a pane."""
    content: Any = WindowStatistic(metric.zero() if statistic is None else np.asarray(statistic))
    if metric is LONGEST:
        content = SearchState(OVER, metric.zero())
    seen = Window(metric=metric, status="provisional", content=content, arrived_ms=1)
    pane = dataclasses.replace(seen, start_ms=0, end_ms=60_000, status="final")
    total = events.provisional_event(seen, MetricReader.answer(seen), 4, "/")
    return [total, events.final_event(pane, MetricReader.answer(pane), 4, "/")]


def documented(page: str, begin: str, kind: str) -> Event:
    """Return the event of an example in the docs."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = next(x for x in re.findall(r"```json\n(.*?)```", text, re.DOTALL) if begin in x[:40])
    msgspec.json.decode(found, type=data_types()[kind])
    return Event("id", kind, "/", "name", "", "key", found.strip().encode())


EVENTS = [
    *answers(MEAN),
    *answers(MEAN, [10, 7]),
    *answers(SHARES, [9, 5, 4]),
    *answers(SPREAD),
    *answers(LONGEST),
    documented("alarms.md", '"alarm"', ALARM_EVENT.name),
    documented("integrate.md", '"comparison"', DECISION_EVENT.name),
]
DEEP = b'{"schema":' + b"[" * 5_000
PYTHON: dict[str, Any] = {"string": str, "boolean": bool, "int64": int, "double": (int, float)}


def misfits(schema: dict[str, Any], value: Any, place: str = "") -> list[str]:
    """Return where a value is not what Kafka Connect takes for its schema, field by field."""
    if value is None:
        return [] if schema.get("optional", False) else [f"{place}: null"]
    match schema["type"]:
        case "struct":
            fields = {one["field"]: one for one in schema["fields"]}
            found = [f"{place}.{name}: unknown" for name in value.keys() - fields.keys()]
            for name, one in fields.items():
                found += misfits(one, value.get(name), f"{place}.{name}")
            return found
        case "array":
            return [w for one in value for w in misfits(schema["items"], one, f"{place}[]")]
        case "map":
            return [w for one in value.values() for w in misfits(schema["values"], one, place)]
    return [] if isinstance(value, PYTHON[schema["type"]]) else [f"{place}: {value!r}"]


def test_an_event_in_the_envelope_fits_its_schema_and_is_the_same_event() -> None:
    for event in EVENTS:
        with row(event.subject, event.type):
            envelope = json.loads(event.enveloped)
            assert list(envelope) == ["schema", "payload"]
            assert not misfits(envelope["schema"], envelope["payload"])
            several = isinstance(envelope["payload"].get("value"), list)
            assert envelope["schema"]["name"] == event.type + ".several" * several
            assert without_envelope(event.enveloped) == event.data
    for value in (b"", b"{}", b'{"schema":', b'{"schema":{}}', b"\xff", DEEP):
        assert without_envelope(value) == value, "what is no envelope is left as it is"


def test_a_metric_has_one_schema_and_each_field_a_type_that_connect_has() -> None:
    (none, _), (some, _) = answers(MEAN), answers(MEAN, [10, 7])
    assert none.data != some.data
    assert json.loads(none.enveloped)["schema"] == json.loads(some.enveloped)["schema"]

    class Odd(msgspec.Struct):
        value: int | str

    with pytest.raises(TypeError, match="Kafka Connect has no such type"):
        connect_schema("odd", Odd, has_several=False)


def settings_with(naming: str) -> Settings:
    settings = Settings()
    settings.schemas.naming = naming
    return settings


def test_the_registered_json_schemas_are_valid_and_fit_the_events() -> None:
    by_name = {one.name: one for one in subjects(settings_with("record"))}
    (_, any_event, rounds) = subjects(settings_with("topic"))
    for one in (*by_name.values(), any_event, rounds):
        if one.kind == "JSON":
            jsonschema.Draft7Validator.check_schema(json.loads(one.schema))
    for event in EVENTS:
        for schema in (by_name[event.type].schema, any_event.schema):
            jsonschema.Draft7Validator(json.loads(schema)).validate(json.loads(event.data))
    wrong = {**json.loads(EVENTS[0].data), "reports": "many"}
    assert not jsonschema.Draft7Validator(json.loads(any_event.schema)).is_valid(wrong)
    assert json.loads(rounds.schema)["title"] == "dither.round"
