"""Releases of metrics that are collected in trust: drawn once, and all that is ever shown."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.storage.redis_keys import publisher_key
from tests.support.events import Found, on_topic, publishing, settings_of
from tests.support.reports.counted import Client
from tests.support.reports.messages import EPOCH, agreeing, batch
from tests.support.reports.trusted import MINUTE, PANE, definitions
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Kafka
from tests.support.running.stopping import STEPS


@pytest.fixture
def trusted(defined: Callable[..., Deployment]) -> Deployment:
    return defined(definitions([0.5, 4], [1]))


def wages(deployment: Deployment, panes: range, seed: int = 0) -> list[tuple[int, bytes]]:
    """Return 600 wages in each pane, half of them at either level, of one partition.

    Noise that exceeds the bounds of so many is drawn in one run of a million.
    """
    wage, found = deployment.metrics["wage"], []
    for pane in panes:
        for epsilon in (0.5, 4):
            one = batch(
                wage,
                [20 + pane] * 300,
                epsilon,
                EPOCH + pane * PANE + MINUTE,
                seed + 2 * pane + (epsilon > 1),
            )
            found.append((pane % deployment.partitions, one.SerializeToString()))
    return found


def releases(deployment: Deployment) -> list[Found]:
    return [event for event in on_topic(deployment) if event.is_final]


def wait_for(deployment: Deployment, number: int) -> list[Found]:
    wait_until(lambda: len(releases(deployment)) >= number, f"{number} releases")
    return releases(deployment)


def test_a_release_is_drawn_once_with_its_weights_and_read_alone(trusted: Deployment) -> None:
    """Most partitions get no report."""
    reader = trusted.reader()
    with trusted.worker(), publishing(trusted):
        trusted.produce(wages(trusted, range(1)))
        wait_for(trusted, 1)
        trusted.store.registry.set_policy("wage", "adpm")
        trusted.produce(wages(trusted, range(1, 2)))
        found = wait_for(trusted, 2)
        trusted.produce([(n, wages(trusted, range(1), 1_000 + 10 * n)[0][1]) for n in range(4)])
        letters = trusted.dead(4)
        wait_until(lambda: trusted.counts().get("late:wage") == 1_200, "counted as late")
    reasons = {letter["headers"]["__connect.errors.exception.class.name"] for letter in letters}
    assert reasons == {b"late"}
    assert releases(trusted) == found, "what comes after a release changes nothing"
    first, second = (event.answer for event in found)
    for pane, told in enumerate((first, second)):
        assert told["from"] == f"2013-01-01T00:{10 * pane:02}:00Z"
        assert (told["trust"], told["status"]) == ("central", "final")
        assert told["lower"] < 20 + pane < told["upper"]
        assert [level["reports"] for level in told["levels"]] == [300, 300]
        assert all(0 < level["loss"] <= level["epsilon"] for level in told["levels"])
        assert "influence" not in told
    assert (first["policy"], first["saturation"]) == ("hpm-a", None)
    assert second["policy"] == "adpm"
    assert second["saturation"] > 0
    shown, numbers = reader.estimate("wage"), ("value", "lower", "upper", "saturation", "status")
    assert [getattr(shown, key) for key in numbers] == [second[key] for key in numbers]
    assert shown.privacy is not None
    assert shown.privacy.tolist() == [level["loss"] for level in second["levels"]]
    half = (EPOCH + PANE) / 1000
    assert reader.estimate("wage", end=half).value == first["value"]
    assert reader.estimate("wage", start=half + 600).status == "not_ready"
    client = Client(trusted.store, dict(trusted.metrics), trusted.settings)
    assert client.json("/v1/metrics/wage/estimate", top=1) == second
    assert client.json("/v1/metrics/wage")["trust"] == "central"
    refused = client.problem(400, "/v1/metrics/wage/estimate?beta=0.2")
    assert "a release is drawn once: expected 0.05" in refused["detail"]
    points = reader.series("wage").points
    assert [point.value for point in points] == [first["value"], second["value"]]
    assert reader.estimate("party").status == "not_ready"
    assert trusted.verify().verified, "heartbeats are in the log"


def test_a_release_is_not_asked_for_otherwise_than_it_was_drawn(trusted: Deployment) -> None:
    reader = trusted.reader()
    with pytest.raises(ValueError, match="has trusted collection: read its releases"):
        reader.sums.read_window(reader.describe(trusted.store.overview(), "wage"))
    for question in (
        {"beta": 0.01},
        {"weights": "adpm"},
        {"bound": "anytime"},
        {"target": "sample"},
        {"simultaneous": False},
    ):
        with pytest.raises(ValueError, match="a release is drawn once"):
            reader.estimate("wage", **question)
    with pytest.raises(
        ValueError, match="releases cannot be added: expected the width of its panes, 10m"
    ):
        reader.series("wage", step="1h")


# -- Publishers that are killed and frozen at every step -----------------------------------------


@pytest.fixture
def closed(trusted: Deployment, apache_kafka: Kafka) -> Deployment:
    """A deployment with one pane that every partition has closed, and nobody has released."""
    wage = trusted.metrics["wage"]
    messages = []
    for partition in range(trusted.partitions):
        one = batch(wage, [10 * partition] * 20, 4, EPOCH, partition)
        after = agreeing(wage, EPOCH + 2 * PANE, 100 + 10 * partition)
        messages += [(partition, each.SerializeToString()) for each in (one, *after)]
    trusted.count(messages)
    return trusted


@contextlib.contextmanager
def stopped_at(step: str, deployment: Deployment) -> Iterator[subprocess.Popen[bytes]]:
    """Run a publisher until it stops itself at a step; it is killed in the end."""
    settings = msgspec.json.encode(settings_of(deployment, lease="1s")).decode()
    command = [sys.executable, "-m", "tests.support.running.stopping", step, settings]
    log = deployment.metrics_file.with_name("stopping.log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    stat = Path(f"/proc/{process.pid}/stat")

    def is_stopped() -> bool:
        assert process.poll() is None, log.read_text()
        return stat.read_text().rpartition(") ")[2].startswith("T")

    try:
        wait_until(is_stopped, step)
        yield process
    finally:
        process.kill()
        process.wait()


def kept(deployment: Deployment) -> set[bytes]:
    """Return what was drawn, as Redis has it."""
    client: Any = deployment.store.client
    keys = client.keys(f"{publisher_key(deployment.topic)}:release:wage@*")
    return {client.get(key) for key in keys}


def everything_on_topic(deployment: Deployment) -> set[bytes]:
    """Return the value of each message for the pane, also of those that were never committed."""
    found = on_topic(deployment, isolation="read_uncommitted")
    return {event.value for event in found if event.is_final}


def check_one_value(deployment: Deployment) -> None:
    """See that there is one release: on the topic, in Redis, and for whoever asks."""
    (event,) = releases(deployment)
    assert kept(deployment) == {event.value}
    shown = deployment.reader().estimate("wage")
    numbers = (shown.value, shown.lower, shown.upper)
    assert numbers == tuple(event.answer[key] for key in ("value", "lower", "upper"))
    assert deployment.store.registry.publisher_status()[1]["final"] == 1


KEPT = [step for step in STEPS if step not in ("nothing drawn", "drawn and not kept")]
SHOWN = ("committed and not noted", "noted")
TIERS = {
    "in the transaction": [],
    "kept and not published": [pytest.mark.more],
    "committed and not noted": [pytest.mark.more],
}


@pytest.mark.parametrize(
    "step", [pytest.param(one, marks=TIERS.get(one, [pytest.mark.slow])) for one in STEPS]
)
def test_a_release_is_the_same_whenever_someone_was_killed(closed: Deployment, step: str) -> None:
    with stopped_at(step, closed) as process:
        drawn = kept(closed)
        assert len(drawn) == (step in KEPT)
        assert len(releases(closed)) == (step in SHOWN)
        if step != "noted":
            assert closed.reader().estimate("wage").status == "not_ready"
        process.kill()
        process.wait()
        with publishing(closed):
            wait_until(lambda: closed.reader().estimate("wage").status == "final", "released")
    check_one_value(closed)
    assert everything_on_topic(closed) == kept(closed), "nor was another ever written"
    if drawn:
        assert kept(closed) == drawn


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("in the transaction", marks=pytest.mark.more),
        pytest.param("drawn and not kept", marks=pytest.mark.slow),
    ],
)
def test_a_publisher_that_was_frozen_releases_nothing_else(closed: Deployment, step: str) -> None:
    log = closed.metrics_file.with_name("stopping.log")
    with stopped_at(step, closed) as process, publishing(closed) as heir:
        wait_for(closed, 1)
        before, epoch = len(log.read_text()), heir.lease.epoch

        def told() -> str:
            return log.read_text()[before:]

        process.send_signal(signal.SIGCONT)
        wait_until(lambda: "again_in" in told() or "lease lost" in told(), "it has noticed")
        assert (heir.lease.held, heir.lease.epoch) == (True, epoch), "it is not even disturbed"
    check_one_value(closed)
    assert everything_on_topic(closed) == kept(closed)


@pytest.mark.slow
def test_two_publishers_release_each_pane_once(trusted: Deployment, apache_kafka: Kafka) -> None:
    with trusted.worker(), publishing(trusted, lease="500ms"), publishing(trusted, lease="500ms"):
        for pane in range(6):
            trusted.produce(wages(trusted, range(pane, pane + 1)))
            # whoever leads loses the lease, and does not know
            trusted.store.client.delete(f"{publisher_key(trusted.topic)}:lease")
        found = wait_for(trusted, 6)
    assert len({event.key for event in found}) == len(found) == 6


# -- What Redis forgets, and what comes too late ------------------------------------------------


@pytest.mark.more
def test_a_release_is_the_same_after_redis_has_forgotten_everything(trusted: Deployment) -> None:
    trusted.produce(wages(trusted, range(2)))
    with trusted.worker(), publishing(trusted):
        before = wait_for(trusted, 2)
    trusted.store.client.flushdb()
    trusted.settings.aggregate.group += "-again"
    with trusted.worker():
        trusted.wait_until_counted()
        assert trusted.reader().estimate("wage").status == "not_ready"
        with publishing(trusted):
            wait_until(lambda: trusted.reader().estimate("wage").status == "final", "restored")
            trusted.produce(wages(trusted, range(2, 3)))
            after = wait_for(trusted, 3)
    assert after[:2] == before
    assert kept(trusted) == {event.value for event in after}


@pytest.mark.slow
def test_a_leader_notices_what_redis_forgot(trusted: Deployment, apache_kafka: Kafka) -> None:
    client: Any = trusted.store.client
    with trusted.worker(), publishing(trusted):
        trusted.produce(wages(trusted, range(1)))
        (first,) = wait_for(trusted, 1)
        lease = f"{publisher_key(trusted.topic)}:lease"
        for key in client.keys(f"{publisher_key(trusted.topic)}:*"):
            if key.decode() != lease:
                client.delete(key)
        trusted.produce(wages(trusted, range(1, 2)))
        found = wait_for(trusted, 2)
    assert (found[0], len(found)) == (first, 2)
    assert kept(trusted) == {event.value for event in found}
    trusted.settings.topics.estimates = f"{trusted.estimates}-again"
    trusted.estimates = trusted.settings.topics.estimates
    with publishing(trusted):
        assert wait_for(trusted, 2) == found
