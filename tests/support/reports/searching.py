"""A small search for a maximum with a certain outcome, its devices, and its topic of rounds."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from estimators import Metric, SearchMetric
from estimators.exact.randomness import SeededBits
from producers import Ledger, Reporter, Rounds
from producers.device.rounds import Round, decode
from tests.support.running.deployment import (
    PATIENCE,
    Deployment,
    in_a_thread,
    read_topic,
    wait_until,
)

METRICS = """
[metrics]
delay = { kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [1] }
longest = {kind = "maximum", range = [0, 64], levels = [2, 8], rounds = 4, round_reports = 200, \
beta = 1e-6, unit = "minutes"}
"""
ROUNDS = 4
FOUND = (44.0, 48.0)
DEVICES = 1_000
VALUES = np.where(np.arange(DEVICES) % 4 < 2, 5.0, 45.0)
"""So far apart that all but one of a million runs decide in the same way."""


@contextlib.contextmanager
def devices(deployment: Deployment, metric: SearchMetric) -> Iterator[None]:
    """Make a thousand devices answer, each in the round that it has drawn."""
    epsilons = np.array(metric.levels)[np.arange(DEVICES) % len(metric.levels)]
    own = 1 + metric.search.own_round(DEVICES, SeededBits(5))

    def answer() -> None:
        config = deployment.properties
        with (
            Reporter(metric, config, topic=deployment.topic, batch_reports=50) as reporter,
            Rounds(config, deployment.rounds) as rounds,
        ):
            for asked in rounds.follow(metric, timeout=PATIENCE):
                mine = own == asked.number
                reporter.answer(asked, VALUES[mine], epsilons[mine])
                reporter.flush()

    with in_a_thread(answer):
        yield


@contextlib.contextmanager
def forgetful_devices(
    deployment: Deployment, metric: Metric, folder: Path, count: int
) -> Iterator[list[int]]:
    """Make devices with ledgers try to answer every open round repeatedly, as after restarts.

    At the end, the list has the number of answers of each device.
    """
    given: list[int] = [0] * count
    over = threading.Event()

    def insist() -> None:
        config = deployment.properties
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

    with in_a_thread(insist, over.set):
        yield given


def told(deployment: Deployment) -> dict[int, set[Round]]:
    """Return every committed message of the topic of rounds, by the number of decisions."""
    found: defaultdict[int, set[Round]] = defaultdict(set)

    def whole() -> bool:
        for message in read_topic(deployment.properties, deployment.rounds):
            asked = decode(message.value() or b"")
            found[len(asked.decisions)].add(asked)
        return ROUNDS in found

    wait_until(whole, "the last round is on the topic")
    return found


def assert_found(deployment: Deployment) -> None:
    """Check the answer, the sums, and that no round has two announcements or decisions."""
    found = deployment.reader().estimate("longest")
    assert (found.status, found.lower, found.upper) == ("final", FOUND[0], 64.0)
    rounds = told(deployment)
    assert {number: len(one) for number, one in rounds.items()} == dict.fromkeys(
        range(ROUNDS + 1), 1
    )
    assert deployment.verify().verified
