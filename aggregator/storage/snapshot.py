"""Reads a partition's whole state from Redis, and checks that its parts agree.

Ids of batches are read in pieces: Redis answers nobody else while it copies a value.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aggregator.errors import StateUnreadable
from aggregator.state.admission import ANY_AGE
from aggregator.state.pane import Pane, Uses
from aggregator.state.pane_keys import PaneKey, counted_metric
from aggregator.state.partition import Partition
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing
from aggregator.storage.commands import Command
from aggregator.storage.progress import TORN, UNSET
from estimators import Metric

PIECE_BYTES = 2**20
"""Of ids that one command reads: whole ids."""
ROUND_PIECES = 4
"""Of this size, or as many bytes in more of them, are asked for at once."""
ROUND_COMMANDS = 1_000


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A partition's state as the store has it, in one consistent piece.

    Attributes
    ----------
    prefix : str
        Of the partition's keys.
    owner : dict of str to str
        ``epoch``, ``next``, ``begin``, ``topic_id``, ``worker``, ``high``, ``halted``, ``gap``,
        ``partitions``.
    watermarks : dict of str to Watermark
        By metric key.
    counts : dict of str to int
        Reports by ``outcome:metric``.
    open : dict of PaneKey to (int, bytes, set of bytes)
        First offset, statistic and counted batch ids of each open pane.
    used : dict of PaneKey to dict of bytes to int
        How many reports of each message key were counted in it, where the metric has a limit.
    gone : str
        The key of an open pane's statistic, or of its batch ids, that is not there.
    """

    prefix: str
    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]
    open: dict[PaneKey, tuple[int, bytes, set[bytes]]]
    used: dict[PaneKey, Uses] = dataclasses.field(default_factory=dict)
    gone: str = ""

    @classmethod
    def of(cls, prefix: str, found: Any) -> Snapshot:
        """Return what ``snapshot.lua`` has read, its panes with their ids by :func:`with_ids`.

        Raises
        ------
        StateUnreadable
            If something in it is not as it was written.
        """
        facts, marks, numbers, panes, *_ = found
        kept, used, gone = {}, {}, ""
        for member, value, seen, uses in panes:
            key, first = parsing.opened(f"{prefix}:open", member)
            if key in kept:
                raise StateUnreadable(f"{prefix}:open", f"two of {key}", "every open pane once")
            ids = set() if seen is None else parsing.batch_ids(f"{prefix}:seen:{key}", seen)
            kept[key] = first, value or b"", ids
            if value is None:
                gone = f"{prefix}:{key}"
            elif key.grain == "pane" and seen is None:
                gone = f"{prefix}:seen:{key}"
            place = f"{prefix}:keys:{key}"
            used[key] = {
                name: parsing.integer(place, count, 1) for name, count in pairs(uses).items()
            }
        snapshot = cls(
            prefix,
            parsing.owner(f"{prefix}:owner", pairs(facts)),
            parsing.watermarks(f"{prefix}:watermarks", pairs(marks)),
            parsing.counts(f"{prefix}:counts", pairs(numbers)),
            kept,
            used,
            gone,
        )
        if snapshot.next_offset != TORN:
            snapshot._check()
        return snapshot

    @property
    def next_offset(self) -> int:
        """The first offset that is not counted, UNSET or TORN."""
        if self.owner.get("begun") != self.owner.get("done"):
            return TORN
        return int(self.owner.get("next", UNSET))

    def partition(
        self, metrics: Mapping[str, Metric], future_ms: int, past_ms: int = ANY_AGE
    ) -> Partition:
        """Return the partition in memory, ready to count on from here.

        Parameters
        ----------
        metrics : mapping of str to Metric
            By name, as they are defined now.
        future_ms, past_ms : int
            How far event times may be ahead of, and behind, Kafka's timestamp.
        """
        partition = Partition(metrics, future_ms, past_ms)
        partition.next_offset = max(0, self.next_offset)
        partition.watermarks.update(self.watermarks)
        partition.counts.update(self.counts)
        for key, (first_offset, value, seen) in self.open.items():
            metric = counted_metric(metrics, key.metric)
            if metric is not None:
                sums = parsing.pane(f"{self.prefix}:{key}", key, value, metric).copy()
                used = dict(self.used.get(key, {}))
                partition.panes[key] = Pane(
                    metric, first_offset, sums, seen, used=used, changed=False
                )
        return partition

    def _check(self) -> None:
        """See whether a key is gone: what the others say of it would be counted twice, or lost."""
        if self.next_offset == UNSET and (self.open or self.watermarks or self.counts):
            raise StateUnreadable(f"{self.prefix}:owner", "no field next", "the next offset")
        accepted = {n for n, v in self.counts.items() if n.startswith("accepted:") and v}
        if accepted and not self.open:
            expected = "the panes that are open, of which there always are some"
            raise StateUnreadable(f"{self.prefix}:open", "nothing", expected)
        for key in self.open:
            if key.question not in self.watermarks:
                place = f"{self.prefix}:watermarks"
                raise StateUnreadable(place, f"no field {key.question}", "that of an open pane")
            if (name := f"accepted:{key.metric.partition('@')[0]}") not in accepted:
                raise StateUnreadable(f"{self.prefix}:counts", f"no field {name}", "its reports")


def with_ids(
    ask: Callable[[Sequence[Command]], list[Any]], prefix: str, panes: Sequence[Any]
) -> list[list[Any]]:
    """Return open panes with the pieces of their batch ids; None where these are gone.

    Parameters
    ----------
    ask : callable
        Runs commands in one round trip.
    prefix : str
        Of the partition's keys.
    panes : sequence of sequences
        The member of the set of open panes, the statistic, the size of the ids in bytes, and the
        hash of message keys. What was added to the ids since their size was told is left out.
    """
    pieces: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for together in _rounds(prefix, panes):
        replies = ask([command for _, command in together])
        for (member, _), reply in zip(together, replies, strict=True):
            pieces[member].append(reply)
    return [
        [member, value, found if size and sum(map(len, found)) == size else None, uses]
        for member, value, size, uses in panes
        for found in [pieces[member]]
    ]


def _rounds(prefix: str, panes: Sequence[Any]) -> Iterator[list[tuple[bytes, Command]]]:
    """Yield the commands that read ids, those of a round trip together, each with its pane."""
    together: list[tuple[bytes, Command]] = []
    waiting = 0
    for member, _, size, _ in panes:
        key = f"{prefix}:seen:{member.rpartition(b':')[0].decode(errors='replace')}"
        for first in range(0, size, PIECE_BYTES):
            end = min(first + PIECE_BYTES, size)
            if waiting + end - first > ROUND_PIECES * PIECE_BYTES or (
                len(together) == ROUND_COMMANDS
            ):
                yield together
                together, waiting = [], 0
            together.append((member, ("GETRANGE", key, first, end - 1)))
            waiting += end - first
    if together:
        yield together


def pairs(flat: list[bytes] | Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Return a hash as a script or a command returns it."""
    if isinstance(flat, Mapping):
        return flat
    return dict(zip(flat[::2], flat[1::2], strict=True))
