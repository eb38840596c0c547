"""A worker from its first partition to its last commit, against consuming the same log."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator

from aggregator.settings import Redis, Settings, Topics
from aggregator.store import Store, connect
from aggregator.worker import Worker
from benchmarks.batches import METRICS, payloads
from benchmarks.consume import BATCHES, consumption, raw
from benchmarks.measure import Benchmark, Side
from benchmarks.places import PARTITIONS, Places

LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 60.0


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for reports, batches in BATCHES.items():
        topic, messages = places.log(payloads(batches, reports))
        yield Benchmark(
            f"end to end/batches of {reports}/raw",
            "reports/s",
            counting(places, topic, messages, reports),
            consumption(places, topic, messages, reports, lambda: raw),
        )


def counting(places: Places, topic: str, messages: int, reports: int) -> Side:
    """Return a side that counts a whole log into an empty Redis: read, sum, commit.

    The time to join the consumer group is not in it.
    """

    def rate() -> float:
        store = Store(connect(places.redis), topic)
        store.client.flushdb()
        settings = Settings(
            kafka={"bootstrap.servers": places.kafka},
            topics=Topics(reports=topic, managed=False),
            redis=Redis(url=places.redis),
        )
        settings.aggregate.group = uuid.uuid4().hex
        worker = Worker(settings, METRICS, store, "bench")
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            _wait(lambda: len(worker.owned) == PARTITIONS)
            began = time.perf_counter()
            _wait(lambda: _committed(store) >= messages)
            return messages * reports / (time.perf_counter() - began)
        finally:
            worker.stop()
            thread.join()

    return rate


def _committed(store: Store) -> int:
    return sum(int(store.owner(number).get("next", 0)) for number in range(PARTITIONS))


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the worker did not get there within {PATIENCE_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)
