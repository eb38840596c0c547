"""Selects dead letters by their fields and by bitmaps of what was handled, and counts them."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from aggregator.dead_letters.reader import DeadLetter, MessagePosition
from aggregator.storage import parsing
from aggregator.storage.parsing import Command
from aggregator.storage.redis_keys import handled_key
from aggregator.storage.store import Store

MAX_KINDS = 1_000
"""The most kinds that are counted separately, as anybody can invent names of metrics."""
OTHER_KINDS = "(others)"
LETTERS_PER_BITMAP = 1 << 16
"""The number of dead letters whose marks are in one bitmap, of at most 8 kB."""


@dataclasses.dataclass(frozen=True)
class Filters:
    """The fields of the selected dead letters; None or an empty tuple admits all values."""

    reasons: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    since: float | None = None  # seconds since the epoch of the arrival in Kafka
    until: float | None = None  # the first time after the selected ones
    partitions: tuple[int, ...] = ()  # of the reports topic

    def __bool__(self) -> bool:
        """Return whether any filter is set."""
        return self != Filters()

    def admits(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter is selected."""
        seconds = letter.arrived / 1000
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.partitions or letter.origin.partition in self.partitions)
            and (self.since is None or seconds >= self.since)
            and (self.until is None or seconds < self.until)
            and (not self.metrics or letter.metric in self.metrics)
        )


@dataclasses.dataclass
class LetterKind:
    """Dead letters of one reason and metric.

    Attributes
    ----------
    oldest, newest : int
        Arrival times in Kafka, in ms.
    letters, reports : int
        The number of letters, and of the reports in them; a letter counts as one report at least.
    """

    oldest: int
    newest: int
    letters: int = 0
    reports: int = 0

    def add(self, letter: DeadLetter) -> None:
        """Count one more dead letter of this kind."""
        self.letters += 1
        self.reports += max(1, len(letter.batch.levels)) if letter.batch else 1
        self.oldest = min(self.oldest, letter.arrived)
        self.newest = max(self.newest, letter.arrived)


class Selection:
    """The selected dead letters that were not yet handled; an iteration counts them.

    Attributes
    ----------
    kinds : dict of (str, str) to LetterKind
        The kinds of letters, by reason and metric.
    handled : int
        The number of matching dead letters that were replayed or dropped.
    """

    def __init__(
        self, letters: Iterable[DeadLetter], filters: Filters, marked: Container[MessagePosition]
    ) -> None:
        self._letters, self._filters, self._marked = letters, filters, marked
        self.kinds: dict[tuple[str, str], LetterKind] = {}
        self.handled = 0

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield the selected letters in the topic's order, and count them."""
        for letter in self._letters:
            if not self._filters.admits(letter):
                continue
            if letter.position in self._marked:
                self.handled += 1
                continue
            self._count(letter)
            yield letter

    def first(self, limit: int) -> list[DeadLetter]:
        """Iterate over all letters, so that they are counted, and return the first `limit`."""
        everything = iter(self)
        first_letters = list(itertools.islice(everything, limit))
        for _ in everything:
            pass
        return first_letters

    @property
    def total(self) -> int:
        """The number of letters that iterations have counted."""
        return sum(kind.letters for kind in self.kinds.values())

    def largest(self) -> list[tuple[str, str, LetterKind]]:
        """Return the reason, metric and counts of each kind, the kind with most letters first."""
        order = sorted(self.kinds.items(), key=lambda item: (-item[1].letters, item[0]))
        return [(reason, metric, kind) for (reason, metric), kind in order]

    def _count(self, letter: DeadLetter) -> None:
        name = letter.reason, letter.metric
        if name not in self.kinds:
            if len(self.kinds) >= MAX_KINDS:
                name = letter.reason, OTHER_KINDS
            self.kinds.setdefault(name, LetterKind(letter.arrived, letter.arrived))
        self.kinds[name].add(letter)


class Marked(Container[MessagePosition]):
    """The positions that were marked when the bitmaps were read."""

    def __init__(self, chunks: Mapping[tuple[int, int], bytes]) -> None:
        self._chunks = chunks

    def __contains__(self, position: Any) -> bool:
        """Return whether a position was marked."""
        chunk, bit = divmod(position.offset, LETTERS_PER_BITMAP)
        bits = self._chunks.get((position.partition, chunk), b"")
        return bit // 8 < len(bits) and bool(bits[bit // 8] >> 7 - bit % 8 & 1)


class HandledMarks:
    """The marks of one dead-letter topic.

    A topic that was deleted and created again has a new id, so the old marks do not apply to it.
    """

    def __init__(self, store: Store, topic: str, topic_id: str) -> None:
        self._store = store
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
        bitmaps = self._store.ask([("GET", self._key(*chunk)) for chunk in wanted])
        return Marked({chunk: bits for chunk, bits in zip(wanted, bitmaps, strict=True) if bits})

    def mark(self, positions: Iterable[MessagePosition]) -> None:
        """Mark positions as handled; to mark a position again changes nothing."""
        by_chunk: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for position in positions:
            chunk, bit = divmod(position.offset, LETTERS_PER_BITMAP)
            by_chunk[position.partition, chunk].append(bit)
        commands: list[Command] = []
        for (number, chunk), bits in by_chunk.items():
            commands.append(("SADD", self._prefix, f"{number}:{chunk}"))
            commands += [("SETBIT", self._key(number, chunk), bit, 1) for bit in bits]
        self._store.ask(commands)

    def delete_expired(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Delete the marks of letters that retention has deleted; `ranges`: as in :meth:`read`."""
        for member in self._store.members(self._prefix):
            number, chunk = parsing.start(self._prefix, member)
            if number in ranges and (chunk + 1) * LETTERS_PER_BITMAP <= ranges[number][0]:
                self._store.ask([("DEL", self._key(number, chunk)), ("SREM", self._prefix, member)])

    def _key(self, number: int, chunk: int) -> str:
        return f"{self._prefix}:{number}:{chunk}"
