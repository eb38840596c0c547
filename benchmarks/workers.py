"""Worker processes as `dither aggregate` starts them, and how far they have come."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from aggregator.config.settings import Redis, Settings, Topics
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.places import PARTITIONS, Places
from deploy.kafka.cluster import free_ports
from estimators import Metric
from estimators.metrics.loading import definition_of

LOOK_SECONDS = 0.002
PATIENCE_SECONDS = 120.0
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Workers:
    """Worker processes that have joined their group and own all partitions of a topic."""

    pids: list[int]
    settings: Settings
    store: Store
    partitions: int

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
    topics = Topics(reports=topic, deadletters=f"{topic}-dead", managed=False)
    sets = {"topics.deadletters": topics.deadletters, "aggregate.group": uuid.uuid4().hex}
    settings = Settings(
        kafka={"bootstrap.servers": places.kafka}, topics=topics, redis=Redis(url=places.redis)
    )
    with ExitStack() as stack:
        store = stack.enter_context(Store(connect(places.redis), topic))
        start = functools.partial(
            started, places, topic, metrics, "aggregate", **sets, **(more or {})
        )
        pids = [stack.enter_context(start()) for _ in range(count)]

        def have_joined() -> bool:
            owners = [store.owner(number).get("worker") for number in range(partitions)]
            return None not in owners and len(set(owners)) >= min(count, partitions)

        wait(have_joined, "the workers' joining")
        yield Workers(pids, settings, store, partitions)


@contextmanager
def started(
    places: Places, topic: str, metrics: Iterable[Metric], command: str, **sets: object
) -> Iterator[int]:
    """Run a command of `dither` on a topic, with settings by key; yield its pid."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(definitions(metrics))
        file.flush()
        sets |= {"topics.reports": topic, "topics.managed": False, "aggregate.past": "36500d"}
        line = ["aggregator", command, "--metrics", file.name]
        line += ["--kafka", places.kafka, "--redis", places.redis]
        line += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        with running(line) as pid:
            yield pid


@contextmanager
def served(
    places: Places, topic: str, metrics: Iterable[Metric], **sets: object
) -> Iterator[tuple[int, int]]:
    """Run `dither serve` on a topic; yield its pid and its port once it listens."""
    (port,) = free_ports(1)
    with started(places, topic, metrics, "serve", **{"serve.port": port, **sets}) as pid:
        wait_for_port(port)
        yield pid, port


@contextmanager
def running(line: Sequence[str]) -> Iterator[int]:
    """Run a module of Python, with arguments, as a process without output; yield its pid."""
    line, output = [sys.executable, "-m", *line], subprocess.DEVNULL
    process = subprocess.Popen(line, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def wait_for_port(port: int) -> None:
    """Wait until a process listens on a port of this machine."""

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait(answers, f"the server of port {port}")


def definitions(metrics: Iterable[Metric]) -> str:
    """Return metrics in the form of `metrics.toml`."""
    lines = []
    for metric in metrics:
        lines.append(f"[metrics.{metric.name}]")
        lines += [f"{key} = {json.dumps(x)}" for key, x in definition_of(metric).items()]
    return "\n".join(lines) + "\n"


def wait(condition: Callable[[], bool], awaited: str, look_seconds: float = LOOK_SECONDS) -> None:
    """Wait until a condition holds; raise TimeoutError, with `awaited`, after two minutes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{awaited}: not within {PATIENCE_SECONDS:g} s")
        time.sleep(look_seconds)


@contextmanager
def meanwhile(
    places: Places, topic: str, batches: Callable[[int], Iterable[bytes]], seconds: float
) -> Iterator[None]:
    """Write batches to a topic every `seconds`, made from the time in ms, until the block ends."""
    is_over = threading.Event()

    def until_over() -> Iterator[bytes]:
        while not is_over.wait(seconds):
            yield from batches(time.time_ns() // 1_000_000)

    thread = threading.Thread(target=places.fill, args=(topic, until_over()))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
