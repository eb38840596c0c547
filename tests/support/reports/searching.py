"""A small search for a maximum whose outcome is certain, its devices, and what the topic says."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from estimators import Metric, SearchMetric
from estimators.exact.randomness import SeededBits
from producers import Ledger, Reporter, Rounds
from producers.device.rounds import Round, decode
from tests.support.running.deployment import PATIENCE, Deployment, wait_until

METRICS = """
[metrics]
delay = { kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [1] }
[metrics.longest]
kind = "maximum"
range = [0, 64]
levels = [2, 8]
rounds = 4
round_reports = 200
beta = 1e-6
unit = "minutes"
"""
ROUNDS = 4
FOUND = (44.0, 48.0)
DEVICES = 1_000
VALUES = np.where(np.arange(DEVICES) % 4 < 2, 5.0, 45.0)
"""So far apart that answers decide alike in all but one of a million runs."""


def properties(deployment: Deployment) -> dict[str, str]:
    """Return the properties of a device's clients."""
    return {"bootstrap.servers": deployment.kafka.bootstrap_servers}


@contextlib.contextmanager
def devices(deployment: Deployment, metric: SearchMetric) -> Iterator[None]:
    """Let a thousand devices answer, each the round that it drew for itself."""
    epsilons = np.array(metric.levels)[np.arange(DEVICES) % len(metric.levels)]
    own = 1 + metric.search.own_round(DEVICES, SeededBits(5))
    failures: list[BaseException] = []

    def answer() -> None:
        config = properties(deployment)
        try:
            with (
                Reporter(metric, config, topic=deployment.topic, batch_reports=50) as reporter,
                Rounds(config, deployment.rounds) as rounds,
            ):
                for asked in rounds.follow(metric, timeout=PATIENCE):
                    mine = own == asked.number
                    reporter.answer(asked, VALUES[mine], epsilons[mine])
                    reporter.flush()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        thread.join(2 * PATIENCE)
        assert not thread.is_alive()
    assert not failures, failures


@contextlib.contextmanager
def forgetful_devices(
    deployment: Deployment, metric: Metric, folder: Path, count: int
) -> Iterator[list[int]]:
    """Let devices with ledgers try to answer whatever is open, again and again, as if restarted.

    At the end, the list has how many answers each of them has given.
    """
    given: list[int] = [0] * count
    over = threading.Event()

    def insist() -> None:
        config = properties(deployment)
        with (
            Reporter(metric, config, topic=deployment.topic) as reporter,
            Rounds(config, deployment.rounds) as rounds,
        ):
            while not over.is_set():
                rounds.poll(0.1)
                asked = rounds.latest(metric)
                if asked is None or asked.is_over:
                    continue
                for device in range(count):
                    ledger = Ledger(folder / f"ledger-{device}", budget=8)
                    given[device] += reporter.answer(asked, 5.0, 2.0, ledger=ledger)
            reporter.flush()

    thread = threading.Thread(target=insist)
    thread.start()
    try:
        yield given
    finally:
        over.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def told(deployment: Deployment) -> dict[int, set[Round]]:
    """Return all that was ever committed to the topic of rounds, by the number of decisions."""
    consumer = Consumer(
        {
            **properties(deployment),
            "group.id": "look",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    found: defaultdict[int, set[Round]] = defaultdict(set)
    consumer.assign([TopicPartition(deployment.rounds, 0, 0)])

    def whole() -> bool:
        for message in consumer.consume(100, timeout=0.2):
            if message.error() is None:
                asked = decode(message.value() or b"")
                found[len(asked.decisions)].add(asked)
        return ROUNDS in found

    try:
        wait_until(whole, "the last round is on the topic")
    finally:
        consumer.close()
    return found
