"""A consumer that answers questions about logs, and is replaced when it could not."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer


class RenewedConsumer:
    """Holds a consumer; whoever got no answer from it has it replaced before the next question.

    librdkafka 2.16 has kept a client for more than 20 minutes in "all broker connections are down",
    after a broker was frozen and came back, while other clients of the same process worked.

    Parameters
    ----------
    connect : callable
        Returns a new consumer.
    """

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        self._connect = connect
        self._current: Consumer | None = None

    @property
    def current(self) -> Consumer:
        """The consumer that is to be asked now."""
        if self._current is None:
            self._current = self._connect()
        return self._current

    def renew(self) -> None:
        """Close the consumer; the next question goes to a new one."""
        if self._current is not None:
            self._current.close()
        self._current = None

    def close(self) -> None:
        """Close it."""
        self.renew()
