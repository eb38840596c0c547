"""The core shows whatever a feature offers, and knows none by its name."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from click.testing import CliRunner
from starlette.requests import Request
from starlette.responses import Response

import aggregator.features
from aggregator.cli.main import cli
from aggregator.config.settings import Settings
from aggregator.feature import EventType, Feature
from aggregator.monitoring.metric_definitions import Exported
from aggregator.monitoring.reference import all_exported, reference
from aggregator.monitoring.samples import Sample, Samples
from aggregator.publishing.events import Event
from aggregator.schemas.subjects import subjects
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from aggregator.web import asyncapi, openapi
from aggregator.web.application import core_and_features
from aggregator.web.operations import Content, Operation, Service, as_json
from estimators import Metric
from tests.support.reports.counted import Client


class Tide(msgspec.Struct):
    """The height of the water."""

    height: float


TURNED = EventType("toy.turned", Tide, "tideTurned", "The tide has turned.", "The port.", "turned")
HEIGHT = Exported("toy_tide_height{port}", "Height of the tide.")


@Operation(method="GET", path="/v1/tide", summary="The tide.", answers={200: Content("It.", Tide)})
async def tide(_service: Service, _request: Request) -> Response:
    return as_json(Tide(2.5))


class TideSamples(Samples):
    title, exported = "Tides", (HEIGHT,)
    labels: ClassVar = {"port": "a port"}

    def samples(self, overview: TopicProgress) -> Iterator[Sample]:
        yield Sample(HEIGHT, 2.5, ("Kiel",))


class Tides(Feature):
    def event_types(self) -> Sequence[EventType]:
        return (TURNED,)

    def samples(self) -> type[Samples]:
        return TideSamples

    def routes(self) -> Sequence[Operation]:
        return (tide,)


def test_a_feature_is_shown_by_every_interface(
    store: Store, metrics: dict[str, Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Tides("tides", commands={"tides": ("Ask", "Show the tides.")})
    monkeypatch.setattr(aggregator.features, "FEATURES", (*aggregator.features.FEATURES, toy))
    assert "Show the tides." in CliRunner().invoke(cli, ["--help"]).output
    assert HEIGHT in all_exported()
    assert "| `port` | a port |" in reference("")
    client = Client(store, metrics, Settings())
    assert client.get("/v1/tide").json() == {"height": 2.5}
    assert 'toy_tide_height{port="Kiel"} 2.5' in client.get("/metrics").text
    assert "/v1/tide" in openapi.document(core_and_features())["paths"]
    described: Any = asyncapi.document(Settings())
    assert "tideTurned" in described["channels"]["estimates"]["messages"]
    assert any("Tide" in subject.schema for subject in subjects(Settings()))
    event = Event("Kiel/1", TURNED.name, "/dither/t", "Kiel", "", "Kiel/1", b'{"height":2.5}')
    assert msgspec.json.decode(event.enveloped)["payload"] == {"height": 2.5}
