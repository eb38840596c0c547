"""Coordinators that are killed at each step of each round: the same answer, decided once."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aggregator.features.reader import Reader
from estimators import SearchMetric
from tests.support.reports.searching import METRICS, ROUNDS, assert_found, devices
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.fleet import CONTEXT, STARTING
from tests.support.running.servers import Kafka

pytestmark = pytest.mark.more

IN_TRANSACTION = "in transaction"
TAKING_OVER = ("leading", "fenced the others", "resuming", "resumed")
DECIDING = ("deciding", "stored", IN_TRANSACTION, "told", "noted")


@pytest.fixture
def searching(apache_kafka: Kafka, defined: Callable[..., Deployment]) -> Deployment:
    return defined(METRICS)


def coordinate(arguments: list[str], log: str, step: str, number: int) -> None:
    """Be `dither coordinate` until it comes to a step of a round; number 0: of any."""
    from aggregator.cli.main import main
    from aggregator.features.rounds.coordinator import Coordinator
    from aggregator.publishing.event_producer import EventProducer

    with Path(log).open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    deciding = [0]

    def at(_: Coordinator, reached: str, **facts: Any) -> None:
        deciding[0] = facts.get("round", 0) if reached == "deciding" else deciding[0]
        if reached == step and number in (0, facts.get("round")):
            os.kill(os.getpid(), signal.SIGKILL)

    whole = EventProducer.publish

    def publish(self: EventProducer, events: Any) -> dict[int, int]:
        if step != IN_TRANSACTION or deciding[0] != number:
            return whole(self, events)
        self._producer.begin_transaction()
        for event in events:
            self._producer.produce(self._topic, event.data, event.key.encode(), partition=0)
        self._producer.flush(60)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    mine: Any = Coordinator
    mine._log_step, EventProducer.publish = at, publish  # type: ignore[method-assign]
    sys.argv = ["dither", "coordinate", *arguments]
    main()


class Coordinators:
    """One coordinator after the other, each of which ends at a step."""

    def __init__(self, deployment: Deployment, log: Path) -> None:
        self.arguments = [*deployment.flags, "--set=coordinate.lease=2s", "--log-level=debug"]
        self.log = log
        self.killed = 0

    def start(self, step: str = "", number: int = -1) -> Any:
        arguments = (self.arguments, str(self.log), step, number)
        process = CONTEXT.Process(target=coordinate, args=arguments)
        with STARTING:
            process.start()
        return process

    def terms(self) -> int:
        """Return how often one of them has taken over."""
        return self.log.read_text().count("coordinator started") if self.log.exists() else 0

    def die_at(self, step: str, number: int) -> None:
        process = self.start(step, number)
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL, (step, number, self.log.read_text()[-3000:])
        self.killed += 1


def search(deployment: Deployment, folder: Path, deaths: list[tuple[str, int]]) -> None:
    """Let a search go through these deaths, to its end, and check what came of it."""
    metric = SearchMetric.require(deployment.metrics["longest"])
    coordinators = Coordinators(deployment, folder / "coordinators.log")
    reader = Reader(deployment.store, deployment.metrics)
    ledgers = [folder / str(number) for number in range(3)]
    with deployment.worker(), devices(deployment, metric, ledgers) as given:
        for step, number in deaths:
            coordinators.die_at(step, number)
        terms = coordinators.terms()
        last = coordinators.start()
        try:
            wait_until(lambda: coordinators.terms() > terms, "the last one coordinates")
            wait_until(lambda: reader.estimate("longest").status == "final", "the search is over")
        finally:
            last.terminate()
            last.join(PATIENCE)
    assert last.exitcode == 0
    assert coordinators.killed == len(deaths)
    assert given == dict.fromkeys(ledgers, 1)
    assert_found(deployment)


def test_another_coordinator_goes_on_after_a_kill(searching: Deployment, tmp_path: Path) -> None:
    search(searching, tmp_path, [("deciding", 1), ("stored", 1), (IN_TRANSACTION, 2)])


@pytest.mark.slow
@pytest.mark.parametrize("step", [*TAKING_OVER, *DECIDING])
def test_a_coordinator_is_killed_at_a_step_of_each_round(
    step: str, searching: Deployment, tmp_path: Path
) -> None:
    deaths = []
    for number in range(1, ROUNDS + 1):
        deaths.append((step, number if step in DECIDING or step.startswith("resum") else 0))
        if step in TAKING_OVER:
            deaths.append(("told", number))
    search(searching, tmp_path, deaths)
