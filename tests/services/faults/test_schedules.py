"""Every kind of fault once, in one schedule, and full disks; `make faults` plays hundreds."""

import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.services.faults.arena import BROKERS, KINDS, Arena, Fault, Lane, Schedule, draw
from tests.services.faults.play import Devices, Outcome, play, read, replay
from tests.support.reports.metrics import METRICS
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.fleet import Fleet
from tests.support.running.servers import need_apache_kafka

LANES, AT_ONCE, SCHEDULES = 3, 20, 500


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    need_apache_kafka()
    with Arena(tmp_path_factory.mktemp("arena"), LANES) as arena:
        yield arena


@pytest.mark.more
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_whatever_happens(arena: Arena) -> None:
    # 7: those of a broker are far from each other
    times = [0.4 * (7 * i % len(KINDS)) for i in range(len(KINDS))]
    faults = [Fault(kind, at, 0.6, 0.37 * at % 1) for kind, at in zip(KINDS, times, strict=True)]
    outcome = play(arena.lanes[0], Schedule(0, 3, 4, tuple(faults)))
    assert outcome.problems == []
    assert len(outcome.faults) >= len(KINDS) - 1, "a broker that is being repaired is left alone"
    assert outcome.messages > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SCHEDULES, AT_ONCE))
def test_nothing_is_lost_or_doubled_in_schedules_that_are_drawn(arena: Arena, first: int) -> None:
    def played(lane: Lane, begin: int) -> list[Outcome]:
        return [play(lane, draw(seed)) for seed in range(begin, first + AT_ONCE, LANES)]

    with ThreadPoolExecutor(LANES) as pool:
        lanes = pool.map(played, arena.lanes, range(first, first + LANES))
        outcomes = [outcome for lane in lanes for outcome in lane]
    assert not [(each.schedule, each.problems) for each in outcomes if each.problems]


PARTITIONS = 3


def fill_disk(arena: Arena, broker: int) -> None:
    """Let a running broker write no file further than it is: each write fails from now on."""
    process = arena.cluster.nodes[broker - 1].process
    assert process is not None
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


@pytest.mark.slow
def test_full_disks_lose_nothing(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    need_apache_kafka()
    with Arena(tmp_path_factory.mktemp("arena")) as arena, arena.lanes[0].redis():
        file = tmp_path / "metrics.toml"
        file.write_text(METRICS)
        deployment = Deployment(arena.lanes[0].kafka, arena.lanes[0].redis_url, file, PARTITIONS)
        fleet = Fleet(deployment.flags, tmp_path / "workers.log")
        devices, over = Devices(deployment, seed=1), threading.Event()
        reporting = threading.Thread(target=devices.report, args=[over])
        nodes = arena.cluster.nodes
        try:
            fleet.keep(2)
            reporting.start()
            wait_until(lambda: bool(deployment.counts()), "the first commit")

            fill_disk(arena, 1)
            wait_until(lambda: not nodes[0].running, "the broker with the full disk has stopped")
            counted = total(deployment)
            wait_until(lambda: total(deployment) > counted, "the other two go on")

            fill_disk(arena, 2)
            wait_until(lambda: not nodes[1].running, "the second one has stopped, too")
            acknowledged = devices.acknowledged
            threading.Event().wait(5)
            assert devices.acknowledged == acknowledged, "one replica is no promise"

            for broker in range(1, BROKERS):  # there is room again
                arena.cluster.restart(broker)
            wait_until(lambda: devices.acknowledged > acknowledged, "reports are taken again")
            over.set()
            reporting.join()
            fleet.keep(1)
            deployment.wait_until_counted(180)
        finally:
            over.set()
            fleet.stop()
        with deployment.store:
            logs = read(deployment)
            assert sum(map(len, logs.values())) == devices.acknowledged
            assert deployment.state() == replay(deployment, logs).state


def total(deployment: Deployment) -> int:
    return sum(deployment.counts().values())
