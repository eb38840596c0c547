"""A model of Kafka's side: the topic's logs, the group's coordinator, the dead-letter topic."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, TopicPartition

from tests.models.simulation.traffic import Sent, traffic
from tests.models.simulation.world import World
from tests.support.reports.messages import LogMessage

if TYPE_CHECKING:
    from tests.models.simulation.clients import ConsumerModel

TOPIC = "reports"
MOST_INCARNATIONS = 3


class Message(LogMessage):
    """A message as confluent-kafka hands it out."""

    def __init__(self, place: int, at: int, sent: Sent) -> None:
        super().__init__(at, sent.payload, sent.arrived, b"%d" % at)
        self.place, self.sent = place, sent

    def __len__(self) -> int:
        return len(self.payload or b"")

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self.place

    def error(self) -> KafkaError | None:
        return None


class Log:
    """A partition's log; retention hides its beginning, but the tests still know it.

    Attributes
    ----------
    low, high : int
        The first offset that can be fetched, and the next one that will be written.
    """

    def __init__(self, number: int, source: Iterator[Sent]) -> None:
        self.number, self._source = number, source
        self.messages: list[Message] = []
        self.offsets: list[int] = []
        self.low = self.high = 0

    def append(self, count: int) -> None:
        """Write what the devices send next."""
        self.write([next(self._source) for _ in range(count)])

    def write(self, messages: Iterable[Sent]) -> None:
        """Write these."""
        for sent in messages:
            before = sent.gap // 2
            at = self.high + before
            self.messages.append(Message(self.number, at, sent))
            self.offsets.append(at)
            self.high = at + 1 + sent.gap - before

    def between(self, start: int, stop: int) -> list[Message]:
        """Return the messages with offsets in [start, stop)."""
        find = bisect.bisect_left
        return self.messages[find(self.offsets, start) : find(self.offsets, stop)]

    def fetch(self, position: int, limit: int) -> list[Message]:
        """Return the first messages from an offset on."""
        first = bisect.bisect_left(self.offsets, position)
        return self.messages[first : first + limit]


class Cluster:
    """The brokers.

    Attributes
    ----------
    incarnations : list of list of Log
        The logs of the topic, and of those that were deleted before it.
    committed : dict
        The offsets that the group's members committed last, by partition.
    deadletters : list
        What the dead-letter topic has: (partition, offset, reason, value), as the headers say.
    """

    def __init__(self, world: World, partitions: int, has_gaps: bool) -> None:
        self.world, self.partitions = world, partitions
        self._has_gaps = has_gaps
        self.away = False
        self.exists = True
        self.incarnations: list[list[Log]] = []
        self.committed: dict[int, TopicPartition] = {}
        self.deadletters: list[tuple[int, int, str, bytes | None]] = []
        self.group = Group(self)
        self.create()

    @property
    def incarnation(self) -> int:
        """Which topic of this name it is."""
        return len(self.incarnations) - 1

    @property
    def may_be_deleted(self) -> bool:
        """Whether it is there, and has not been deleted too often: cells would run out."""
        return self.exists and self.incarnation < MOST_INCARNATIONS - 1

    @property
    def logs(self) -> list[Log]:
        """The topic's logs."""
        return self.incarnations[-1]

    def create(self) -> None:
        """Create the topic."""
        rng = self.world.rng
        self.incarnations.append(
            [Log(number, traffic(rng, self._has_gaps)) for number in range(self.partitions)]
        )
        self.exists = True
        self.group.rebalance()

    def delete(self) -> None:
        """Delete the topic: everybody lets go of it."""
        self.exists = False
        self.committed.clear()
        self.group.dissolve()


class Group:
    """The coordinator of the consumer group: cooperative-sticky, as librdkafka's members see it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.members: list[ConsumerModel] = []
        self.holders: dict[int, ConsumerModel] = {}

    def join(self, member: ConsumerModel) -> None:
        """Add a member."""
        if member not in self.members:
            self.members.append(member)
            self.rebalance()

    def leave(self, member: ConsumerModel) -> None:
        """Take a member and what it holds out: it left, or its session expired."""
        if member in self.members:
            self.members.remove(member)
            self.holders = {p: m for p, m in self.holders.items() if m is not member}
            self.rebalance()

    def expire(self, member: ConsumerModel) -> None:
        """Give up on a member that does not know of it yet."""
        if member in self.members:
            member.events = ["lost"]
            self.leave(member)

    def released(self, member: ConsumerModel, partitions: Iterable[int]) -> None:
        """Note that a member let go of partitions."""
        mine = [p for p in partitions if self.holders.get(p) is member]
        for number in mine:
            del self.holders[number]
        if mine:
            self.rebalance()

    def dissolve(self) -> None:
        """Have all partitions handed back."""
        self.holders.clear()
        for member in self.members:
            member.events = ["revoked all"]

    def rebalance(self) -> None:
        """Tell every member what to let go of and what to take, often nothing."""
        if not self.members or not self._cluster.exists:
            return
        targets = self._targets()
        for member in self.members:
            held = [p for p, holder in self.holders.items() if holder is member]
            surplus = [p for p in held if targets[p] is not member]
            if surplus:
                member.events.append(("revoked", surplus))
            free = [p for p, m in targets.items() if m is member and p not in self.holders]
            self.holders.update(dict.fromkeys(free, member))
            member.events.append(("assigned", free))

    def _targets(self) -> dict[int, ConsumerModel]:
        held = {m: [p for p, h in self.holders.items() if h is m] for m in self.members}
        ordered = sorted(self.members, key=lambda member: -len(held[member]))
        least, more = divmod(self._cluster.partitions, len(ordered))
        targets: dict[int, ConsumerModel] = {}
        room: list[ConsumerModel] = []
        for index, member in enumerate(ordered):
            quota = least + (index < more)
            kept = held[member][:quota]
            targets.update(dict.fromkeys(kept, member))
            room += [member] * (quota - len(kept))
        rest = [p for p in range(self._cluster.partitions) if p not in targets]
        targets.update(zip(rest, room, strict=True))
        return targets
