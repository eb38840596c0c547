"""Counts so that no message ends the process, or halts more than its own partition."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import structlog

from aggregator.clock import Clock
from aggregator.config.setting_checks import parse_place
from aggregator.config.settings import Aggregate
from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.kafka.obstacles import Obstacle, Probe, Stall, Trouble
from aggregator.state.decoder import Rejection
from producers.kafka.kafka_errors import describe_kafka_error

PIECE_BYTES = 8_000_000
"""Bytes of messages counted together, whose memory is a multiple of it."""
DEFECT_NOTICE = "this is a defect of Dither: report it with the worker's log"

log = structlog.get_logger("dither.worker")


class Isolator:
    """Counts the messages of partitions, and isolates those that cannot be counted.

    `probe` starts the search for the end of a record batch, given partition and first offset.
    """

    def __init__(
        self, settings: Aggregate, clock: Clock, probe: Callable[[int, int], Probe]
    ) -> None:
        self._settings, self._clock, self._probe = settings, clock, probe

    def count(self, owned: AssignedPartition, messages: Sequence[Any]) -> bool:
        """Count messages in log order; return whether all could be counted.

        Messages that fail together are dropped, read again and counted one by one until one fails
        alone; the partition then stands before it.
        """
        for piece in _pieces(messages, owned.trouble):
            first = piece[0].offset()
            culprit = owned.trouble.culprit
            if culprit is not None and owned.state.next_offset <= culprit.first == first:
                if self._skip_named(owned, culprit):
                    continue
                self._halt(owned, culprit)
                owned.trouble.is_blocked = True
                return False
            try:
                owned.count(piece, self._settings)
            except Exception as error:
                self._drop_failed(owned, first, piece[-1].offset(), error)
                return False
            if owned.excess:
                owned.fence(self._clock.monotonic())  # drop it; the next acquisition halts it
                return False
        trouble = owned.trouble
        if trouble.stall is not None or 0 <= trouble.suspect_until < owned.state.next_offset:
            owned.trouble = Trouble(culprit=trouble.culprit)
        return True

    def _drop_failed(
        self, owned: AssignedPartition, first: int, last: int, error: Exception
    ) -> None:
        """Drop the uncommitted state, and narrow the search for the failing message."""
        trouble = owned.trouble
        log_fields = {"partition": owned.number, "first": first, "last": last}
        log.error("counting failed", **log_fields, stack=_stack(error))
        if first == last <= trouble.suspect_until:
            why = f"checking it fails ({type(error).__name__}); {DEFECT_NOTICE}"
            trouble.culprit = Obstacle(first, first, why)
        trouble.suspect_until = max(trouble.suspect_until, last)
        owned.fence(self._clock.monotonic())

    def block_unsendable(
        self, owned: AssignedPartition, rejection: Rejection, error: Exception
    ) -> None:
        """Stop before a message that can neither be counted nor become a dead letter.

        Parameters
        ----------
        owned : AssignedPartition
        rejection : Rejection
        error : Exception
            What the dead letter raised.
        """
        offset = rejection.message.offset()
        log.error("dead letter failed", partition=owned.number, offset=offset, stack=_stack(error))
        why = f"its dead letter cannot be made ({type(error).__name__}); {DEFECT_NOTICE}"
        owned.trouble.culprit = Obstacle(offset, offset, why)
        owned.fence(self._clock.monotonic())

    def skip_stall(self, owned: AssignedPartition, message: Any) -> bool:
        """Note an unreadable offset; return whether it was skipped and the client must seek."""
        trouble, now = owned.trouble, self._clock.monotonic()
        at, base = owned.state.next_offset, message.offset()
        stall = trouble.stall
        if stall is None or (stall.at, stall.base) != (at, base):
            why = f"Kafka's client cannot read it ({describe_kafka_error(message.error())})"
            stall = trouble.stall = Stall(at, base, why, now)
            trouble.probe = None
            log.warning("kafka error", partition=owned.number, offset=base, error=why)
        stall.times += 1
        is_listed = any(parse_place(text)[0] == owned.number for text in self._settings.skip)
        if not (is_listed or stall.is_lasting(now)):
            return False
        probe = trouble.probe
        if probe is None or (probe.is_over and probe.last is None):
            probe = trouble.probe = self._probe(owned.number, base)
        obstacle = Obstacle(max(base, at), probe.last, stall.why)
        if probe.last is not None and self._skip_named(owned, obstacle):
            return True
        if stall.is_lasting(now):
            self._halt(owned, obstacle)
        return False

    def _skip_named(self, owned: AssignedPartition, obstacle: Obstacle) -> bool:
        """Skip an obstacle if the settings name it; return whether they do."""
        if not obstacle.is_skippable(owned.number, self._settings.skip):
            return False
        owned.skip_obstacle(obstacle)
        log.warning(
            "skipped",
            partition=owned.number,
            first=obstacle.first,
            last=obstacle.last,
            reason=obstacle.why,
        )
        return True

    def _halt(self, owned: AssignedPartition, obstacle: Obstacle) -> None:
        reason = obstacle.reason(owned.number)
        if reason != owned.trouble.shown:
            log.error("halted", partition=owned.number, reason=reason)
        owned.trouble.shown = reason


def _stack(error: Exception) -> str:
    """Return the stack of an error without values, which may be personal."""
    lines = traceback.format_tb(error.__traceback__)
    return "".join([*lines, type(error).__name__])


def _pieces(messages: Sequence[Any], trouble: Trouble) -> Iterator[Sequence[Any]]:
    """Yield messages in pieces that are counted together; suspects are alone."""
    wall = trouble.culprit.first if trouble.culprit else -1
    is_suspect = messages[0].offset() <= max(trouble.suspect_until, wall)
    if not is_suspect and sum(map(len, messages)) <= PIECE_BYTES:
        yield messages
        return
    piece: list[Any] = []
    size = 0
    for message in messages:
        alone = message.offset() <= trouble.suspect_until or message.offset() == wall
        if piece and (alone or size + len(message) > PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(message)
        size += len(message)
        if alone:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
