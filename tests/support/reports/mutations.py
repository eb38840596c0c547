"""Batches of every mechanism, and seeded damage to their bytes."""

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from estimators import Metric
from estimators.exact.randomness import SeededBits
from estimators.metrics.metric import ReportedMetric
from producers.wire.batch import encode_batch
from producers.wire.framing import frame
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.cases import CASES, metric_for, values_for
from tests.support.reports.messages import EPOCH

STEP_MS = 60
"""The time between two messages of the stream, in ms."""
JITTER_MS = 900_000
"""The largest delay of event times, in ms: some messages are late, most are not."""
SIZES = (1, 1, 3, 40)
"""Numbers of reports in a batch."""
VARIANTS = 3
EXTREMES = (b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\xff" * 9 + b"\x01", b"\xff" * 11)
"""Varints: the smallest, the largest of a byte, of two, of 64 bits, and one that never ends."""

ID_TAG = b"\x1a\x10"
TIME_BYTES = 7
"""The length of tag and time in a batch of this century."""

Mutation = Callable[["Fuzzer", bytearray], None]


def fuzzed_metrics() -> dict[str, Metric]:
    """Return a metric of every mechanism and kind, by name."""
    return {
        case: dataclasses.replace(
            metric_for(case, (0.5, 1, 2)), name=case, pane="5m", lateness="10m"
        )
        for case in CASES
    }


def corpus(metrics: Mapping[str, Metric], seed: int) -> list[bytes]:
    """Return batches as our reporters write them: for each metric, some of each size."""
    bits, found = SeededBits(seed), []
    rng = random.Random(seed)
    for metric in map(ReportedMetric.require, metrics.values()):
        for size in SIZES:
            for _ in range(VARIANTS):
                level = metric.level_of(np.array(rng.choices((0.5, 1, 2), k=size)))
                reports = metric.randomize(values_for(metric, size, seed), level, bits)
                found.append(encode_batch(metric, level, reports, EPOCH, rng.randbytes(16)))
    return found


def arrival(message: int, start_ms: int = EPOCH) -> int:
    """Return Kafka's timestamp of a message of the stream, in ms since the epoch."""
    return start_ms + message * STEP_MS


class Fuzzer:
    """Makes messages out of a corpus: about a third unchanged, the others damaged.

    Parameters
    ----------
    corpus : list of bytes
    seed : int
        The same seed makes the same messages.
    start_ms : int
        When the stream begins, in ms since the epoch.

    Attributes
    ----------
    made : int
        The number of messages so far.
    """

    def __init__(self, corpus: list[bytes], seed: int, start_ms: int = EPOCH) -> None:
        self.corpus, self.random, self.start_ms = corpus, random.Random(seed), start_ms
        self.made = 0
        self._id = seed << 64

    def messages(self, count: int) -> Iterator[bytes | None]:
        """Yield the payloads of `count` messages."""
        rng = self.random
        while count > 0:
            # Similar neighbours are read as columns, so there are runs of one template.
            run = min(count, rng.choice((1, 3, 30, 200)))
            template = rng.choice(self.corpus)
            count -= run
            framed = rng.choice((0.0, 0.0, 0.5, 1.0))  # the share from serializers of a registry
            for _ in range(run):
                self.made += 1
                made = self._message(template if rng.random() < 0.9 else rng.choice(self.corpus))
                is_framed = made is not None and rng.random() < framed
                yield frame(rng.choice((7, 7, 2**31 - 1)), made) if is_framed and made else made

    def _message(self, template: bytes) -> bytes | None:
        rng = self.random
        data = bytearray(template)
        if rng.random() < 0.95:
            self.renew(data)
        if rng.random() < 0.3:
            return bytes(data)
        for mutate in rng.choices(MUTATIONS, k=rng.choice((1, 1, 1, 2, 4))):
            mutate(self, data)
        return bytes(data) if rng.random() < 0.999 else None

    def place(self, data: bytearray) -> int:
        """Draw an index of a byte in the data; 0 if the data is empty."""
        return self.random.randrange(len(data)) if data else 0

    def renew(self, data: bytearray) -> None:
        """Give a batch of the corpus a new id and a new time: otherwise it is a duplicate."""
        at = data.index(ID_TAG) + len(ID_TAG)
        self._id += 1
        data[at : at + 16] = self._id.to_bytes(16, "big")
        time = arrival(self.made, self.start_ms) - int(JITTER_MS * self.random.random() ** 4)
        data[at + 16 : at + 16 + TIME_BYTES] = ReportBatch(time_ms=time).SerializeToString()

    def flip_bit(self, data: bytearray) -> None:
        if data:
            data[self.place(data)] ^= 1 << self.random.randrange(8)

    def set_byte(self, data: bytearray) -> None:
        if data:
            data[self.place(data)] = self.random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))

    def insert(self, data: bytearray) -> None:
        at = self.place(data)
        data[at:at] = self.random.randbytes(self.random.choice((1, 2, 16)))

    def delete(self, data: bytearray) -> None:
        at = self.place(data)
        del data[at : at + self.random.choice((1, 2, 16))]

    def cut(self, data: bytearray) -> None:
        del data[self.place(data) :]

    def extreme(self, data: bytearray) -> None:
        at = self.place(data)
        data[at : at + 1] = self.random.choice(EXTREMES)

    def append_field(self, data: bytearray) -> None:
        number = self.random.choice((1, 2, 3, 4, 5, 6, 7, 8, 15))
        wire_type = self.random.randrange(8)
        data += bytes([number << 3 & 0x7F | wire_type])
        data += self.random.choice((*EXTREMES, b"\x03abc", b"\x00" * 8))

    def put_in_frame(self, data: bytearray) -> None:
        """Put bytes like a frame of a schema registry in front."""
        data[:0] = self.random.choice((b"\0", b"\0\0\0", b"\0\0\0\0\7"))
        data[5:5] = self.random.choice((b"\0", b"\2\0", b"\2\2", b"\1\0", b"\0\0", b"\x80\0"))

    def splice(self, data: bytearray) -> None:
        other = self.random.choice(self.corpus)
        data[self.place(data) :] = other[self.random.randrange(len(other)) :]

    def join(self, data: bytearray) -> None:
        data += self.random.choice(self.corpus)

    def last_byte(self, data: bytearray) -> None:
        """Change the last byte of the values, where most mechanisms require zero bits."""
        if data:
            data[-1] = self.random.randrange(256)


MUTATIONS: tuple[Mutation, ...] = (
    *(Fuzzer.flip_bit, Fuzzer.set_byte, Fuzzer.insert, Fuzzer.delete, Fuzzer.cut),
    *(Fuzzer.extreme, Fuzzer.append_field, Fuzzer.put_in_frame, Fuzzer.splice, Fuzzer.join),
    Fuzzer.last_byte,
)
