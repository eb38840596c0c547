"""Limits the memory of the posts in the gateway: a post reserves memory before it uses it."""

from __future__ import annotations

from producers.gateway.problems import POST_AGAIN, Problem, unavailable


class Memory:
    """The memory of all posts in progress, in bytes; `receiver` names what the posts wait for."""

    def __init__(self, max_bytes: int, receiver: str = "Kafka") -> None:
        self.max_bytes, self.receiver, self.reserved = max_bytes, receiver, 0

    def full(self) -> Problem:
        """Return the answer to a post for which there is no memory."""
        problem = (
            f"{self.reserved} bytes of reports wait for {self.receiver}, which is slow or away"
        )
        return unavailable(problem, POST_AGAIN)


class Hold:
    """The bytes that a post, or a batch of a post, has reserved."""

    __slots__ = ("bytes", "memory")

    def __init__(self, memory: Memory) -> None:
        self.memory, self.bytes = memory, 0

    def reserve(self, more: int) -> None:
        """Reserve more bytes; raise Problem (503) if all posts together would exceed the limit."""
        if self.memory.reserved + more > self.memory.max_bytes:
            raise self.memory.full()
        self.memory.reserved += more
        self.bytes += more

    def give_back(self, count: int) -> None:
        """Release some of the bytes."""
        self.memory.reserved -= count
        self.bytes -= count

    def release(self) -> None:
        """Release all of the bytes; a second call does nothing."""
        self.give_back(self.bytes)
