"""The protocol of transports, which send reports to Kafka, a gateway or a relay."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from producers.delivery.batches import Columns, Delivered, PendingBatch


class DeviceFile(Protocol):
    """A file on the device, whose content survives a restart."""

    def transaction(self, *, erasing: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Provide the database for a transaction.

        `erasing`: whether no file may contain the deleted data afterwards.
        """


class Transport(Protocol):
    """Makes batches of a reporter's reports, and sends them until they are acknowledged."""

    @property
    def delivered(self) -> Delivered:
        """Reports, batches and bytes that have been acknowledged so far."""

    @property
    def is_closed(self) -> bool:
        """Whether the transport is closed, so that nothing more is sent."""

    @property
    def key(self) -> bytes | None:
        """The key of all batches; None if the key of each batch is its id."""

    @property
    def file(self) -> DeviceFile | None:
        """The file in which reports wait; None without one."""

    def has_capacity(self, reports: int) -> bool:
        """Return whether there is room for `reports` reports; if not, count them as dropped.

        Raises DeliveryError if there is no room and nothing may be dropped, or if earlier reports
        have failed.
        """

    def buffer(self, panes: Iterable[tuple[int, Columns]]) -> None:
        """Put reports into batches; each item has the start of a pane in ms, and its reports."""

    def send(self, batch: PendingBatch) -> None:
        """Send a batch."""

    def serve(self, call: Callable[[], float]) -> None:
        """Let the sending thread call a function, which returns the seconds until its next call."""

    def flush(self, deadline: float) -> None:
        """Send everything; raise DeliveryError if it is not acknowledged in time."""

    def close(self, deadline: float) -> int | None:
        """Flush, then send nothing more; return how many reports wait in the file.

        Raises DeliveryError if reports are lost.
        """

    def unsent(self) -> int | None:
        """Return what `close` would return now, or raise its error, while another thread closes."""
