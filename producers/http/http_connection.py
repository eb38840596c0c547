"""The connection to a gateway, with a queue of reports; any number of reporters can share it."""

from __future__ import annotations

import atexit
import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from producers.delivery.closing import Calls, Closing
from producers.delivery.delivery_errors import DeliveryError
from producers.http.definitions import GatewayDefinitions
from producers.http.gateway_client import GatewayClient
from producers.http.posting_thread import Background, Failure
from producers.http.queue_file import QueueError
from producers.http.relay_client import Relay
from producers.http.report_queue import MOST_BYTES, ReportQueue, WhenFull

logger = logging.getLogger("producers")

CLOSE_TIMEOUT = 10.0
EXIT_TIMEOUT = 5.0  # seconds for the reports that are left when the interpreter ends
WHAT_TO_CHECK_HTTP = "check the address, the network and the gateway"


class HttpOptions(TypedDict, total=False):
    """The options of a connection; :class:`HttpConnection` describes them."""

    queue: str | Path | None
    relay: str | None
    key: str | None
    token: str | None
    tls: ssl.SSLContext | None
    timeout: float
    most_bytes: int
    when_full: WhenFull
    on_failure: Callable[[Failure], object] | None


class HttpConnection(Closing):
    """A gateway and a queue for several reporters, with one thread that sends.

    Parameters
    ----------
    gateway : str
        The gateway's address, for instance ``"https://telemetry.example.com"``.
    queue : path, optional
        The file in which reports wait. It is created, readable by its owner only, and survives
        restarts; several processes may use it at once. Without a file reports wait in memory, and
        are lost if the process ends before they have arrived.
    relay, key : str, optional
        For metrics with a crowd: the address of the relay, and the public key for which reports are
        sealed, in 64 hexadecimal digits. Both must come with the application.
    token : str, optional
        A token with the scope `report`, if the gateway requires one. The relay does not get it.
    tls : SSLContext, optional
        A TLS context, for a certificate authority that the system does not know, or for a client
        certificate of the device.
    timeout : float
        Seconds that each step of a request may take.
    most_bytes : int
        The most bytes of all waiting reports: 16 MiB by default.
    when_full : {"refuse", "drop_new", "drop_old"}
        What happens to a report when `most_bytes` bytes wait. "refuse": `report` raises
        DeliveryError. "drop_new": the report is dropped before it is charged or randomized.
        "drop_old": the oldest batches are dropped. Dropped reports are counted.
    on_failure : callable, optional
        A function that is called with each :class:`~producers.http.posting_thread.Failure`, in the
        thread that sends.

    Attributes
    ----------
    url : str
        The address of the gateway.

    Raises
    ------
    TypeError, ValueError
        If a parameter cannot be used.
    QueueError
        If the file is damaged, foreign, or cannot be opened.
    ModuleNotFoundError
        If there is a relay, and the extra `crowds` is not installed.

    Examples
    --------
    >>> with HttpConnection("https://telemetry.example.com") as connection:
    ...     connection.url, connection.failures
    ('https://telemetry.example.com', 0)
    """

    def __init__(
        self,
        gateway: str,
        *,
        queue: str | Path | None = None,
        relay: str | None = None,
        key: str | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        most_bytes: int = MOST_BYTES,
        when_full: WhenFull = "refuse",
        on_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        client = GatewayClient(gateway, token, tls, timeout)
        self.url, self.is_secret = client.url, client.is_secret or client.is_on_this_machine
        if token is not None and not self.is_secret:
            logger.warning("gateway %s: the token is sent without TLS: use https://", self.url)
        if (relay is None) != (key is None):
            raise ValueError(f"relay = {relay!r}, key = {key!r}: expected both, or neither")
        self.relay = None if relay is None or key is None else Relay(relay, key, tls, timeout)
        self.path = None if queue is None else Path(queue)
        self.queue = ReportQueue(self.path, most_bytes, when_full)
        self.asking = GatewayClient(gateway, token, tls, timeout)  # asks while the thread posts
        self.definitions = GatewayDefinitions(self.queue.file, self.asking)
        self._on_failure = on_failure
        self.last_failure: Failure | None = None
        definitions = GatewayDefinitions(self.queue.file, client)
        self.background = Background(self.queue, client, definitions, self._note)
        self._backgrounds = [self.background]
        if self.relay is not None:
            self.relay.open_queue(self.queue, self._note)
            self._backgrounds.append(self.relay.background)
        self.calls, self.closed, self._process = Calls(), False, os.getpid()
        atexit.register(self._at_exit)

    @property
    def failures(self) -> int:
        """The number of failures in the background, of all threads."""
        return sum(background.failures for background in self._backgrounds)

    def _note(self, failure: Failure) -> None:
        self.last_failure = failure
        if self._on_failure is not None:
            self._on_failure(failure)

    def flush(self, metric: str | None = None, timeout: float = 30.0) -> None:
        """Send all waiting reports of `metric`, or of all metrics, until they are acknowledged.

        Raises DeliveryError if a batch is not acknowledged within `timeout` seconds. The batch is
        kept, and sent later.
        """
        deadline = time.monotonic() + timeout
        with self.calls.flushing():
            self.queue.seal(metric, deadline)
            if not self._drain(metric, deadline, patient=True):
                raise self.error(metric, are_kept=True)

    def _drain(self, metric: str | None, deadline: float, *, patient: bool) -> bool:
        """Wait for gateway and relay to acknowledge everything; return whether they have."""
        drained = [b.drain(metric, deadline, patient=patient) for b in self._backgrounds]
        return all(drained)

    def error(self, metric: str | None, *, are_kept: bool) -> DeliveryError:
        """Return the error for reports that were not delivered."""
        reports, batches = self.queue.left(metric)
        receiver = f"the gateway {self.url}"
        if self.relay is not None and not self.queue.left(metric, sealed=False)[0]:
            receiver = f"the relay {self.relay.url}"
        reason = "no answer in time"
        if self.last_failure is not None:
            reason = self.last_failure.detail.removesuffix(f": {WHAT_TO_CHECK_HTTP}")
        return DeliveryError(
            reports=reports,
            batches=batches,
            first_error=reason,
            receiver=receiver,
            check=WHAT_TO_CHECK_HTTP,
            kept=are_kept,
        )

    def finish(self, metric: str | None, deadline: float) -> int:
        """Send the waiting reports while the gateway accepts them; return how many still wait.

        Sending stops at the deadline (monotonic seconds); with a file, also at the first failure.
        Raises DeliveryError if reports are lost because they waited in memory.
        """
        try:
            self.queue.seal(metric, deadline)
        except QueueError as error:
            logger.warning("not all reports are in a batch yet: %s", error)
        if self._drain(metric, deadline, patient=self.path is None):
            return 0
        return self.unsent(metric)

    def unsent(self, metric: str | None) -> int:
        """Return the number of reports in the file; raise DeliveryError without a file."""
        if self.path is None:
            try:
                raise self.error(metric, are_kept=False)
            except QueueError:  # another thread has closed it since
                return self.calls.outcome() or 0
        reports, batches = self.queue.left(metric)
        logger.warning(
            "%d reports in %d batches wait in %s: the next reporter with this queue sends them",
            reports,
            batches,
            self.path,
        )
        return reports

    def close(self, timeout: float = CLOSE_TIMEOUT) -> int:
        """Wait for calls under way, send the rest within `timeout` seconds, and stop.

        If another thread is closing the connection, wait for it and return the same result. In a
        forked process nothing is done. Returns the number of reports that are left in the file.
        Raises DeliveryError if reports are lost because they waited in memory.
        """
        deadline = time.monotonic() + timeout
        if self._process != os.getpid():
            return 0
        try:
            return self.calls.close(deadline, lambda: self._stop(deadline)) or 0
        except TimeoutError:
            return self.unsent(None)

    def _stop(self, deadline: float) -> int:
        self.closed = True
        try:
            return self.finish(None, deadline)
        finally:
            self.background.stop(deadline)
            if self.relay is not None:
                self.relay.stop(deadline)
            self.asking.close()
            self.queue.close()
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        try:
            self.close(EXIT_TIMEOUT)
        except (DeliveryError, QueueError) as error:
            logger.error("a reporter was not closed before the program ended: %s", error)  # noqa: TRY400
