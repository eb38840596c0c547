"""Record batches that somebody might write to the reports topic to do harm, by kind."""

import random
import time
from collections.abc import Callable, Mapping

from estimators import Metric
from tests.support.reports.messages import ARRIVAL
from tests.support.reports.mutations import Fuzzer, corpus
from tests.support.reports.wire import (
    CONTROL,
    GZIP,
    NONE,
    TRANSACTIONAL,
    ZSTD,
    Record,
    expanding,
    gzip,
    record_batch,
    zstd,
)

TOPIC_BYTES = 262_144
"""The largest record batch that the reports topic takes."""
HOUR = 3_600_000
NAMES = (b"", b"trace", b"\xff\xfe", b"a\0b", b"\xed\xa0\x80", "имя".encode(), b"__connect.errors.")
Made = tuple[bytes, int]
"""A record batch, and the number of its messages."""


class Hostile:
    """Makes hostile record batches.

    Parameters
    ----------
    metrics : mapping of str to Metric
        Those of which damaged batches are made.
    seed : int
        The same seed makes the same ones, but for their times.
    largest : int
        Bytes that a record batch expands to at most.
    """

    def __init__(self, metrics: Mapping[str, Metric], seed: int, largest: int) -> None:
        self.random, self.largest = random.Random(seed), largest
        self._fuzzer = Fuzzer(corpus(metrics, seed), seed, ARRIVAL)

    def any(self) -> Made:
        """Return a batch of any kind but those that are large when they are expanded."""
        kinds: tuple[Callable[[], Made], ...] = (
            self.mixed, self.mixed, self.mixed, self.mixed, self.mixed, self.headed, self.timed,
            self.row, self.large, self.broken,
        )  # fmt: skip
        return self.random.choice(kinds)()

    def mixed(self) -> Made:
        """Return a few messages with anything in them."""
        rng = self.random
        payloads = self._fuzzer.messages(rng.choice((1, 5, 40)))
        records = [
            Record(p, self._key(), self._headers(rng.choice((0, 0, 1, 5)))) for p in payloads
        ]
        return self._batch(records, timestamp=self._time())

    def headed(self) -> Made:
        """Return a message with many headers, or a long one."""
        headers = self._headers(200)
        if self.random.random() < 0.5:
            headers = [(self.random.randbytes(50_000), self.random.randbytes(100_000))]
        return self._batch([Record(self.random.randbytes(9), headers=headers)])

    def timed(self) -> Made:
        """Return messages whose times are far from each other."""
        rng = self.random
        deltas = [rng.choice((0, -1, 1, -(2**40), rng.randrange(HOUR // 2))) for _ in range(5)]
        records = [Record(b"\xff", self._key(), timestamp_delta=delta) for delta in deltas]
        return self._batch(records, timestamp=self._time())

    def row(self) -> Made:
        """Return a row of messages that have nothing."""
        return self._batch([Record(None)] * self.random.choice((10, 1_000)), timestamp=self._time())

    def large(self) -> Made:
        """Return a message that is as large as the topic takes, in its key or its value."""
        size = TOPIC_BYTES - self.random.choice((100, 1_000, 200_000))
        data = self.random.randbytes(size)
        record = Record(data) if self.random.random() < 0.5 else Record(b"", key=data)
        return record_batch([record], timestamp=self._time()), 1

    def broken(self) -> Made:
        """Return what a broker refuses, if all goes well."""
        rng = self.random
        records = [Record(b"x")]
        kinds = (
            lambda: record_batch(records, codec=rng.choice((1, 2, 3, 4, 5)), payload=b"\xffno\x0f"),
            lambda: record_batch(records, attributes=rng.choice((CONTROL, TRANSACTIONAL, 0x4000))),
            lambda: record_batch(records * 2, payload=Record(b"x").encode(0)),
            lambda: record_batch(records, timestamp=rng.choice((2**62, -(2**63), 2**63 - 1))),
            lambda: record_batch(records, payload=b"\x0e" + rng.randbytes(7)),
            lambda: record_batch(records)[:-1] + b"\xff",
        )
        return rng.choice(kinds)(), 1

    def bomb(self) -> Made:
        """Return a batch that expands to about `largest` bytes, or as far as it can."""
        rng, most = self.random, min(self.largest, 1_000 * (TOPIC_BYTES - 2_000))
        kind = rng.choice(("gzip", "gzip of many", "gzip of a row", "zstd"))
        if kind == "gzip":
            head = next(self._fuzzer.messages(1)) or b""
            return record_batch([Record(b"")], codec=GZIP, payload=gzip(expanding(most, head))), 1
        if kind == "zstd":
            return record_batch([Record(b"")], codec=ZSTD, payload=zstd(*expanding(30_000_000))), 1
        if kind == "gzip of many":
            count = 200
            value = b"\0" * (most // count)
            records = [Record(value)] * count
            parts = ((record.encode(i), 1) for i, record in enumerate(records))
            return record_batch(records, codec=GZIP, payload=gzip(parts)), count
        records = [Record(None)] * 20_000
        return record_batch(records, codec=GZIP), len(records)

    def _batch(self, records: list[Record], timestamp: int = 0) -> Made:
        codec = self.random.choice((NONE, NONE, GZIP, ZSTD))
        return record_batch(records, codec=codec, timestamp=timestamp), len(records)

    def _headers(self, count: int) -> list[tuple[bytes, bytes | None]]:
        rng = self.random
        names = (*NAMES, rng.randbytes(8))
        values = (None, b"", b"\xff", rng.randbytes(8))
        return [(rng.choice(names), rng.choice(values)) for _ in range(count)]

    def _key(self) -> bytes | None:
        rng = self.random
        return rng.choice((None, b"", b"\xff\xfe", rng.randbytes(16), rng.randbytes(2_000)))

    def _time(self) -> int:
        now = time.time_ns() // 1_000_000
        return self.random.choice((now, now, 0, -1, -(2**40), 1, now + HOUR // 2, now - 10**10))
