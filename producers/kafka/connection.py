"""A Kafka producer that any number of reporters share, and its thread."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import KafkaException

from producers.delivery.closing import Calls, Closing
from producers.delivery.delivery_errors import DeliveryError
from producers.delivery.thread_log import log_from_thread
from producers.kafka import kafka_errors
from producers.kafka.broker_addresses import SERVER_PROPERTIES, check_servers
from producers.kafka.diagnosis import POSSIBLE_BROKERS, diagnose_kafka

logger = logging.getLogger("producers")
LIBRDKAFKA_LOGGER = logging.getLogger("producers.librdkafka")
"""librdkafka's own log, hundreds of lines while a broker is away; nothing shows it by default."""
LIBRDKAFKA_LOGGER.addHandler(logging.NullHandler())
LIBRDKAFKA_LOGGER.addFilter(kafka_errors.WithoutSecrets())

POLL_SECONDS = 0.1  # how long after reaching its age a batch may be sent
CLOSE_TIMEOUT = 30.0  # seconds for each reporter that is still open
STOP_SECONDS = 0.5  # how much longer the thread may take
EXIT_TIMEOUT = 5.0  # seconds for the reports that are left when the interpreter ends

LARGEST_MESSAGE = 250_000
"""The most bytes of a message: with Kafka's overhead, it fits the topic's max.message.bytes."""

DEFAULT_PROPERTIES: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "compression.type": "zstd",  # randomized response: 0.6 bytes a report for 2.1; lz4: 1.3
    "message.max.bytes": LARGEST_MESSAGE,
    "batch.size": LARGEST_MESSAGE,
    "partitioner": "murmur2_random",  # a key's partition is that of Kafka's own clients
    "client.id": "dither",
}
PRODUCER_ONLY = ("acks", "enable.idempotence", "linger.ms", "compression.type", "batch.size")
"""Properties that only a producer has; consumers are configured with the others."""


class Served(Protocol):
    """The methods of a reporter that the connection's thread uses."""

    def send_aged(self) -> None:
        """Send batches that are old enough."""

    def close(self, timeout: float = ...) -> object:
        """Send everything, and accept no more reports."""


class Connection(Closing):
    """A Kafka producer for several reporters.

    Parameters
    ----------
    config : mapping
        librdkafka's properties; they override the defaults (idempotent, acks=all, 5 ms of linger,
        zstd, messages of at most 250,000 bytes). ``bootstrap.servers`` is required.
    background : bool
        Whether a daemon thread sends batches by age and processes acknowledgements. Without it the
        application must call ``Reporter.poll`` regularly.

    Raises
    ------
    TypeError
        If `config` is not a mapping.
    ValueError
        If librdkafka refuses a property.

    Examples
    --------
    >>> with Connection({"test.mock.num.brokers": 1}) as connection:
    ...     connection.closed
    False
    """

    def __init__(self, config: Mapping[str, Any], *, background: bool = True) -> None:
        if not isinstance(config, Mapping):
            raise TypeError(
                f"config = {config!r:.200}: expected Kafka properties, for instance "
                "{'bootstrap.servers': 'localhost:9092'}"
            )
        if not any(key in config for key in (*SERVER_PROPERTIES, "test.mock.num.brokers")):
            raise ValueError(
                f"Kafka properties {sorted(config)}: expected 'bootstrap.servers', "
                "for instance {'bootstrap.servers': 'localhost:9092'}"
            )
        try:
            check_servers(config)
        except ValueError as error:
            raise ValueError(f"Kafka properties: bootstrap.servers: expected {error}") from None
        self.config = {
            **DEFAULT_PROPERTIES,
            "logger": LIBRDKAFKA_LOGGER,
            **config,
            "error_cb": self._note,
        }
        self._app_error_cb = config.get("error_cb")
        self.servers = str(
            next((config[key] for key in SERVER_PROPERTIES if key in config), "(mock)")
        )
        self.closed, self._process = False, os.getpid()
        self._calls = Calls()
        self.last_error = ""
        self._served: set[Served] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        try:
            self.producer = kafka_errors.ExplainingProducer(self.config)
        except KafkaException as error:
            message = kafka_errors.without_secrets(error.args[0].str())
            raise ValueError(f"Kafka properties: {message}") from None
        self.message_max_bytes = int(self.config["message.max.bytes"])
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._serve, name="dither-reports", daemon=True)
            self._thread.start()
        atexit.register(self._at_exit)

    def diagnose(self) -> str:
        """Return why no server at the addresses can be a usable broker; "" if one may be."""
        if not any(key in self.config for key in SERVER_PROPERTIES):
            return ""
        why = diagnose_kafka(self.config | {"bootstrap.servers": self.servers}, ())
        return "" if why in POSSIBLE_BROKERS else f"it {why}"

    def add(self, served: Served) -> None:
        """Start serving a reporter.

        Raises ValueError if the connection is closed.
        """
        if self.closed:
            raise ValueError("this connection is closed: open a new one")
        with self._lock:
            self._served.add(served)

    def remove(self, served: Served) -> None:
        """Stop serving a reporter."""
        with self._lock:
            self._served.discard(served)

    def poll(self, timeout: float = 0.0) -> None:
        """Process acknowledgements for up to `timeout` seconds, and send batches by age."""
        self.producer.poll(timeout)
        with self._lock:
            served = tuple(self._served)
        for reporter in served:
            reporter.send_aged()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close the open reporters, each within `timeout` seconds, and stop the thread.

        If another thread is closing the connection, wait for it. Raises DeliveryError if reports of
        a reporter were not acknowledged.
        """
        self._calls.close(math.inf, lambda: self._stop_serving(timeout))

    def _stop_serving(self, timeout: float) -> None:
        with self._lock:
            served = tuple(self._served)
        undelivered = [
            error for reporter in served if (error := _closed(reporter, timeout)) is not None
        ]
        self.closed = True
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout + STOP_SECONDS)
        atexit.unregister(self._at_exit)
        for error in undelivered[1:]:
            undelivered[0].add_note(str(error))
        if undelivered:
            raise undelivered[0]

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                self.poll(POLL_SECONDS)
            except Exception:
                message = "sending reports in the background failed; flush() sends them"
                log_from_thread(logging.ERROR, message, with_error=True)

    def _note(self, error: Any) -> None:
        self.last_error = kafka_errors.describe_kafka_error(error)
        if self._app_error_cb is not None:
            self._app_error_cb(error)

    def _at_exit(self) -> None:
        if self._process != os.getpid():  # forked: librdkafka's threads are the parent's
            return
        for served in tuple(self._served):
            if (error := _closed(served, EXIT_TIMEOUT)) is not None:
                logger.error("a reporter was not closed before the program ended: %s", error)
        self.close(EXIT_TIMEOUT)


def _closed(served: Served, timeout: float) -> DeliveryError | None:
    try:
        served.close(timeout)
    except DeliveryError as error:
        return error
    return None
