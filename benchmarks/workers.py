"""Worker processes as `dither aggregate` starts them, and how far they have come."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aggregator.config.settings import Settings
from aggregator.storage.store import Store
from estimators import Metric

LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 120.0
STOP_SECONDS = 60.0
KEYS = (
    "kind",
    "mechanism",
    "pane",
    "lateness",
    "levels",
    "range",
    "categories",
    "dimension",
    "radius",
)


def definitions(metrics: Iterable[Metric]) -> str:
    """Return metrics as `metrics.toml` has them."""
    lines = []
    for metric in metrics:
        facts = {key: getattr(metric, key) for key in KEYS if getattr(metric, key) is not None}
        lines.append(f"[metrics.{metric.name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in facts.items()]
    return "\n".join(lines) + "\n"


@contextmanager
def workers(
    count: int, settings: Settings, log: Path, more: Mapping[str, object] | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run so many workers, each a process with these settings, and `more` by their keys."""
    sets = {
        "topics.reports": settings.topics.reports,
        "topics.deadletters": settings.topics.deadletters,
        "topics.managed": settings.topics.managed,
        "aggregate.group": settings.aggregate.group,
        "aggregate.commit_interval": settings.aggregate.commit_interval,
        "aggregate.past": settings.aggregate.past,
        **(more or {}),
    }
    line = [sys.executable, "-m", "aggregator", "aggregate", "--metrics", settings.metrics]
    line += ["--kafka", str(settings.kafka["bootstrap.servers"]), "--redis", settings.redis.url]
    line += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    with ExitStack() as stack:
        output = stack.enter_context(log.open("ab"))
        processes = []
        for _ in range(count):
            process = subprocess.Popen(line, stdout=output, stderr=output, start_new_session=True)
            stack.callback(process.wait, STOP_SECONDS)
            stack.callback(process.terminate)
            processes.append(process)
        yield processes


def wait(condition: Callable[[], bool], what: str, look_seconds: float = LOOK_SECONDS) -> None:
    """Wait until something is so, looking every so many seconds.

    Raises
    ------
    TimeoutError
        If it takes minutes.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE_SECONDS:g} s")
        time.sleep(look_seconds)


def joined(store: Store, partitions: int, count: int) -> bool:
    """Whether every partition has an owner, and each of so many workers owns some."""
    owners = [store.owner(number).get("worker") for number in range(partitions)]
    return None not in owners and len(set(owners)) >= min(count, partitions)


def committed(store: Store, partitions: int) -> int:
    """Return the sum of the next offsets: of topics without gaps, the messages counted."""
    return sum(max(0, int(store.owner(number).get("next", 0))) for number in range(partitions))
