"""A snapshot: reads a partition's whole state with its ids, and checks that its parts agree.

The ids of a pane's batches are in chunks, to which commits append
(:mod:`aggregator.storage.commit`); a pane may also have ids in one value, ``P:seen:PANE``.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aggregator.errors import StateUnreadable
from aggregator.size_pieces import pieces
from aggregator.state.admission import ANY_AGE
from aggregator.state.batch_ids import BatchIds, as_ids
from aggregator.state.pane import Pane, Uses
from aggregator.state.pane_keys import PaneKey, counted_metric
from aggregator.state.partition import Partition
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing
from aggregator.storage.commit import chunks
from aggregator.storage.parsing import Ask, Command
from aggregator.storage.progress import TORN, UNSET
from estimators import Metric
from producers.wire.batch import BATCH_ID_BYTES

MAX_PANE_IDS = 2**48
PIECE_BYTES = 2**20
"""Bytes that one command reads of a value with all ids; a multiple of the size of an id."""
ROUND_BYTES = 2**22
"""The most bytes that one round trip reads."""
ROUND_COMMANDS = 1_000
MERGE_DIVISOR = 5
"""Ids that were read are sorted, and merged into the others, once they are a fifth as many."""
EXPECTED_IDS = f"batch ids of {BATCH_ID_BYTES} bytes, each once"
PANES_PER_READ = 300
"""Open panes read in one round trip."""
USES_PER_SCAN = 5_000
"""Message keys of a pane read by one command, which blocks Redis for about 5 ms."""


@dataclasses.dataclass
class OpenPane:
    """An open pane as it is stored; :func:`read_ids` adds its ids."""

    key: PaneKey
    first_offset: int
    statistic: bytes | None  # None if it is missing
    unchunked_bytes: int  # of ids in one value
    chunked: int  # number of ids in chunks
    used: Uses  # reports by message key, where the metric has a limit
    ids: BatchIds = dataclasses.field(default_factory=BatchIds)
    gone: str = ""  # the key at which ids are missing; "" if none are

    def missing_key(self, prefix: str) -> str:
        """Return the key of the missing statistic or ids; "" if nothing is missing."""
        if self.statistic is None:
            return f"{prefix}:{self.key}"
        has_no_ids = self.key.grain == "pane" and not self.ids
        return self.gone or (f"{prefix}:seen:{self.key}" if has_no_ids else "")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """One consistent state of a partition as stored."""

    prefix: str
    owner: dict[str, str]  # epoch, next, begin, topic_id, worker, high, halted, gap, partitions
    watermarks: dict[str, Watermark]  # by metric key
    counts: dict[str, int]  # reports by ``outcome:metric``
    open: dict[PaneKey, OpenPane]
    uncounted: Collection[bytes] = ()  # open panes of other definitions, which were not read

    @classmethod
    def of(
        cls,
        prefix: str,
        hashes: Sequence[Any],
        panes: Sequence[OpenPane],
        uncounted: Collection[bytes] = (),
    ) -> Snapshot:
        """Return a snapshot made of the replies of a read.

        `prefix`: the beginning of the keys of the partition; `hashes`: the owner, the watermarks
        and the counts; `panes`: the open panes, with their ids from :func:`read_ids`; `uncounted`:
        the members of open panes that were not read. Raises StateUnreadable if stored values
        contradict each other.
        """
        owner, marks, counts = map(pairs, hashes[:3])
        open_panes: dict[PaneKey, OpenPane] = {}
        for pane in panes:
            if open_panes.setdefault(pane.key, pane) is not pane:
                raise StateUnreadable(f"{prefix}:open", f"{pane.key} twice", "every open pane once")
        snapshot = cls(
            prefix,
            parsing.owner(f"{prefix}:owner", owner),
            parsing.watermarks(f"{prefix}:watermarks", marks),
            parsing.counts(f"{prefix}:counts", counts),
            open_panes,
            uncounted,
        )
        if snapshot.next_offset != TORN:
            snapshot._check()
        return snapshot

    @property
    def gone(self) -> str:
        """The key of a missing statistic, or of missing ids; "" if nothing is missing."""
        missing_keys = (pane.missing_key(self.prefix) for pane in self.open.values())
        return next(filter(None, missing_keys), "")

    @property
    def next_offset(self) -> int:
        """The next offset to count, UNSET or TORN."""
        if self.owner.get("begun") != self.owner.get("done"):
            return TORN
        return int(self.owner.get("next", UNSET))

    def partition(
        self, metrics: Mapping[str, Metric], future_ms: int, past_ms: int = ANY_AGE
    ) -> Partition:
        """Return the partition in memory, from which counting continues.

        Parameters
        ----------
        metrics : mapping of str to Metric
            The current definitions, by name.
        future_ms, past_ms : int
            How far event times may be ahead of, and behind, Kafka's timestamp.
        """
        partition = Partition(metrics, future_ms, past_ms)
        partition.next_offset = max(0, self.next_offset)
        partition.watermarks.update(self.watermarks)
        partition.counts.update(self.counts)
        for key, opened in self.open.items():
            metric = counted_metric(metrics, key.metric)
            if metric is not None:
                statistic = opened.statistic or b""
                sums = parsing.pane(f"{self.prefix}:{key}", key, statistic, metric).copy()
                pane = Pane(metric, opened.first_offset, sums, opened.ids, used={**opened.used})
                pane.unchunked = opened.unchunked_bytes // BATCH_ID_BYTES
                partition.restore(key, pane)
        return partition

    def _check(self) -> None:
        """Raise StateUnreadable if a key is missing that other keys imply."""
        has_open = self.open or self.uncounted
        if self.next_offset == UNSET and (has_open or self.watermarks or self.counts):
            raise StateUnreadable(f"{self.prefix}:owner", "no field next", "the next offset")
        accepted = {n for n, v in self.counts.items() if n.startswith("accepted:") and v}
        if accepted and not has_open:
            raise StateUnreadable(f"{self.prefix}:open", "nothing", "at least one open pane")
        for key in self.open:
            if key.question not in self.watermarks:
                marks = f"{self.prefix}:watermarks"
                raise StateUnreadable(marks, f"no field {key.question}", "that of an open pane")
            if (name := f"accepted:{key.metric.partition('@')[0]}") not in accepted:
                raise StateUnreadable(f"{self.prefix}:counts", f"no field {name}", "its reports")


def open_pane(
    prefix: str,
    member: bytes,
    statistic: bytes | None,
    unchunked_bytes: int,
    chunked: Mapping[bytes, bytes],
    uses: Any,
) -> OpenPane:
    """Return an open pane without its ids.

    `prefix`: the beginning of the keys of the partition; `member`: the pane in the set of open
    panes; `statistic`: the stored statistic; None if there is none; `unchunked_bytes`: the bytes of
    ids in one value; `chunked`: the number of ids in the chunks of each pane; `uses`: the reports
    by message key.
    """
    key, first_offset = parsing.opened(f"{prefix}:open", member)
    ids = parsing.integer(f"{prefix}:ids", chunked.get(str(key).encode(), b"0"), 0, MAX_PANE_IDS)
    used = {
        name: parsing.integer(f"{prefix}:keys:{key}", count, 1)
        for name, count in pairs(uses).items()
    }
    return OpenPane(key, first_offset, statistic, unchunked_bytes, ids, used)


def read_panes(
    ask: Ask,
    prefix: str,
    members: Sequence[bytes],
    chunked: Mapping[bytes, bytes],
    metrics: Mapping[str, Metric] | None = None,
) -> list[OpenPane]:
    """Return open panes, read in several round trips; only the panes' owner may call this.

    `ask`: runs commands in one round trip; `prefix`: the beginning of the keys of the partition;
    `members`: members of the set of open panes; `chunked`: the number of batch ids in chunks, by
    pane; `metrics`: the current definitions, by name: message keys are read only where a definition
    limits them. By default they are read for every pane.
    """
    limited = {name for name, m in (metrics or {}).items() if m.max_key_reports is not None}

    def has_uses(key: PaneKey) -> bool:
        return key.grain == "pane" and (metrics is None or key.metric.partition("@")[0] in limited)

    panes = []
    for first in range(0, len(members), PANES_PER_READ):
        page = members[first : first + PANES_PER_READ]
        keys = [parsing.opened(f"{prefix}:open", member)[0] for member in page]
        commands: list[Command] = []
        for key in keys:
            commands.append(("GET", f"{prefix}:{key}"))
            if key.grain == "pane":  # other panes have no ids
                commands.append(("STRLEN", f"{prefix}:seen:{key}"))
            if has_uses(key):
                commands.append(_scan(prefix, key, 0))
        replies = iter(ask(commands))
        for member, key in zip(page, keys, strict=True):
            statistic, used = next(replies), dict[bytes, bytes]()
            unchunked = next(replies) if key.grain == "pane" else 0
            if has_uses(key):
                cursor, used = next(replies)
                while cursor:
                    ((cursor, more),) = ask([_scan(prefix, key, cursor)])
                    used.update(more)
            panes.append(open_pane(prefix, member, statistic, unchunked, chunked, used))
    return panes


def _scan(prefix: str, key: PaneKey, cursor: int) -> Command:
    return ("HSCAN", f"{prefix}:keys:{key}", cursor, "COUNT", USES_PER_SCAN)


def pairs(flat: list[bytes] | Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Return the fields of a hash from the reply of a script or a command."""
    if isinstance(flat, Mapping):
        return flat
    return dict(zip(flat[::2], flat[1::2], strict=True))


def read_ids(ask: Ask, prefix: str, panes: Sequence[OpenPane]) -> None:
    """Add the ids of open panes, except ids that were stored after the panes were read.

    `ask`: runs commands in one round trip; `prefix`: the beginning of the keys of the partition;
    `panes`: the open panes. Raises StateUnreadable if an id is repeated, or a value has a wrong
    size.
    """
    replies = _replies(ask, _reads(prefix, panes))
    for number, pane_replies in itertools.groupby(replies, lambda answered: answered[0].pane):
        pane, waiting, waiting_bytes = panes[number], list[bytes](), 0
        for read, reply in pane_replies:
            if not reply:
                pane.gone = pane.gone or read.key
                continue
            if len(reply) < read.size or read.size % BATCH_ID_BYTES:
                raise StateUnreadable(read.key, f"{len(reply)} bytes", EXPECTED_IDS)
            waiting.append(reply)
            waiting_bytes += read.size
            if waiting_bytes >= max(ROUND_BYTES, len(pane.ids) * BATCH_ID_BYTES // MERGE_DIVISOR):
                pane.ids.load(as_ids(waiting))
                waiting, waiting_bytes = [], 0
        pane.ids.load(as_ids(waiting))
        if pane.ids.has_repeats():
            raise StateUnreadable(f"{prefix}:seen:{pane.key}", "an id twice", EXPECTED_IDS)


class _Read(NamedTuple):
    pane: int
    key: str
    first: int
    size: int


def _reads(prefix: str, panes: Sequence[OpenPane]) -> Iterator[_Read]:
    for number, pane in enumerate(panes):
        key = f"{prefix}:seen:{pane.key}"
        for first in range(0, pane.unchunked_bytes, PIECE_BYTES):
            yield _Read(number, key, first, min(PIECE_BYTES, pane.unchunked_bytes - first))
        for chunk, ids in chunks(prefix, pane.key, pane.chunked):
            yield _Read(number, chunk, 0, ids * BATCH_ID_BYTES)


def _replies(ask: Ask, reads: Iterable[_Read]) -> Iterator[tuple[_Read, bytes]]:
    """Yield each read with its reply; a round trip reads at most ROUND_BYTES."""
    for group in pieces(reads, operator.attrgetter("size"), ROUND_BYTES, ROUND_COMMANDS):
        ranges = [("GETRANGE", read.key, read.first, read.first + read.size - 1) for read in group]
        yield from zip(group, ask(ranges), strict=True)
