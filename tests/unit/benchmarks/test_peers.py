"""Peers and engines beside Dither: what they get, what is compared, and why one cannot run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from benchmarks import users
from benchmarks.measure import CannotRunError
from benchmarks.metrics import CATEGORIES
from benchmarks.peers import engines, environments, jvm, libraries, process, streams
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import Sample
from producers.wire.reports_pb2 import ReportBatch
from tests.support.rows import row

MESSAGES = 20_000


@pytest.fixture
def places() -> Iterator[Places]:
    """Places of the smallest sizes, in this process."""
    with ExitStack() as stack:
        yield Places(stack, scale=0.001, in_process=True)


def test_every_peer_has_a_script_and_pinned_versions() -> None:
    for peer in (*libraries.TASKS, *streams.PEERS):
        pinned = environments.pins()[peer]["packages"]
        with row(peer):
            assert all("==" in package for package in pinned)
            assert peer in [package.partition("==")[0] for package in pinned]
            script = f"with_{peer.replace('-', '_')}.py"
            assert Path(environments.__file__).with_name(script).exists()


@pytest.mark.slow
@pytest.mark.parametrize("peer", sorted({*libraries.TASKS, *users.THEIRS}))
def test_a_peer_does_each_of_its_tasks(peer: str, tmp_path: Path) -> None:
    if not environments.is_installed(peer):
        pytest.skip(f"{peer} is not installed: dither bench --quick --only peers")
    np.save(tmp_path / "values.npy", np.arange(500) % CATEGORIES)
    given = {"values": str(tmp_path / "values.npy"), "epsilon": 1.0, "categories": CATEGORIES}
    own = libraries.TASKS.get(peer, {}).items()
    tasks = [f"{what} {mechanism}" for what, mechanisms in own for mechanism in mechanisms]
    tasks += [
        f"noise {data} {mechanism} {epsilon:g}"
        for data, mechanisms in users.THEIRS.get(peer, {}).items()
        for mechanism in mechanisms
        for epsilon in users.EPSILONS[data]
    ]
    with process.serving(peer, {**given, "reports": 500}) as found:
        for task in tasks:
            assert found.side(task)(0) > 0, task
        with pytest.raises(CannotRunError):
            found.side("noise of nothing")(0)


def test_one_in_a_hundred_batches_comes_twice_in_its_partition_and_in_time() -> None:
    batches = [ReportBatch.FromString(one) for one in engines.payloads(MESSAGES, 1)]
    seen: dict[bytes, int] = {}
    copies: Counter[int] = Counter()
    latest = 0
    for number, batch in enumerate(batches):
        latest = max(latest, batch.time_ms)
        partition = number % PARTITIONS
        if batch.batch_id in seen:
            assert seen[batch.batch_id] == partition
            assert latest - batch.time_ms < engines.METRIC.lateness_ms
            copies[partition] += 1
        seen[batch.batch_id] = partition
    assert len(copies) == PARTITIONS
    assert sum(copies.values()) == MESSAGES // engines.EVERY


def test_a_run_counts_if_its_sums_are_the_same(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(sum_of_cell: int, refused: int = 0) -> jvm.Counted:
        sums = jvm.Sums({("late", 0, 0): sum_of_cell})
        return jvm.Counted([Sample(0, 0, 0), Sample(2, 1, 100)], sums, refused)

    pair = engines.Pair(places, "topic", 100, "flink", threads=1)
    monkeypatch.setattr(pair, "_dither", lambda: counted(3))
    for other in (counted(2), counted(3, refused=1)):
        monkeypatch.setattr(pair, "_engine", lambda other=other: other)
        pair.ours(0)
        with pytest.raises(CannotRunError, match=r"flink refused \d messages, and differs"):
            pair.theirs(0)
    monkeypatch.setattr(pair, "_engine", lambda: counted(3))
    assert pair.ours(0) == pair.theirs(0) == 50


def test_the_noise_that_is_measured_is_that_of_the_law() -> None:
    """At epsilon 2; 6% are at least 5 standard errors, also of the largest of three."""
    scale = math.pi / 2 / math.tanh(1)  # a report of hemisphere has length B: its noise is B^2 - 1
    for mechanism, data, expected in (
        ("randomized_response", "a mean, worst", math.tanh(1) ** -2),
        ("laplace", "a mean, uniform", 2 + 1 / 3),
        ("windows", "a mean, worst", 0.8812),
        ("hemisphere", "a vector of 2", scale**2 - 1),
    ):
        noise = users.measured_noise(mechanism, 2, data, lambda _: 40_000)
        assert noise == pytest.approx(expected, rel=0.06), mechanism
