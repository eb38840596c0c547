"""A real Apache Kafka cluster on this machine, for tests, benchmarks and people without Docker."""

from __future__ import annotations

import atexit
import base64
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from deploy.kafka.broker import Broker, archive_path
from deploy.kafka.distribution import JARS, KafkaUnavailableError, fetch_jars

#: Seconds until every broker answers; about 2 per broker are usual on two cores.
READY_TIMEOUT = 180
#: Seconds for a broker to close its logs before it is killed; 0.3 is usual.
STOP_GRACE = 10.0
#: Seconds for all brokers of a quorum to stop: the last ones wait in vain for the others' consent.
QUORUM_STOP_GRACE = 2.0
#: Seconds for a broker that ends to write its archive of classes; 5 are usual, and many more on a
#: busy machine.
ARCHIVE_SECONDS = 180.0
#: Below Linux's range for outgoing connections, so that none takes a stopped broker's port.
PORTS = range(20_000, 32_000)
#: The most ports reserved at a time: beyond it the oldest is given up, as its user had minutes.
MOST_RESERVED = 200
_RESERVED: deque[socket.socket] = deque()


@atexit.register
def give_up_reserved_ports() -> None:
    """Give up the reservations of all ports."""
    while _RESERVED:
        _RESERVED.popleft().close()


@dataclass(eq=False)
class KafkaCluster:
    """Apache Kafka as child processes: KRaft brokers on free loopback ports.

    Several brokers form one quorum, and topics are replicated over up to three of them. Whatever
    happens to this process, its brokers end with it. The folder's topics are there again when
    another cluster is started on it.

    Parameters
    ----------
    folder : Path
        The folder for the brokers' properties, data and logs.
    brokers : int
        The number of brokers.
    properties : mapping of str to str or int
        Broker properties that override those set here.
    jars : Path
        Folder with Apache Kafka's jars; fetched with Maven if they are not there.
    heap : str
        The largest Java heap of each broker, as in `-Xmx`.
    jvm_options : sequence of str
        More options for each broker's Java.
    doors : mapping of str to sequence of int
        Further listeners, by name in capitals: the ports that the brokers tell their clients to
        use. A proxy at each port has to pass connections on to the broker's own port
        (`Broker.doors`).
    port : int, optional
        The port of the first broker; a free port by default.

    Examples
    --------
    >>> with KafkaCluster(Path("/tmp/kafka")) as kafka:        # doctest: +SKIP
    ...     producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    """

    folder: Path
    brokers: int = 1
    properties: Mapping[str, str | int] = field(default_factory=dict)
    jars: Path = JARS
    heap: str = "384m"
    jvm_options: Sequence[str] = ()
    doors: Mapping[str, Sequence[int]] = field(default_factory=dict)
    port: int | None = None
    nodes: list[Broker] = field(default_factory=list, init=False)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, as librdkafka's `bootstrap.servers` takes them."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> Self:
        """Start the brokers and wait until each of them answers and knows all others.

        Raises
        ------
        KafkaUnavailableError
            If Java, Maven or the jars are missing, or a broker failed; the message has the end of
            its log.
        """
        fetch_jars(self.jars)
        atexit.register(self._kill_all)
        for attempts_left in (2, 1, 0):
            try:
                self._start_all()
            except BaseException as error:
                self._kill_all()
                if not isinstance(error, _PortTakenError) or attempts_left == 0:
                    raise
            else:
                break
        return self

    def stop(self, grace: float | None = None) -> None:
        """Stop the brokers: they may close their logs, then they are killed. Can be repeated.

        Parameters
        ----------
        grace : float, optional
            Seconds until they are killed; by default enough to close logs.
        """
        for node in self.nodes:
            node.ask_to_stop()
        if grace is None:
            grace = STOP_GRACE if len(self.nodes) == 1 else QUORUM_STOP_GRACE
        deadline = time.monotonic() + grace
        for node in self.nodes:
            node.end(max(0.0, deadline - time.monotonic()))
        atexit.unregister(self._kill_all)

    def check(self) -> None:
        """Raise KafkaUnavailableError, with the end of its log, if a broker has ended."""
        for node in self.nodes:
            if not node.running:
                _raise_if_failed(node, deadline=0.0)

    def kill(self, broker: int) -> None:
        """Kill a broker (1 is the first) with SIGKILL, as a crash would."""
        self._node(broker).end()

    def restart(self, broker: int) -> None:
        """Start a broker again on its data and port, stopped first if it runs; wait for it."""
        node = self._node(broker)
        node.ask_to_stop()
        node.end(STOP_GRACE)
        node.start()
        self._wait_until_ready([node], min_brokers=1)

    def freeze(self, broker: int) -> None:
        """Suspend a broker (SIGSTOP) until `thaw`, as a machine that hangs would."""
        self._node(broker).send_signal(signal.SIGSTOP)

    def thaw(self, broker: int) -> None:
        """Let a frozen broker continue."""
        self._node(broker).send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_all(self) -> None:
        ports = free_ports((2 + len(self.doors)) * self.brokers)
        ports[0] = self.port or ports[0]
        behind = iter(ports[2 * self.brokers :])
        self.nodes = [
            Broker(
                node=i + 1,
                folder=self.folder / f"broker-{i + 1}",
                port=ports[2 * i],
                controller_port=ports[2 * i + 1],
                jars=self.jars,
                doors={
                    name: (next(behind), told_ports[i]) for name, told_ports in self.doors.items()
                },
                heap=self.heap,
                jvm_options=self.jvm_options,
            )
            for i in range(self.brokers)
        ]
        voters = ",".join(f"{node.node}@127.0.0.1:{node.controller_port}" for node in self.nodes)
        identity = self._cluster_id()
        settings = {**defaults(self.brokers), **self.properties}
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.prepare(identity, voters, settings), self.nodes))
        for node in self.nodes:
            node.start()
        self._wait_until_ready(self.nodes, min_brokers=self.brokers)

    def _cluster_id(self) -> str:
        remembered = self.folder / "cluster.id"
        if not remembered.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            identity = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
            # The storage tool would take a leading hyphen for a flag.
            remembered.write_text("0" + identity[1:])
        return remembered.read_text()

    def _wait_until_ready(self, nodes: Sequence[Broker], min_brokers: int) -> None:
        """Wait until each node lists itself, and at least `min_brokers` live brokers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + READY_TIMEOUT
        for node in nodes:
            # A new client asks the broker it was given before it learns of others.
            quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
            admin = AdminClient({"bootstrap.servers": node.address, "log_level": 0, **quick})
            while True:
                try:
                    listed = admin.list_topics(timeout=1).brokers
                except KafkaException:
                    listed = {}
                if node.node in listed and len(listed) >= min_brokers:
                    break
                _raise_if_failed(node, deadline)

    def _kill_all(self) -> None:
        for node in self.nodes:
            node.end()

    def _node(self, broker: int) -> Broker:
        if not 1 <= broker <= len(self.nodes):
            raise ValueError(f"there is no broker {broker}; they are 1 to {len(self.nodes)}")
        return self.nodes[broker - 1]


def fetch(jars: Path = JARS) -> None:
    """Fetch Apache Kafka's jars and record an archive of its classes; nothing if that is done.

    Parameters
    ----------
    jars : Path
        Folder to create.

    Raises
    ------
    KafkaUnavailableError
        If Java or Maven is missing, or Maven failed; the message says what to do.
    """
    fetch_jars(jars)
    if not archive_path(jars).is_file():
        _record_archive(jars)


def _record_archive(jars: Path) -> None:
    """Run one broker that writes its loaded classes to a file (AppCDS) when it ends."""
    with tempfile.TemporaryDirectory(dir=jars) as scratch:
        recording = Path(scratch) / "kafka.jsa"
        record = [f"-XX:ArchiveClassesAtExit={recording}"]
        cluster = KafkaCluster(Path(scratch) / "kafka", jars=jars, jvm_options=record)
        cluster.start()
        cluster.stop(ARCHIVE_SECONDS)
        if recording.is_file():
            recording.replace(archive_path(jars))


class _PortTakenError(KafkaUnavailableError):
    """Raised if another process took a port after it was chosen, before the broker started."""


def _raise_if_failed(node: Broker, deadline: float) -> None:
    ended = not node.running
    if not ended and time.monotonic() < deadline:
        return
    tail = node.log_tail()
    if ended and "Address already in use" in tail:
        raise _PortTakenError(f"Kafka broker {node.node} found its port taken:\n{tail}")
    happened = "ended" if ended else f"was not ready after {READY_TIMEOUT} s"
    raise KafkaUnavailableError(f"Kafka broker {node.node} {happened}; its log ends with:\n{tail}")


def defaults(brokers: int) -> dict[str, str | int]:
    """Return broker properties for a small cluster that starts, rebalances, fails over quickly."""
    replicas = min(3, brokers)
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": 2 if replicas == 3 else 1,
        "message.max.bytes": 33_554_432,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "log.cleaner.dedupe.buffer.size": 16_777_216,
    }


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports that nobody listens on now.

    While this process lives and keeps them reserved, no other process gets one of them from this
    function.
    """
    with ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = PORTS[secrets.randbelow(len(PORTS))]
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen()
            except OSError:
                continue
            if reserve(port):
                ports.append(port)
        return ports


def reserve(port: int) -> bool:
    """Reserve a port for this process, by the name of a socket; return whether that succeeded."""
    if sys.platform != "linux":  # no such names
        return True
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0dither-port-{port}")
    except OSError:
        name.close()
        return False
    _RESERVED.append(name)
    if len(_RESERVED) > MOST_RESERVED:
        _RESERVED.popleft().close()
    return True
