"""Where a worker's time goes while it counts: the functions with the most time of their own.

By Python's profiler, which makes small functions look larger than they are.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Iterator
from pathlib import Path

from aggregator.state.partition import Partition
from benchmarks.batches import FUTURE_MS, METRICS, LogMessage, payloads
from benchmarks.count import BATCHES
from benchmarks.measure import Figure
from benchmarks.places import Places

POLL = 1_000
SHOWN = 8


def benchmarks(places: Places) -> Iterator[Figure]:
    for reports, most in BATCHES.items():
        encoded = payloads(places.sized(most), reports)
        messages = [LogMessage(offset, payload) for offset, payload in enumerate(encoded)]
        partition, profiler = Partition(METRICS, FUTURE_MS), cProfile.Profile()
        with profiler:
            for start in range(0, len(messages), POLL):
                partition.count(messages[start : start + POLL])
        yield from _figures(f"profile/batches of {reports}", pstats.Stats(profiler))


def _figures(stage: str, stats: pstats.Stats) -> Iterator[Figure]:
    found: dict[tuple[str, int, str], tuple[int, int, float, float, object]]
    found = stats.stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in found.values())
    largest = sorted(found.items(), key=lambda item: -item[1][2])[:SHOWN]
    for (file, line, function), (_, _, own, _, _) in largest:
        name = function.strip("<>")
        unnamed = f" in line {line}" if name != function else ""
        place = name if file == "~" else f"{Path(file).stem}: {name}{unnamed}"
        yield Figure(f"{stage}/{place}", 100 * own / total, "%")
