"""What devices send: batches whose reports have a cell of their own each, and what is none."""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

from estimators import Metric
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.metrics import BY_COUNTRY, frequency_metric, mean_metric
from tests.support.reports.messages import EPOCH

CELLS = 240
MINUTE = 60_000
HOUR = 3_600_000
FUTURE_MS = 10 * MINUTE

ONE_EACH = frequency_metric("one_each", "grr", CELLS, [1.0], pane="1m", lateness="1m", **BY_COUNTRY)
"""No two reports of a partition name the same category: a sum other than 0 or 1 is an error."""
COUNTRIES = ("DE", "FR", "GB", None)
"""Of devices: one is not declared, and one does not say."""
BESIDE = mean_metric("beside", "randomized_response", (0, 1), [0.5, 1.0], pane="1h")
METRICS = {metric.name: metric for metric in (ONE_EACH, BESIDE)}


@dataclasses.dataclass(frozen=True)
class Sent:
    """What becomes a message.

    Attributes
    ----------
    gap : int
        How many offsets around it belong to nothing (markers of transactions, what was aborted):
        half of them, and the odd one, are behind it.
    cells : tuple of int
        The categories that its reports name.
    arrived : int
        Kafka's timestamp.
    """

    payload: bytes | None
    arrived: int
    gap: int
    cells: tuple[int, ...] = ()


def traffic(rng: random.Random, has_gaps: bool) -> Iterator[Sent]:
    """Yield what a partition gets, without end; categories run out after some 150 messages."""
    time, cell = EPOCH + rng.randrange(HOUR), 0
    good: list[Sent] = []
    while True:
        time += rng.choice((0, 0, 500, 500, 5_000, 5_000, 5_000, 40_000, 40_000, 90_000, HOUR))
        arrived = time + rng.randrange(3_000)
        gap = rng.randrange(1, 4) if has_gaps and rng.random() < 0.15 else 0
        draw = rng.random()
        if draw < 0.62:
            reports = rng.choice((1, 1, 2, 3)) if cell < CELLS - 3 else 0
            cells = tuple(range(cell, cell + reports))
            cell += reports
            at = time - 5 * MINUTE if rng.random() < 0.08 else time
            sent = Sent(_batch(rng, at, cells), arrived, gap, cells)
            good.append(sent)
            yield sent
        elif draw < 0.74 and good:
            again = rng.choice(good[-4:])
            yield dataclasses.replace(again, arrived=max(arrived, again.arrived), gap=gap)
        elif draw < 0.84:
            level, value = rng.randrange(2), rng.randrange(2)
            fields = {"levels": bytes([level]), "values": bytes([value])}
            yield Sent(_payload(rng, BESIDE, time, **fields), arrived, gap)
        else:
            yield Sent(_bad(rng, time), arrived, gap)


def heartbeat(rng: random.Random, time: int) -> bytes:
    """Return a heartbeat of the metric whose reports are told apart."""
    return _payload(rng, ONE_EACH, time)


def _batch(rng: random.Random, time: int, cells: tuple[int, ...]) -> bytes:
    fields: dict[str, Any] = {"levels": bytes(len(cells)), "values": bytes(cells)}
    country = COUNTRIES[sum(cells) % len(COUNTRIES)]
    if cells and country is not None:
        fields["attributes"] = [Attribute(name="country", value=country)]
    return _payload(rng, ONE_EACH, time, **fields)


def _payload(rng: random.Random, of: Metric, time: int, **fields: Any) -> bytes:
    made: dict[str, Any] = {
        "metric": of.name,
        "revision": of.revision,
        "batch_id": rng.randbytes(16),
        "time_ms": time,
    }
    return ReportBatch(**(made | fields)).SerializeToString()


def _bad(rng: random.Random, time: int) -> bytes | None:
    kind = rng.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return b"\xff\xfe" + rng.randbytes(6)
    fields: dict[str, Any] = {"levels": b"\0", "values": b"\0"}
    if kind == 2:
        fields["metric"] = "nobody's"
    elif kind == 3:
        fields["revision"] = 7
    elif kind == 4:
        fields["values"] = bytes([CELLS + 1])
    else:
        time += 3 * FUTURE_MS
    return _payload(rng, ONE_EACH, time, **fields)
