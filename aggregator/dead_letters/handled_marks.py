"""A bitmap in Redis which marks the dead letters that were replayed or dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any

from aggregator.dead_letters.reader import MessagePosition
from aggregator.storage.redis_keys import handled_key
from aggregator.storage.store import Store

LETTERS_PER_BITMAP = 1 << 16
"""The number of dead letters whose marks are in one bitmap, of at most 8 kB."""


class Marked(Container[MessagePosition]):
    """The positions that were marked when the bitmaps were read."""

    def __init__(self, chunks: Mapping[tuple[int, int], bytes]) -> None:
        self._chunks = chunks

    def __contains__(self, position: object) -> bool:
        """Return whether a position was marked."""
        if not isinstance(position, MessagePosition):
            return False
        chunk, bit = divmod(position.offset, LETTERS_PER_BITMAP)
        bits = self._chunks.get((position.partition, chunk), b"")
        return bit // 8 < len(bits) and bool(bits[bit // 8] >> 7 - bit % 8 & 1)


class HandledMarks:
    """The marks of one dead-letter topic.

    A topic that was deleted and created again has a new id, so the old marks do not apply to it.
    """

    def __init__(self, store: Store, topic: str, topic_id: str) -> None:
        self._client: Any = store.client
        self._prefix = handled_key(topic, topic_id)

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> Marked:
        """Return the marks of the dead letters in ranges.

        `ranges`: the first offset and the offset after the last, by partition.
        """
        wanted = [
            (number, chunk)
            for number, (low, high) in ranges.items()
            for chunk in range(low // LETTERS_PER_BITMAP, -(-high // LETTERS_PER_BITMAP))
        ]
        keys = [self._key(*chunk) for chunk in wanted]
        bitmaps = self._client.mget(keys) if keys else []
        return Marked({chunk: bits for chunk, bits in zip(wanted, bitmaps, strict=True) if bits})

    def mark(self, positions: Iterable[MessagePosition]) -> None:
        """Mark positions as handled; to mark a position again changes nothing."""
        by_chunk: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for position in positions:
            chunk, bit = divmod(position.offset, LETTERS_PER_BITMAP)
            by_chunk[position.partition, chunk].append(bit)
        with self._client.pipeline(transaction=False) as pipeline:
            for (number, chunk), bits in by_chunk.items():
                pipeline.sadd(self._prefix, f"{number}:{chunk}")
                for bit in bits:
                    pipeline.setbit(self._key(number, chunk), bit, 1)
            pipeline.execute()

    def delete_expired(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Delete the marks of letters that retention has deleted; `ranges`: as in :meth:`read`."""
        for member in self._client.smembers(self._prefix):
            number, chunk = map(int, member.split(b":"))
            if number in ranges and (chunk + 1) * LETTERS_PER_BITMAP <= ranges[number][0]:
                self._client.delete(self._key(number, chunk))
                self._client.srem(self._prefix, member)

    def _key(self, number: int, chunk: int) -> str:
        return f"{self._prefix}:{number}:{chunk}"
