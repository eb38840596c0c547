"""A consumer for queries of logs, replaced after an unanswered query."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer


class RenewedConsumer:
    """Holds a consumer, and replaces it after an unanswered query.

    librdkafka 2.16 has stayed in "all broker connections are down" for more than 20 minutes after a
    broker was frozen and came back, while other clients of the process worked.
    """

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        self._connect = connect
        self._current: Consumer | None = None

    @property
    def current(self) -> Consumer:
        """The consumer for the next query."""
        if self._current is None:
            self._current = self._connect()
        return self._current

    def renew(self) -> None:
        """Close the consumer; the next query gets a new one."""
        if self._current is not None:
            self._current.close()
        self._current = None

    def close(self) -> None:
        """Close the consumer."""
        self.renew()
