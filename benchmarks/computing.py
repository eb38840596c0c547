"""Stages that compute in memory: on the device, in a worker's sums, and in estimates."""

from __future__ import annotations

import asyncio
import functools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from starlette.types import Message

from benchmarks.batches import METRICS, LogMessage, count_messages, payloads
from benchmarks.measure import Benchmark, Figure, Outcome, compared, stage
from benchmarks.metrics import BY_MECHANISM, SIZES, metric_of, population
from benchmarks.places import Places
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits, SystemBits, Words
from estimators.mechanisms import mechanisms_for
from producers.gateway.bodies import ANY_TIME, PostedBatch
from producers.gateway.crowds import CROWD_TYPE, Crowds
from producers.opening import suite
from producers.sealing import CrowdLabel, encode_crowd, key_hash, label_info, read_private_key, seal
from producers.wire.reports_pb2 import ReportBatch


class CountedBits(SystemBits):
    """The operating system's generator, counting the words that were asked for."""

    words = 0

    def integers(self, n: int) -> Words:
        self.words += n
        return super().integers(n)


@stage("randomize")
def randomize(places: Places) -> Iterator[Benchmark]:
    """Randomizing on the device, against drawing its random bytes alone."""
    for name, metric in BY_MECHANISM.items():
        size = places.sized(SIZES[name])
        values, level = population(metric, size)
        bits = CountedBits()
        metric.randomize(values, level, bits)
        ours = functools.partial(metric.randomize, values, level)
        random_bytes = functools.partial(os.urandom, 8 * bits.words)
        yield compared(f"randomize/{name}/urandom", "reports/s", size, ours, random_bytes)


@stage("count")
def count(places: Places) -> Iterator[Benchmark]:
    """Counting messages that are in memory, against parsing them with protobuf."""
    for reports, max_batches in {1: 50_000, 1_000: 5_000}.items():
        batches = places.sized(max_batches)
        encoded = payloads(batches, reports)
        log = [LogMessage(offset, payload) for offset, payload in enumerate(encoded)]
        yield compared(
            *(f"count/batches of {reports}/parse", "reports/s", batches * reports),
            functools.partial(count_messages, METRICS, log),
            functools.partial(_parse, encoded),
        )


def _parse(encoded: list[bytes]) -> None:
    for payload in encoded:
        ReportBatch.FromString(payload)


READ_CATEGORIES, READ_DIMENSION = 1024, 10
FREQUENCY_LEVELS = [round(0.1 * step, 1) for step in range(1, 65)]
READ_REPORTS = 20_000
COPIES = 50
"""How often each report counts: they are a million in all."""


@stage("read")
def read(places: Places) -> Iterator[Benchmark]:
    """Reading estimates with bounds that hold, against the same with the normal law's."""
    categories = max(2, places.sized(READ_CATEGORIES))
    metrics: dict[str, dict[str, Any]] = {
        name: {"kind": "frequency", "mechanism": name, "categories": categories}
        for name, mechanism in mechanisms_for("frequency").items()
        if mechanism.closed_vocabulary
    }
    for bins in (256, 1024, 4096):
        metrics[f"dyadic_hadamard {bins}"] = {
            "kind": "distribution", "range": (0, 1), "bins": bins,
        }  # fmt: skip
    for name in ("hemisphere", "caps", "lifted_caps"):
        domain = {"dimension": READ_DIMENSION, "radius": 1}
        metrics[name] = {"kind": "vector_mean", "mechanism": name, **domain}
    for name, fields in metrics.items():
        levels = FREQUENCY_LEVELS if fields["kind"] == "frequency" else [0.5, 1, 2, 4]
        metric = define(name="m", levels=levels, **fields)
        estimate = functools.partial(metric.estimate, _statistic(metric))
        for bound in ("fixed", "anytime"):
            yield compared(
                *(f"read/{name} {bound}/normal", "estimates/s", 1),
                functools.partial(estimate, bound=bound),
                functools.partial(estimate, bound="normal"),
            )


def _statistic(metric: LocalMetric) -> Any:
    """Return the sums of a million reports."""
    rng = np.random.default_rng(7)
    held: Any = rng.random(READ_REPORTS) ** 3
    if metric.kind == "vector_mean":
        middle = np.arange(READ_DIMENSION) / READ_DIMENSION
        held = rng.normal(size=(READ_REPORTS, READ_DIMENSION)) + middle
    if metric.categories is not None:
        held = np.floor(len(metric.labels) * held).astype(np.int64)
    level, statistic = np.arange(READ_REPORTS) % len(metric.levels), metric.zero()
    metric.accumulate(statistic, level, metric.randomize(held, level, SeededBits(7)))
    return statistic * COPIES


SEARCHED_LEVELS = (1.0, 2.0, 3.0, 4.0)
"""Each has more than 1% of the information, so that none is left out of the search."""
SEARCHED_REPORTS = 500_000
STRINGS = 2_000
"""The number of different strings, with frequencies in proportion to 1, 1/2, 1/3 and so on."""


@stage("discover")
def discover(places: Places) -> Iterator[Outcome]:
    """A search for frequent strings at four levels."""
    metric = metric_of("prefix_tree", SEARCHED_LEVELS)
    rng, size = np.random.default_rng(7), places.sized(SEARCHED_REPORTS)
    chances = 1 / np.arange(1, STRINGS + 1)
    held = rng.choice(STRINGS, size, p=chances / chances.sum())
    names = np.array([f"page {number}" for number in range(STRINGS)])
    level, statistic = rng.integers(0, len(SEARCHED_LEVELS), size), metric.zero()
    metric.accumulate(statistic, level, metric.randomize(names[held], level, SeededBits(7)))
    began = time.process_time()
    metric.discover(statistic)
    yield Figure("discover/four levels", time.process_time() - began, "s of a core")


@stage("start")
def start(_: Places) -> Iterator[Benchmark]:
    """Starting Python and loading what reads estimates, against loading numpy and redis alone."""
    ours, baseline = (
        functools.partial(subprocess.run, [sys.executable, "-c", program], check=True)
        for program in ("from dither import Reader", "import numpy, redis")
    )
    name = "start/a reader/numpy and redis"
    yield compared(name, "starts/s", 1, ours, baseline, _processor_seconds)


CROWD_REPORTS, SMALLEST = 10_000, 100
KEY = "42" * 32
CROWD_METRIC = define(
    name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[3],
    pane="1d", lateness="1d", crowd={"minimum": 100, "wait": "12h"},
)  # fmt: skip


@stage("crowds")
def crowds(places: Places) -> Iterator[Outcome]:
    """A relay's post of a crowd to batches for Kafka, against the HPKE library alone.

    A second is one of the processor time of the gateway and of the process that opens a crowd.
    """
    key, reports, metric = read_private_key(KEY), places.sized(CROWD_REPORTS), CROWD_METRIC
    reports, public = max(SMALLEST, reports), key.public_key().public_bytes_raw()
    label = CrowdLabel(key_hash(public), metric.fingerprint, 20_000 * metric.pane_ms, metric.name)
    level = metric.level_of([3.0] * reports)
    values = metric.randomizer.encode(metric.randomize([0.5] * reports, level, SeededBits(1)))
    sealed = [seal(values[i : i + 1], label, public) for i in range(reports)]
    body, info, decrypt = encode_crowd(bytes(16), label, sealed), label_info(label), suite().decrypt
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:  # its mode is 600
        Path(file.name).write_text(KEY)
        opened = Crowds({metric.name: metric}, file.name, ANY_TIME, lambda: None, _taken)
        yield compared(
            *(f"crowds/open a crowd of {CROWD_REPORTS}/HPKE library", "reports/s", reports),
            lambda: asyncio.run(_post(opened, body)),
            lambda: [decrypt(report, key, info) for report in sealed],
            _processor_seconds,
        )


async def _post(opened: Crowds, body: bytes) -> None:
    """Post a crowd, in the form in which a server passes it on."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    answer = await opened.post({"headers": [(b"content-type", CROWD_TYPE.encode())]}, receive)
    assert answer.status_code == 202  # noqa: S101


async def _taken(_: PostedBatch) -> None:
    """Accept a batch instead of Kafka, which the stage `gateway` measures: a crowd is one batch."""


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
