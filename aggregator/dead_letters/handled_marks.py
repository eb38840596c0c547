"""A bitmap in Redis of the dead letters that were replayed or dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any

from aggregator.dead_letters.reader import Place
from aggregator.storage.redis_keys import handled_key
from aggregator.storage.store import Store

CHUNK = 1 << 16
"""Letters in one bitmap: 8 kB at most."""


class Marked(Container[Place]):
    """The places that were marked when it was read."""

    def __init__(self, chunks: Mapping[tuple[int, int], bytes]) -> None:
        self._chunks = chunks

    def __contains__(self, place: object) -> bool:
        """Whether a place was marked."""
        if not isinstance(place, Place):
            return False
        chunk, bit = divmod(place.offset, CHUNK)
        bits = self._chunks.get((place.partition, chunk), b"")
        return bit // 8 < len(bits) and bool(bits[bit // 8] >> 7 - bit % 8 & 1)


class HandledMarks:
    """The marks of one dead-letter topic.

    A topic that is deleted and created again has another id, and marks of its own.

    Parameters
    ----------
    store : Store
    topic : str
        The dead-letter topic.
    topic_id : str
        Kafka's; empty where the cluster does not tell.
    """

    def __init__(self, store: Store, topic: str, topic_id: str) -> None:
        self._client: Any = store.client
        self._prefix = handled_key(topic, topic_id)

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> Marked:
        """Return the marks in ranges of offsets, by partition."""
        wanted = [
            (number, chunk)
            for number, (low, high) in ranges.items()
            for chunk in range(low // CHUNK, -(-high // CHUNK))
        ]
        found = self._client.mget([self._key(*one) for one in wanted]) if wanted else []
        return Marked({one: bits for one, bits in zip(wanted, found, strict=True) if bits})

    def mark(self, places: Iterable[Place]) -> None:
        """Mark places; marking one twice is no harm."""
        by_chunk: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for place in places:
            by_chunk[place.partition, place.offset // CHUNK].append(place.offset % CHUNK)
        with self._client.pipeline(transaction=False) as pipeline:
            for (number, chunk), bits in by_chunk.items():
                pipeline.sadd(self._prefix, f"{number}:{chunk}")
                for bit in bits:
                    pipeline.setbit(self._key(number, chunk), bit, 1)
            pipeline.execute()

    def forget(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Delete the marks of what retention has deleted."""
        for member in self._client.smembers(self._prefix):
            number, chunk = map(int, member.split(b":"))
            if number in ranges and (chunk + 1) * CHUNK <= ranges[number][0]:
                self._client.delete(self._key(number, chunk))
                self._client.srem(self._prefix, member)

    def _key(self, number: int, chunk: int) -> str:
        return f"{self._prefix}:{number}:{chunk}"
