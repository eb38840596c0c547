"""Seconds until the next worker counts on, and how long Redis answers nobody else.

Ids of batches are most of what a worker reads when it takes a partition over. They are committed,
read back and deleted with their pane, while another client asks Redis every 2 ms.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from aggregator.state.batch_ids import as_ids
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRICS, LogMessage, payloads
from benchmarks.measure import Figure, Outcome
from benchmarks.places import Places
from producers.wire.batch import BATCH_ID_BYTES

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
    for told in IDS:
        name = f"takeover/{told:.0e} batch ids".replace("e+0", "e")
        yield from _measured(places, name, places.sized(told))


def _measured(places: Places, name: str, ids: int) -> Iterator[Figure]:
    """Yield the seconds of a takeover, and the longest that another client waited."""
    with Store(connect(places.redis), TOPIC) as store:
        try:
            waits: list[float] = []
            with _asking(places, waits):
                _commit(store, ids)
            with _asking(places, waits):
                began, busy = time.perf_counter(), time.process_time()
                taken = store.partition.acquire(0, "heir")
                state = taken.partition(METRICS, FUTURE_MS)
                seconds, busy = time.perf_counter() - began, time.process_time() - busy
            if (found := sum(len(pane.batch_ids) for pane in state.panes.values())) != ids:
                raise ValueError(f"{found} ids were read: expected {ids}")
            with _asking(places, waits):
                _close(store, int(taken.owner["epoch"]), state)
        finally:
            for key in store.client.scan_iter(f"{tag(TOPIC, 0)}:*", count=1_000):
                store.client.unlink(key)
    yield Figure(name, seconds, "s")
    yield Figure(f"{name}/processor", busy, "s")
    for while_, longest in zip(("commits", "takeover", "closing"), waits, strict=True):
        told = f"{name}/another's longest wait for Redis, {while_}"
        yield Figure(told, longest * MILLISECONDS, "ms")


@contextlib.contextmanager
def _asking(places: Places, waits: list[float]) -> Iterator[None]:
    """Have another client ask Redis meanwhile, and note its longest wait."""
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, places.redis],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None  # noqa: S101
        other.stdout.readline()
        yield
        waits.append(float(other.communicate()[0]))


def _commit(store: Store, ids: int) -> None:
    """Commit a batch, and then further ids of its pane, as many as a busy worker does at a time."""
    taken = store.partition.acquire(0, "first")
    epoch, following = int(taken.owner["epoch"]), taken.next_offset
    state = taken.partition(METRICS, FUTURE_MS)
    state.count([LogMessage(0, payload) for payload in payloads(1, 1)])
    ((key, pane),) = ((key, pane) for key, pane in state.panes.items() if pane.batch_ids)
    while True:
        store.partition.commit(0, epoch, following, state, {})
        following = state.next_offset
        if not (left := ids - len(pane.batch_ids)):
            return
        more = os.urandom(BATCH_ID_BYTES * min(IDS_A_COMMIT, left))
        pane.batch_ids.add(as_ids(more))
        pane.unsaved.append(more)
        state.changed[key] = pane
        state.advance_to(following + IDS_A_COMMIT)


def _close(store: Store, epoch: int, state: Partition) -> None:
    """Commit the closing of all panes."""
    following = state.next_offset
    for pane in state.panes.values():
        pane.closed = True
    state.changed.update(state.panes)
    state.advance_to(following + 1)
    store.partition.commit(0, epoch, following, state, {})
