"""One Apache Kafka for all processes of a run.

The process that starts the others (pytest-xdist) starts Kafka when the first of them asks for it,
and stops it when all have ended. Topics have names of their own, so tests do not meet there.
"""

import json
import os
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from deploy.kafka.distribution import missing
from tests.support.running import servers

#: Key of the `workerinput` under which a process finds the socket to ask at.
KAFKA_SOCKET = "kafka_socket"

#: Seconds for Kafka to start on a machine that has other things to do.
PATIENCE = 300.0


def can_be_shared() -> bool:
    """Whether a run starts Apache Kafka, the only kind that is costly and can be shared."""
    named = any(os.environ.get(name) for name in ("DITHER_TEST_BROKER", "DITHER_TEST_KAFKA"))
    return not named and not missing()


def ask_for_kafka(address: str) -> servers.Kafka:
    """Return the Kafka of a run, once it has started; fail the test if it cannot."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(address)
        with connection.makefile("r") as answers:
            answer: dict[str, str] = json.loads(answers.readline())
    if "failure" in answer:
        pytest.fail(f"the Kafka of this run did not start: {answer['failure']}", pytrace=False)
    return servers.Kafka(answer["bootstrap_servers"], answer["kind"], answer["description"])


class SharedKafka:
    """Starts a Kafka for the first process that asks, and tells all of them where it is."""

    def __init__(self) -> None:
        self._answer: dict[str, str] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="dither-")))
        self._folder = folder
        self.address = str(folder / "ask.sock")
        server = self._stack.enter_context(_Server(self.address, self._respond))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(server.shutdown)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _respond(self) -> dict[str, str]:
        if self._answer is None:
            try:
                kafka = servers.start_kafka(self._folder, self._stack)
            except Exception as error:
                self._answer = {"failure": str(error)}
            else:
                self._answer = {
                    "bootstrap_servers": kafka.bootstrap_servers,
                    "kind": kafka.kind,
                    "description": kafka.description,
                }
        return self._answer


class _Server(socketserver.UnixStreamServer):
    """Answers one process after the other: the others wait until Kafka is there."""

    request_queue_size = 64

    def __init__(self, address: str, respond: Callable[[], dict[str, str]]) -> None:
        super().__init__(address, _Answer)
        self.respond = respond


class _Answer(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.wfile.write(json.dumps(self.server.respond()).encode() + b"\n")
