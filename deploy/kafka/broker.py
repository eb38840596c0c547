"""One Kafka broker as a child process: its properties, its storage, its life and death."""

from __future__ import annotations

import hashlib
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.kafka.distribution import JARS, KafkaUnavailableError, java, java_version

# Quick to start rather than quick to run: C1 only and the simplest collector.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m")
LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"

# The broker is the leader of a process group of its own. The group's other member waits for the
# end of our pipe, which comes even when we are killed, and then ends the group.
GUARD = """exec 3<&0; (cat <&3 >/dev/null; kill -KILL 0) & exec "$@" 3<&- </dev/null"""

#: Seconds to format the storage of one broker.
FORMAT_TIMEOUT = 300


def archive_path(jars: Path) -> Path:
    """Return the path of the class-data archive (AppCDS) of these jars for this Java.

    The archive halves the start-up time.
    """
    key = f"{jars.resolve()} {java_version(java() or 'java')} {JVM_OPTIONS}"
    return jars / f"kafka-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


@dataclass
class Broker:
    """A broker and controller in one process (KRaft combined mode).

    Parameters
    ----------
    node : int
        Node id, from 1.
    folder : Path
        The folder for `server.properties`, `data/` and `broker.log`.
    port, controller_port : int
        Where clients and other controllers connect, on the loopback interface.
    jars : Path
        Folder with Apache Kafka's jars.
    doors : mapping of str to (int, int)
        Further listeners by name: the port on which the broker listens, and the port that it tells
        its clients. A test's proxy stands between the two.
    heap : str
        The largest Java heap, as in `-Xmx`.
    jvm_options : sequence of str
        More options for the broker's Java.
    """

    node: int
    folder: Path
    port: int
    controller_port: int
    jars: Path = JARS
    doors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    heap: str = "384m"
    jvm_options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def prepare(self, cluster_id: str, voters: str, properties: Mapping[str, str | int]) -> None:
        """Write the properties and format the storage, unless it is formatted already.

        Raises
        ------
        KafkaUnavailableError
            If Kafka's storage tool fails; the message has its last lines.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        listeners = [f"CLIENT://{self.address}"]
        advertised = listeners.copy()
        for name, (port, told_port) in self.doors.items():
            listeners.append(f"{name}://127.0.0.1:{port}")
            advertised.append(f"{name}://127.0.0.1:{told_port}")
        everything: dict[str, str | int] = {
            "process.roles": "broker,controller",
            "node.id": self.node,
            "controller.quorum.voters": voters,
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{self.controller_port}"]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CLIENT", "CONTROLLER", *self.doors)
            ),
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder.resolve() / "data"),
            **properties,
        }
        lines = [f"{name}={value}\n" for name, value in everything.items()]
        self._properties.write_text("".join(lines))
        format_storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        ran = subprocess.run(
            [*self._java(), *format_storage, "-t", cluster_id, "-c", str(self._properties)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FORMAT_TIMEOUT,
            check=False,
        )
        if ran.returncode != 0:
            raise KafkaUnavailableError(
                f"Kafka's storage in {self.folder} could not be formatted:\n{ran.stdout[-2000:]}"
            )

    def start(self) -> None:
        """Start the process; it is not yet ready for clients when this returns."""
        command = [*self._java(*self.jvm_options), "kafka.Kafka", str(self._properties)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", GUARD, "sh", *command],  # noqa: S607  (every POSIX system has sh)
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ask_to_stop(self) -> None:
        """Send SIGTERM, on which Kafka closes its logs; `end` waits for it."""
        self.send_signal(signal.SIGTERM)

    def end(self, grace: float = 0.0) -> None:
        """Wait `grace` seconds for the process to end, then kill it (SIGKILL)."""
        process, self.process = self.process, None
        if process is None:
            return
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None  # noqa: S101  (for the type checker)
        process.stdin.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it was started."""
        if self.process is not None:
            self.process.send_signal(number)

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of the broker's log."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _java(self, *options: str) -> list[str]:
        archive = archive_path(self.jars)
        shared = [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []
        machine = [java() or "java", *JVM_OPTIONS, f"-Xmx{self.heap}", LOGGING, *shared, *options]
        return [*machine, "-cp", f"{self.jars.resolve()}/*"]
