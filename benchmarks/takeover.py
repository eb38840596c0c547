"""Taking a partition over with many batch ids in an open pane, while others ask Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from aggregator.storage.connection import connect
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRICS, LogMessage, payloads
from benchmarks.measure import Figure, Outcome
from benchmarks.places import Places
from producers.wire.batch import BATCH_ID_BYTES

IDS = (100_000, 1_000_000, 10_000_000)
IDS_AT_ONCE = 10_000
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
        seconds, longest = _measured(places, places.sized(told))
        name = f"takeover/{told:.0e} batch ids".replace("e+0", "e")
        yield Figure(name, seconds, "s")
        yield Figure(f"{name}/another's longest wait for Redis", longest * MILLISECONDS, "ms")


def _measured(places: Places, ids: int) -> tuple[float, float]:
    """Return the seconds of a takeover, and the longest that another client waited meanwhile."""
    with Store(connect(places.redis), TOPIC) as store:
        try:
            _prepare(store, ids)
            with subprocess.Popen(
                [sys.executable, "-c", ASKING, places.redis],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as other:
                assert other.stdout is not None  # noqa: S101
                other.stdout.readline()
                began = time.perf_counter()
                state = store.partition.acquire(0, "heir").partition(METRICS, FUTURE_MS)
                seconds = time.perf_counter() - began
                longest = float(other.communicate()[0])
            if (found := sum(len(pane.seen) for pane in state.panes.values())) != ids:
                raise ValueError(f"{found} ids were read: expected {ids}")
        finally:
            for key in store.client.scan_iter(f"{tag(TOPIC, 0)}:*"):
                store.client.unlink(key)
    return seconds, longest


def _prepare(store: Store, ids: int) -> None:
    """Commit a batch, and add ids to its pane."""
    taken = store.partition.acquire(0, "first")
    state = taken.partition(METRICS, FUTURE_MS)
    state.count([LogMessage(0, payload) for payload in payloads(1, 1)])
    (key,) = (key for key, pane in state.panes.items() if pane.seen)
    store.partition.commit(0, int(taken.owner["epoch"]), taken.next_offset, state, {})
    for first in range(1, ids, IDS_AT_ONCE):
        more = os.urandom(BATCH_ID_BYTES * min(IDS_AT_ONCE, ids - first))
        place = f"{tag(TOPIC, 0)}:seen:{key}"
        store.client.setrange(place, BATCH_ID_BYTES * first, more)
