"""A small search for a maximum with a certain outcome, its devices, and its topic of rounds."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from estimators import SearchMetric
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
def devices(
    deployment: Deployment, metric: SearchMetric, ledgers: Sequence[Path] = ()
) -> Iterator[Counter[Path]]:
    """Make a thousand devices answer, each in the round that it has drawn.

    So do devices with ledgers, which try to answer every round repeatedly, as after restarts, and
    before it can close; at the end, the counter has the number of answers of each.
    """
    epsilons = np.array(metric.levels)[np.arange(DEVICES) % len(metric.levels)]
    own = 1 + metric.search.own_round(DEVICES, SeededBits(5))
    given = Counter[Path]()

    def answer() -> None:
        config = deployment.properties
        with (
            Reporter(metric, config, topic=deployment.topic, batch_reports=50) as reporter,
            Rounds(config, deployment.rounds) as rounds,
        ):
            for asked in rounds.follow(metric, timeout=PATIENCE):
                for file in [*ledgers] * 3:
                    ledger = Ledger(file, budget=8)
                    given[file] += reporter.answer(asked, 5.0, 2.0, ledger=ledger)
                mine = own == asked.number
                reporter.answer(asked, VALUES[mine], epsilons[mine])
                reporter.flush()

    with in_a_thread(answer):
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
