"""A deployment on one machine: embedded servers, workers and the HTTP server."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aggregator.config.environment import FILE_SUFFIX
from aggregator.config.setting_checks import ACCESS_SCOPES
from aggregator.config.settings import Settings, values
from aggregator.errors import DitherError
from aggregator.kafka import topic_admin
from aggregator.kafka.log_ends import KafkaLog
from aggregator.local.child_process import Child, describe_exit
from aggregator.local.embedded_servers import EmbeddedBroker, EmbeddedRedis
from aggregator.local.ports import refuse_taken
from aggregator.local.state_folder import begin_new_log, redis_in_folder
from aggregator.malloc_settings import MALLOC_VARIABLES, apply_malloc_variables
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store

if TYPE_CHECKING:
    from aggregator.features.rounds.coordinator import Coordinator

LEAVE_SECONDS = 20.0
ORPHAN_SECONDS = 5
"""If its parent is killed, a child process ends within this time."""
ANSWER_SECONDS = 30.0
LOOK_SECONDS = 0.1
LOOPBACK_HOST = "127.0.0.1"
PROCESS_NAMES = {
    "aggregate": "the worker, `dither aggregate`,",
    "serve": "the HTTP server, `dither serve`,",
}
ANY_PAST = "36500d"
"""The largest age of events on embedded servers, which only this deployment uses."""


def wait_until_listening(port: int, check: Callable[[], object], silent: str) -> None:
    """Wait until a server of this machine answers.

    `port`: the port of the server; `check`: a function that raises an error if the server has
    ended; `silent`: the message of the error. Raises DitherError if the server does not answer
    within 30 seconds.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        check()
        address = (LOOPBACK_HOST, port)
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
            return
        time.sleep(LOOK_SECONDS)
    raise DitherError(silent)


class LocalDeployment:
    """A context manager that runs workers and the HTTP server as child processes.

    The coordinator is a thread.

    Parameters
    ----------
    settings : Settings
        The settings, which may name a broker or a store; otherwise one is started, and its address
        is set.
    workers : int
        Number of counting processes.
    searches : bool
        Whether a metric needs a coordinator.
    folder : Path, optional
        Where an embedded Redis stores its data; by default the data are lost at the end.

    Attributes
    ----------
    places : str
        Which servers are used, as text.
    lost_before, lost : int
        How many messages the last run, and this run by its end, did not count.
    hurry : threading.Event
        At the end, the deployment waits until all messages are counted; this event ends the wait,
        as do 20 seconds without progress.
    """

    def __init__(
        self,
        settings: Settings,
        workers: int,
        *,
        searches: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.settings, self.workers, self.searches = settings, workers, searches
        self.folder = folder
        self.places, self.lost_before, self.lost = "", 0, 0
        self.hurry = threading.Event()
        self._stack = contextlib.ExitStack()
        self._children: list[Child] = []
        self._embedded: EmbeddedRedis | None = None
        self._coordinator: Coordinator | None = None

    @property
    def url(self) -> str:
        """The address of the HTTP server."""
        scheme = "https" if self.settings.serve.tls_certificate else "http"
        return f"{scheme}://{LOOPBACK_HOST}:{self.settings.serve.port}/"

    def __enter__(self) -> Self:
        apply_malloc_variables(*MALLOC_VARIABLES)
        with self._stack:
            if not self.settings.sources.keys() >= {"kafka.bootstrap.servers", "redis.url"}:
                allow_any_past(self.settings)
            self.places = f"{self._kafka()} and {self._redis()}"
            if self.folder is not None and self.loses_log:
                with self._store() as store:
                    self.lost_before = begin_new_log(store, self.settings)
            topic_admin.ensure_topics(self.settings)
            refuse_taken(LOOPBACK_HOST, self.settings.serve.port)
            self._stack.enter_context(self._process("aggregate", f"--workers={self.workers}"))
            if self.folder is not None and self.loses_log:
                self._stack.push(self._count_rest)  # after the gateway has ended
            self._stack.enter_context(self._process("serve"))
            if self.searches:
                self._stack.enter_context(self._coordinating())
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @property
    def loses_log(self) -> bool:
        """Whether Kafka is embedded, so that its log is lost at the end."""
        return "kafka.bootstrap.servers" not in self.settings.sources

    def check(self) -> None:
        """Raise DitherError if a process or the coordinator has ended; say which, and how."""
        ended = [reason for child in self._children if (reason := child.describe_end())]
        if self._embedded is not None and (code := self._embedded.exit_code) is not None:
            end = "all counts are lost" if self.folder is None else "it keeps its counts"
            ended.append(f"the embedded Redis {describe_exit(code)}: {end}")
        if self._coordinator is not None and (trouble := self._coordinator.trouble()):
            ended.append(f"the coordinator of rounds: {trouble}")
        if ended:
            raise DitherError("\n".join(ended))

    def wait_until_serving(self) -> None:
        """Wait until the HTTP server answers.

        Raises DitherError if the server ended, or does not answer within 30 seconds.
        """
        silent = f"the HTTP server does not answer at {self.url}"
        wait_until_listening(self.settings.serve.port, self.check, silent)

    def _count_rest(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Wait until workers have counted the whole log, unless the deployment has failed."""
        if error_type is not None:
            return
        log, reached, deadline = KafkaLog(self.settings), -1, 0.0
        with self._store() as store:
            while True:
                partitions, ends = store.overview().partitions, log.ask()
                counted = {n: partitions[n].next_offset for n in ends.ranges if n in partitions}
                self.lost = sum(ends.lag(n, counted.get(n, UNSET)) or 0 for n in ends.ranges)
                if sum(counted.values()) > reached:
                    reached, deadline = sum(counted.values()), time.monotonic() + LEAVE_SECONDS
                is_over = time.monotonic() > deadline or self.hurry.wait(LOOK_SECONDS)
                if is_over or not (self.lost or ends.unknown):
                    return

    def _kafka(self) -> str:
        settings = self.settings
        if not self.loses_log:
            return f"Kafka at {settings.kafka['bootstrap.servers']}"
        embedded = self._stack.enter_context(EmbeddedBroker())
        settings.kafka["bootstrap.servers"] = embedded.bootstrap_servers
        settings.topics.managed = False
        topics = settings.topics
        for topic in (topics.reports, topics.deadletters, topics.estimates, topics.rounds):
            embedded.create_topic(topic)
        return "librdkafka's in-process broker"

    def _redis(self) -> str:
        if "redis.url" in self.settings.sources:
            return "Redis as configured"
        if self.folder is None:
            server, where = EmbeddedRedis(), ""
        else:
            server = self._stack.enter_context(redis_in_folder(self.folder))
            where = f" in {self.folder.resolve()}"
        self._embedded = self._stack.enter_context(server)
        self.settings.redis.url = server.url
        return f"an embedded Redis-compatible server{where}"

    def _store(self) -> Store:
        return Store(connect(self.settings.redis.url), self.settings.topics.reports)

    @contextlib.contextmanager
    def _process(self, command: str, *arguments: str) -> Iterator[None]:
        """Run a command of Dither as a child process that Ctrl-C does not reach."""
        own_variables = _environment(self.settings)
        inherited = {
            k: v for k, v in os.environ.items() if k.removesuffix(FILE_SUFFIX) not in own_variables
        }
        options = (f"--config={os.devnull}", "--log-level=error")  # the variables have all settings
        line = [sys.executable, "-m", "aggregator", command, *arguments, *options]
        env = {**MALLOC_VARIABLES, **inherited, **own_variables}
        child = Child(PROCESS_NAMES[command], line, ORPHAN_SECONDS, env)
        self._children.append(child)
        try:
            yield
        finally:
            child.stop(LEAVE_SECONDS)

    @contextlib.contextmanager
    def _coordinating(self) -> Iterator[None]:
        """Run the coordinator of rounds in a thread; as a process it would take 50 MB."""
        from aggregator.config.live_metrics import LiveMetrics
        from aggregator.config.logging import configure
        from aggregator.features.rounds.coordinator import Coordinator
        from aggregator.reading.reader import MetricReader

        configure("error")
        metrics = LiveMetrics(self.settings.metrics)
        with self._store() as store:
            self._coordinator = Coordinator(self.settings, MetricReader(store, metrics))
            metrics.watch()
            self._coordinator.start()
            try:
                yield
            finally:
                self._coordinator.stop()


def allow_any_past(settings: Settings) -> None:
    """Allow events of any age, unless the settings limit it."""
    if "aggregate.past" not in settings.sources:
        settings.aggregate.past = ANY_PAST


def free_port(first: int = 0) -> int:
    """Return a free port of the loopback interface: any, or the next one from `first` on."""
    while True:
        try:
            with socket.create_server((LOOPBACK_HOST, first)) as server:
                return int(server.getsockname()[1])
        except OSError as error:
            if not first or error.errno != errno.EADDRINUSE:
                raise
            first += 1


def _environment(settings: Settings) -> dict[str, str]:
    """Adapt the settings to the loopback interface; return them as variables for children."""
    settings.serve.host = LOOPBACK_HOST
    if "access.anonymous" not in settings.sources:
        # local users can already do as much
        settings.access.anonymous = list(ACCESS_SCOPES)
    default_values, variables = dict(values(Settings())), {}
    for key, value in values(settings):
        if key in settings.sources or value != default_values.get(key):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            text = " ".join(value) if isinstance(value, list) else text
            variables[f"DITHER_{key.upper().replace('.', '_')}"] = text
    return variables
