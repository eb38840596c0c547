"""What the store must hold: replays of the log, compared after every commit and at the end."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import TopicPartition

from aggregator.counting.continuity import KnownProgress
from aggregator.counting.measurements import Measurements
from aggregator.state.pane_keys import metric_key
from aggregator.state.partition import Partition
from aggregator.state.slice_tables import decode_rows
from estimators.estimate import Counts
from tests.models.simulation.cluster import Cluster, Message
from tests.models.simulation.traffic import FUTURE_MS, METRICS, ONE_EACH
from tests.models.simulation.world import World
from tests.support import redis_contents

CHUNK_IDS = 3
"""Of a chunk of batch ids, in place of thousands: schedules have a few dozen."""
OPEN_ENDED = metric_key(ONE_EACH.name, ONE_EACH.revision)


class Stretch(NamedTuple):
    """A piece of a log: the offsets in [start, stop) of one of the topics of that name."""

    incarnation: int
    start: int
    stop: int


Counted = tuple[Stretch, ...]
"""What a state was counted from."""
Facts = Mapping[bytes, bytes]
"""What the hash of a partition's owner has."""


class Violation(AssertionError):  # noqa: N818
    """The product broke a promise."""


@dataclasses.dataclass
class Expected:
    """A replay of a log.

    Attributes
    ----------
    contents : dict
        The keys that the store must have, without the partition's tag.
    refused : list of (Message, str)
        What must be in the dead letters, with the reason.
    messages : int
        How many were counted.
    """

    contents: dict[bytes, Any]
    refused: list[tuple[Message, str]]
    messages: int


@dataclasses.dataclass
class Replay:
    """A replay that can go on."""

    counted: Counted = ()
    state: Partition = dataclasses.field(default_factory=lambda: Partition(METRICS, FUTURE_MS))
    refused: list[tuple[Message, str]] = dataclasses.field(default_factory=list)
    messages: int = 0

    def goes_on(self, counted: Counted) -> bool:
        """Whether what it counted is the beginning of this."""
        if not self.counted:
            return True
        *whole, last = self.counted
        if len(counted) < len(self.counted) or list(counted[: len(whole)]) != whole:
            return False
        same = counted[len(whole)]
        return same[:2] == last[:2] and same.stop >= last.stop


class Ledger:
    """Watches the store and compares it with the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster: Cluster
        self.client: Any  # of redis-py
        self.epochs: dict[tuple[str, int], int] = {}
        self.takes: dict[tuple[str, int, int], int] = {}
        self.memories: dict[tuple[str, int, int], TopicPartition | None] = {}
        self.commits = self.known = 0
        self._expected: dict[tuple[int, Counted], Expected] = {}
        self._replays: dict[int, Replay] = {}
        self._delivered: set[tuple[int, int, str, bytes | None]] = set()
        self._read = 0

    # -- What the models tell -------------------------------------------------------------------

    def acquired(self, worker: str, tag: bytes, epoch: int) -> None:
        """Note which epoch a worker was told."""
        self.epochs[worker, partition_of(tag)] = epoch

    def asked(self, worker: str, partition: int, low: int) -> None:
        """Note what a worker was told of the log."""
        epoch = self.epochs[worker, partition]
        self.takes[worker, partition, epoch] = low

    def remembered(self, worker: str, partition: int, known: TopicPartition | None) -> None:
        """Note what the group remembers of a partition that the store forgot."""
        self.memories[worker, partition, self.epochs.get((worker, partition), 0)] = known

    def torn(self, tag: bytes) -> None:
        """Note that a commit failed half-way."""
        self.client.delete(_counted_key(partition_of(tag)))

    def committed(
        self, worker: str, tag: bytes, words: tuple[bytes, ...], before: Facts, reply: Any
    ) -> None:
        """Compare what a commit has made of the store with a replay of the log."""
        number, outcome = partition_of(tag), reply[0]
        epoch, expected, following = map(int, words[:3])
        self.world.note(worker, outcome.decode(), (number, epoch, expected, following))
        if outcome == b"known":
            self.known += 1
        is_mine = int(reply[1]) == epoch and before.get(b"token") == words[3]
        if outcome == b"fenced" and is_mine and int(reply[2]) == following:
            raise Violation(f"{worker} was fenced by its own commit in partition {number}")
        if outcome != b"ok":
            return
        self.commits += 1
        owner = self.client.hgetall(tag + b":owner")
        _equal("whose commit was taken", worker.encode(), owner[b"worker"])
        if following == -1:
            if not owner[b"halted"]:
                raise Violation(f"partition {number} of which nothing is stored just stays so")
            return
        counted = self._counted(worker, number, epoch, following, before, owner)
        self.client.set(_counted_key(number), json.dumps(counted))
        self.compare(number)

    # -- Comparing ------------------------------------------------------------------------------

    def _counted(
        self, worker: str, number: int, epoch: int, following: int, before: Facts, owner: Facts
    ) -> Counted:
        """Return what the store was counted from after a commit, as its facts say."""
        low = self.takes.get((worker, number, epoch))
        if low is None:
            raise Violation(f"{worker} commits partition {number} with epoch {epoch}, not its own")
        incarnation = int(owner[b"topic_id"][1:])
        stored = int(before.get(b"next", b"-1"))
        gap = int(owner.get(b"gap", b"0")) - int(before.get(b"gap", b"0"))
        if stored == -1:
            _equal("where counting began", int(owner[b"begin"]), low)
            known = self.memories[worker, number, epoch]
            if known and (said := KnownProgress.of_group(known.offset, str(known.metadata))):
                gone = low - said.begin if said.next > said.begin else 0
                if gap < gone + said.vanished:
                    raise Violation(
                        f"partition {number}, of which the group remembers that {said} was "
                        f"counted, begins anew at {low}, with gap {gap}"
                    )
            return (Stretch(incarnation, low, following),)
        counted = self._stored(number)
        last = counted[-1]
        _equal("the offset counted to", last.stop, stored)
        is_another = owner[b"topic_id"] != before[b"topic_id"]
        vanished = stored - int(before[b"begin"]) if is_another else 0
        vanished += int(before.get(b"vanished", b"0"))
        _equal("the offsets that vanished", int(owner.get(b"vanished", b"0")), vanished)
        began = b"%d" % low if is_another else before[b"begin"]
        _equal("where counting began", owner[b"begin"], began)
        if is_another:
            known_end = int(before.get(b"high", b"0"))  # of the log that is gone
            _equal("the gap", gap, max(0, known_end - stored))
            return (*counted, Stretch(incarnation, low, following))
        if gap:
            _equal("the gap", gap, low - stored)
            return (*counted, Stretch(incarnation, low, following))
        if owner[b"halted"]:
            _equal("the offset of a halted partition", following, stored)
        return (*counted[:-1], last._replace(stop=following))

    def _stored(self, number: int) -> Counted:
        """Return what a partition was counted from, which is stored beside its state."""
        text = self.client.get(_counted_key(number)) or b"[]"
        return tuple(Stretch(*stretch) for stretch in json.loads(text))

    def compare(self, number: int) -> None:
        """Compare a partition's state with a replay of the log up to its next offset."""
        counted = self._stored(number)
        if not counted:
            return
        expected, tag = self.replayed(number, counted), tag_of(number)
        stored = redis_contents.contents(self.client, f"{tag.decode()}:*")
        found = {key.removeprefix(tag): value for key, value in stored.items()}
        owner = found.pop(b":owner")
        found.pop(b":committed", None)  # says when: no function of the log
        if found != expected.contents:
            raise Violation(f"partition {number}: " + _difference(found, expected.contents))
        _check_slices(number, found)
        _equal("the next offset", int(owner[b"next"]), counted[-1].stop)
        measured = Measurements.stored({"measured": owner[b"measured"].decode()})
        _equal("messages measured", sum(measured.latencies.counts), expected.messages)
        reasons = Counter(reason for _, reason in expected.refused)
        _equal("refusals measured", measured.deadletters, dict(reasons))
        self._check_dead_letters(number, expected)

    def _check_dead_letters(self, number: int, expected: Expected) -> None:
        arrived = self.cluster.deadletters
        self._delivered.update(arrived[self._read :])
        self._read = len(arrived)
        for message, reason in expected.refused:
            if (number, message.at, reason, message.value()) not in self._delivered:
                raise Violation(
                    f"partition {number}: offset {message.at} ({reason}) was passed by a commit "
                    "and is not in the dead letters"
                )

    def replayed(self, number: int, counted: Counted) -> Expected:
        """Return what a replay of these stretches gives."""
        found = self._expected.get((number, counted))
        if found is not None:
            return found
        replay = self._replays.get(number)
        if replay is None or not replay.goes_on(counted):
            replay = self._replays[number] = Replay()
        done, last = len(replay.counted), replay.counted[-1] if replay.counted else None
        for index, stretch in enumerate(counted):
            if index < done - 1:
                continue
            start = stretch.start
            if index == done - 1 and last is not None:
                start = last.stop
            log = self.cluster.incarnations[stretch.incarnation][number]
            messages = log.between(start, stretch.stop)
            replay.state.next_offset = start
            for refusal in replay.state.count(messages):
                replay.refused.append((refusal.message, refusal.reason))  # type: ignore[arg-type]
            replay.messages += len(messages)
        replay.counted = counted
        expected = Expected(contents(replay.state), list(replay.refused), replay.messages)
        self._expected[number, counted] = expected
        return expected

    def cells(self, number: int) -> Counter[int]:
        """Return how often the store has each report, over all panes of a partition."""
        pattern = f"{tag_of(number).decode()}:pane:{OPEN_ENDED}:*"
        sums = ONE_EACH.zero()
        for value in redis_contents.contents(self.client, pattern).values():
            sums += np.frombuffer(value, "<i8")
        return Counter({cell: int(n) for cell, n in enumerate(sums[1:].tolist()) if n})

    def check_cells(self, number: int) -> None:
        """Look for every single report: once if its batch is good, else never."""
        counted = self._stored(number)
        if any(stretch.incarnation != counted[-1].incarnation for stretch in counted):
            return  # the cells of another topic are others' reports
        refused = {m.at for m, _ in self.replayed(number, counted).refused} if counted else set()
        wanted: Counter[int] = Counter()
        for stretch in counted:
            log = self.cluster.incarnations[stretch.incarnation][number]
            for message in log.between(stretch.start, stretch.stop):
                if message.at not in refused:
                    wanted.update(dict.fromkeys(message.sent.cells, 1))
        wanted = Counter(dict.fromkeys(wanted, 1))  # a batch that came twice is one
        if (found := self.cells(number)) != wanted:
            raise Violation(
                f"partition {number}: reports counted wrongly: lost {sorted(wanted - found)}, "
                f"doubled {sorted(found - wanted)}"
            )


def contents(state: Partition) -> dict[bytes, Any]:
    """Return the keys of a partition's state, as docs/data-model.md describes them."""
    found: dict[str, Any] = {}
    indexed: set[tuple[str, str]] = set()
    opened: set[bytes] = set()
    for key, pane in state.panes.items():
        sums = pane.statistic
        found[f":{key}"] = sums.astype("<i8").tobytes() if key.chunk is None else _chunk(sums)
        index = found.setdefault(f":index:{key.grain}:{key.metric}", {})
        index[b"%d:%d" % (key.start, pane.first_offset)] = b"%d" % key.start
        indexed.add((key.grain, key.metric))
        if not pane.closed:
            opened.add(f"{key}:{pane.first_offset}".encode())
            if pane.batch_ids:
                for number, chunk in enumerate(_chunks_of_ids(b"".join(pane.unsaved))):
                    found[f":seen:{key}:{number}"] = chunk  # unsaved of a replay are all
                found.setdefault(":ids", {})[str(key).encode()] = b"%d" % len(pane.batch_ids)
    found[":indexed"] = {f"{grain}:{metric}".encode() for grain, metric in indexed}
    found[":open"] = opened
    own = (":ids", ":open", ":indexed")
    sets = [name for name in found if name in own or name.startswith(":index:")]
    sizes = {name[1:].encode(): b"%d" % len(found[name]) for name in sets}
    found[":sizes"] = sizes if indexed else {}
    found[":watermarks"] = {k.encode(): str(v).encode() for k, v in state.watermarks.items()}
    found[":counts"] = {k.encode(): b"%d" % v for k, v in state.counts.items()}
    return {name.encode(): value for name, value in found.items() if value}


def _chunks_of_ids(ids: bytes) -> list[bytes]:
    """Return the chunks of ids as docs/data-model.md describes them, a few ids in each."""
    size = 16 * CHUNK_IDS
    first, *others = [ids[start : start + size] for start in range(0, len(ids), size)]
    return [first, *(other.ljust(size, b"\0") for other in others)]


def _chunk(rows: Counts) -> bytes:
    """Return the first chunk of slices as docs/data-model.md describes it."""
    codes = np.flatnonzero(rows.any(axis=1))
    used = rows[codes]
    largest = max(used.max(initial=0), -int(used.min(initial=0)) - 1)
    bits = int(largest).bit_length() + 1
    width = next(w for w in (1, 2, 4, 8) if bits <= 8 * w)
    stored = zip(codes.astype("<u4"), used.astype(f"<i{width}"), strict=True)
    return bytes([width]) + b"".join(code.tobytes() + row.tobytes() for code, row in stored)


def tag_of(number: int) -> bytes:
    """Return the prefix of a partition's keys."""
    return b"{dither:reports:%d}" % number


def partition_of(tag: bytes) -> int:
    """Return the partition that a prefix is of."""
    return int(tag[1:-1].rpartition(b":")[2])


def _check_slices(number: int, found: Mapping[bytes, Any]) -> None:
    """Compare the slices that were ever counted with the metric's own sums."""
    slices, own = ONE_EACH.zero(), ONE_EACH.zero()
    opened = {member.rpartition(b":")[0] for member in found.get(b":open", ())}
    for name, value in found.items():
        key = name.removeprefix(b":")
        grain, _, metric = key.partition(b":")
        if not metric.startswith(b"one_each@") or (key not in opened and b"total" not in grain):
            continue
        if grain in (b"slices", b"slices-total"):
            slices += decode_rows(value, slices.size)[1].sum(axis=0)
        elif grain in (b"pane", b"total"):
            own += np.frombuffer(value, "<i8")
    _equal(f"slices of partition {number}", slices.tolist(), own.tolist())


def _counted_key(number: int) -> bytes:
    return b"counted:%d" % number


def _equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Violation(f"{what}: {found!r}, expected {expected!r}")


def _difference(found: dict[bytes, Any], expected: dict[bytes, Any]) -> str:
    lines = []
    for key in sorted(found.keys() | expected.keys()):
        one, other = found.get(key), expected.get(key)
        if one != other:
            if isinstance(one, bytes) and isinstance(other, bytes) and b":slices" not in key:
                cells = np.frombuffer(one, "<i8") - np.frombuffer(other, "<i8")
                places = {int(i): int(cells[i]) for i in np.flatnonzero(cells)}
                lines.append(f"{key.decode()} differs by cell: {places}")
            else:
                lines.append(f"{key.decode()}: {one!r}, expected {other!r}")
    return "; ".join(lines)
