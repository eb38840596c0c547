"""Seconds until the next worker counts on, and how long Redis answers nobody else.

Ids of batches are most of what a worker reads when it takes a partition over. They are committed,
read back and deleted with their pane, while another client asks Redis every 2 ms.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRICS
from benchmarks.measure import Figure, Outcome
from benchmarks.places import Places
from benchmarks.redis_panes import commit_ids, delete_partition

IDS = (100_000, 1_000_000, 10_000_000)
IDS_A_COMMIT = 20_000
TOPIC = "takeover"
MILLISECONDS = 1_000
ASKING = """
import sys, threading, time
from aggregator.storage.connection import connect
client, ended, longest = connect(sys.argv[1]), threading.Event(), 0.0
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("asking", flush=True)
while not ended.wait(0.002):
    began = time.perf_counter()
    client.ping()
    longest = max(longest, time.perf_counter() - began)
print(longest)
"""


def benchmarks(places: Places) -> Iterator[Outcome]:
    for ids in IDS:
        name = f"takeover/{ids:.0e} batch ids".replace("e+0", "e")
        yield from _measured(places, name, places.sized(ids))


def _measured(places: Places, name: str, ids: int) -> Iterator[Figure]:
    """Yield the seconds of a takeover, and the longest that another client waited."""
    waits: list[float] = []
    with Store(connect(places.redis), TOPIC) as store:
        try:
            with _asking(places, waits):
                *_, committed = commit_ids(store, ids, IDS_A_COMMIT)
            with _asking(places, waits):
                began, busy = time.perf_counter(), time.process_time()
                snapshot = store.partition.acquire(0, "heir")
                state = snapshot.partition(METRICS, FUTURE_MS)
                seconds, busy = time.perf_counter() - began, time.process_time() - busy
            assert sum(len(pane.batch_ids) for pane in state.panes.values()) == committed  # noqa: S101
            with _asking(places, waits):
                _close(store, int(snapshot.owner["epoch"]), state)
        finally:
            delete_partition(store, TOPIC)
    yield Figure(name, seconds, "s")
    yield Figure(f"{name}/processor", busy, "s")
    for phase, longest in zip(("commits", "takeover", "closing"), waits, strict=True):
        figure = f"{name}/another's longest wait for Redis, {phase}"
        yield Figure(figure, longest * MILLISECONDS, "ms")


@contextlib.contextmanager
def _asking(places: Places, waits: list[float]) -> Iterator[None]:
    """Have another client ask Redis meanwhile, and note its longest wait."""
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, places.redis],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None  # noqa: S101
        client.stdout.readline()
        yield
        waits.append(float(client.communicate()[0]))


def _close(store: Store, epoch: int, state: Partition) -> None:
    """Commit the closing of all panes."""
    following = state.next_offset
    for pane in state.panes.values():
        pane.closed = True
    state.changed.update(state.panes)
    state.advance_to(following + 1)
    store.partition.commit(0, epoch, following, state, {})
