"""Worker processes as `dither aggregate` starts them, and how far they have come."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aggregator.config.settings import Redis, Settings, Topics
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.places import PARTITIONS, Places
from estimators import Metric

LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 120.0
STOP_SECONDS = 60.0
DEFINITION_KEYS = (
    *("kind", "mechanism", "pane", "lateness", "levels"),
    *("range", "categories", "dimension", "radius"),
)


@dataclass(frozen=True)
class Workers:
    """Worker processes that have joined their group and own all partitions of a topic."""

    processes: list[subprocess.Popen[bytes]]
    settings: Settings
    store: Store
    partitions: int

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def committed(self) -> int:
        """Return the sum of the next offsets: without gaps, the number of counted messages."""
        owners = map(self.store.owner, range(self.partitions))
        return sum(max(0, int(owner.get("next", 0))) for owner in owners)

    def wait_for(self, messages: int) -> None:
        """Wait until `messages` messages are counted and committed."""
        wait(lambda: self.committed() >= messages, "counting")


@contextmanager
def workers(
    places: Places,
    topic: str,
    metrics: Iterable[Metric],
    count: int = 1,
    partitions: int = PARTITIONS,
    more: Mapping[str, object] | None = None,
) -> Iterator[Workers]:
    """Run `count` worker processes, and yield them once they have joined their group.

    They have the default settings, except those in `more`, by key.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "metrics.toml"
        file.write_text(definitions(metrics))
        store = stack.enter_context(Store(connect(places.redis), topic))
        topics = Topics(reports=topic, deadletters=f"{topic}-dead", managed=False)
        sets = {
            "topics.reports": topics.reports,
            "topics.deadletters": topics.deadletters,
            "topics.managed": topics.managed,
            "aggregate.group": uuid.uuid4().hex,
            "aggregate.past": "36500d",
            **(more or {}),
        }
        line = [sys.executable, "-m", "aggregator", "aggregate", "--metrics", str(file)]
        line += ["--kafka", places.kafka, "--redis", places.redis]
        line += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        output = stack.enter_context((folder / "log").open("ab"))
        processes = []
        for _ in range(count):
            process = subprocess.Popen(line, stdout=output, stderr=output, start_new_session=True)
            stack.callback(process.wait, STOP_SECONDS)
            stack.callback(process.terminate)
            processes.append(process)
        settings = Settings(
            kafka={"bootstrap.servers": places.kafka}, topics=topics, redis=Redis(url=places.redis)
        )

        def have_joined() -> bool:
            owners = [store.owner(number).get("worker") for number in range(partitions)]
            return None not in owners and len(set(owners)) >= min(count, partitions)

        wait(have_joined, "the workers' joining")
        yield Workers(processes, settings, store, partitions)


def definitions(metrics: Iterable[Metric]) -> str:
    """Return metrics in the form of `metrics.toml`."""
    lines = []
    for metric in metrics:
        facts = {key: getattr(metric, key) for key in DEFINITION_KEYS}
        lines.append(f"[metrics.{metric.name}]")
        lines += [f"{key} = {json.dumps(x)}" for key, x in facts.items() if x is not None]
    return "\n".join(lines) + "\n"


def wait(condition: Callable[[], bool], awaited: str, look_seconds: float = LOOK_SECONDS) -> None:
    """Wait until a condition holds; raise TimeoutError, with `awaited`, after two minutes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{awaited}: not within {PATIENCE_SECONDS:g} s")
        time.sleep(look_seconds)
