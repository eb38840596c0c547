"""Reading the estimates topic, as a backend would, and publishing to it in a thread."""

import contextlib
import copy
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aggregator.config.settings import Settings
from aggregator.features.rounds.coordinator import Coordinator
from aggregator.publishing.publisher import Publisher
from aggregator.state.watermark import CONFIRMING_BATCHES
from producers.wire.batch import heartbeat
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, in_a_thread, read_topic

MINUTE = 60_000
PANE = 10 * MINUTE
"""The width of a pane of the metric `age`."""


@dataclass(frozen=True)
class Found:
    """A committed message of the estimates topic."""

    key: str
    value: bytes
    headers: dict[str, bytes]

    @property
    def id(self) -> str:
        return self.headers["ce_id"].decode()

    @property
    def is_final(self) -> bool:
        return self.headers["ce_type"] == b"dither.estimate.final"

    @property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.value)
        return found


def on_topic(
    deployment: Deployment, topic: str = "", isolation: str = "read_committed"
) -> list[Found]:
    """Return every committed event, in order."""
    read: Any = read_topic(deployment.properties, topic or deployment.estimates, isolation)
    return [
        Found(
            (message.key() or b"").decode(errors="replace"),
            message.value(),
            dict(message.headers() or []),
        )
        for message in read
    ]


def final_ids(deployment: Deployment, topic: str = "") -> Counter[str]:
    """Return how often the topic has each final event, by its id."""
    return Counter(event.id for event in on_topic(deployment, topic) if event.is_final)


def settings_of(deployment: Deployment, **publish: Any) -> Settings:
    """Return a deployment's settings, with these for publishing."""
    settings = copy.deepcopy(deployment.settings)
    settings.publish.interval = "200ms"
    settings.aggregate.idle = "500ms"
    for name, value in publish.items():
        setattr(settings.publish, name, value)
    return settings


@contextlib.contextmanager
def publishing(deployment: Deployment, **publish: Any) -> Iterator[Publisher]:
    """Run a publisher in a thread, and wait for its end."""
    publisher = Publisher(settings_of(deployment, **publish), deployment.reader())
    with in_a_thread(publisher.run, publisher.stop):
        yield publisher


@contextlib.contextmanager
def service(deployment: Deployment, *flags: str, settings: Sequence[str] = ()) -> Iterator[str]:
    """Run a worker and a server that publishes at short intervals; yield the server's address.

    Parameters
    ----------
    deployment : Deployment
    *flags : str
        Flags for both processes.
    settings : sequence of str
        Settings for the server alone, such as ``aggregate.idle=1s``.
    """
    soon = ("publish.interval=200ms", "aggregate.idle=300ms")
    sets = [f"--set={one}" for one in (*soon, *settings)]
    worker = deployment.start_worker(*flags)
    try:
        with deployment.serving(*flags, *sets) as url:
            yield url
    finally:
        worker.terminate()
        worker.join(60)
    assert worker.exitcode == 0


@contextlib.contextmanager
def coordinating(deployment: Deployment, coordinators: int = 1) -> Iterator[None]:
    """Run coordinators of rounds in threads."""
    with contextlib.ExitStack() as stack:
        for _ in range(coordinators):
            coordinator = Coordinator(deployment.settings, deployment.reader())
            stack.enter_context(in_a_thread(coordinator.run, coordinator.stop))
        yield


def ages(deployment: Deployment, panes: range, reports: int = 120) -> list[tuple[int, bytes]]:
    """Return one batch of `age` for each of these panes, in the partitions in turn."""
    age = deployment.metrics["age"]
    return [
        (
            pane % deployment.partitions,
            batch(
                age, [pane % 100] * reports, 2, EPOCH + pane * PANE + MINUTE, 1 + pane
            ).SerializeToString(),
        )
        for pane in panes
    ]


def close(deployment: Deployment, panes: int) -> None:
    """Write the heartbeats that close the first panes of `age`, as a publisher would later."""
    age = deployment.metrics["age"]
    one = EPOCH + panes * PANE + age.lateness_ms
    deployment.produce(
        [
            (number, heartbeat(age, one))
            for number in range(deployment.partitions)
            for _ in range(CONFIRMING_BATCHES)
        ]
    )


def all_are_final(deployment: Deployment, panes: int) -> bool:
    """Return whether the first panes of `age` are final."""
    closed = deployment.reader().finality_watermarks(deployment.store.overview())
    return closed.get("age", 0) >= EPOCH + panes * PANE
