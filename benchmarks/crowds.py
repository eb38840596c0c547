"""A relay's post of a crowd to batches for Kafka, against the HPKE library alone on its reports.

A second is one of the processor time of the gateway and of the process that opens a crowd.
"""

from __future__ import annotations

import asyncio
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

from starlette.types import Message

from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import define
from estimators.exact.randomness import SeededBits
from producers.gateway.bodies import ANY_TIME, PostedBatch
from producers.gateway.crowds import CROWD_TYPE, Crowds
from producers.opening import suite
from producers.sealing import CrowdLabel, encode_crowd, key_hash, label_info, read_private_key, seal

CROWD_REPORTS, SMALLEST = 10_000, 100
KEY = "42" * 32
METRIC = define(
    name="late",
    kind="mean",
    mechanism="randomized_response",
    range=(0, 1),
    levels=[3],
    pane="1d",
    lateness="1d",
    crowd={"minimum": SMALLEST, "wait": "12h"},
)


def benchmarks(places: Places) -> Iterator[Benchmark]:
    key, reports = read_private_key(KEY), max(SMALLEST, places.sized(CROWD_REPORTS))
    public = key.public_key().public_bytes_raw()
    label = CrowdLabel(key_hash(public), METRIC.fingerprint, 20_000 * METRIC.pane_ms, METRIC.name)
    level = METRIC.level_of([3.0] * reports)
    values = METRIC.randomizer.encode(METRIC.randomize([0.5] * reports, level, SeededBits(1)))
    sealed = [seal(values[i : i + 1], label, public) for i in range(reports)]
    body, info, decrypt = encode_crowd(bytes(16), label, sealed), label_info(label), suite().decrypt
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:  # its mode is 600
        Path(file.name).write_text(KEY)
        crowds = Crowds({METRIC.name: METRIC}, file.name, ANY_TIME, lambda: None, _taken)
        yield Benchmark(
            f"crowds/open a crowd of {CROWD_REPORTS}/HPKE library",
            "reports/s",
            repeated(reports, lambda: asyncio.run(_post(crowds, body)), processor_seconds),
            repeated(reports, lambda: [decrypt(s, key, info) for s in sealed], processor_seconds),
        )


async def _post(crowds: Crowds, body: bytes) -> None:
    """Post a crowd as a server hands it on."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    answer = await crowds.post({"headers": [(b"content-type", CROWD_TYPE.encode())]}, receive)
    assert answer.status_code == 202  # noqa: S101


async def _taken(_: PostedBatch) -> None:
    """Stand for Kafka, which the stage `gateway` measures: a crowd is one batch."""


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
