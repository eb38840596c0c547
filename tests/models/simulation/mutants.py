"""Workers with one thing broken each: the simulation has to notice."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from confluent_kafka import TopicPartition

from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.counting.assignment import Assignment
from aggregator.counting.committer import Committer
from aggregator.counting.log_inspector import LogInspector
from aggregator.counting.worker import Worker
from aggregator.errors import Fenced
from aggregator.state.batch_ids import BatchIds
from aggregator.storage import commands, partition_store
from aggregator.storage.progress import TopicProgress
from aggregator.storage.snapshot import Snapshot

Break = Callable[[], contextlib.AbstractContextManager[type[Worker]]]
BREAKS: dict[str, Break] = {}
"""By what each does wrong."""


def _worker(what: str) -> Callable[[type[Worker]], type[Worker]]:
    def listed(broken: type[Worker]) -> type[Worker]:
        BREAKS[what] = lambda: contextlib.nullcontext(broken)
        return broken

    return listed


def _patched(what: str, *target: Any) -> None:
    @contextlib.contextmanager
    def broken() -> Iterator[type[Worker]]:
        with patch.object(*target):
            yield Worker

    BREAKS[what] = broken


def _without(text: str) -> Callable[[str], str]:
    """Return the scripts, one of them without a line."""

    def script(name: str) -> str:
        found = _script(name)
        if name == "commit":
            assert found.count(text) == 1, text
            found = found.replace(text, "")
        return found

    return script


_script, _partition, _commit = commands.script, Snapshot.partition, Committer._commit

TOKENS = " or (stored[5] or '') ~= ARGV[4]"
EPOCHS = f"if epoch ~= ARGV[1]{TOKENS} then return {{'fenced', epoch, next_offset}} end"
KNOWN = "if next_offset == ARGV[3] then return {'known', epoch, next_offset} end"
STALE = "  return {'fenced', epoch, next_offset}\nend\nlocal i"
_patched("commits of an older epoch are taken", partition_store, "script", _without(EPOCHS))
_patched("an epoch that came again is believed", partition_store, "script", _without(TOKENS))
_patched(
    "a commit whose reply was lost is not known again", partition_store, "script", _without(KNOWN)
)
_patched(
    "the offset that a commit was built on is not compared",
    partition_store,
    "script",
    lambda name: _script(name).replace(STALE, "end\nlocal i"),
)
_patched("what the group remembers is not asked for", LogInspector, "_committed", lambda *_: ())
_patched(
    "messages of an earlier assignment are believed", AssignedPartition, "jumped", lambda *_: False
)
_patched(
    "batch ids are not restored",
    Snapshot,
    "partition",
    lambda self, *arguments: _partition(
        dataclasses.replace(
            self, open={k: (f, s, BatchIds()) for k, (f, s, _) in self.open.items()}
        ),
        *arguments,
    ),
)


_patched(
    "a partition that is not there holds no answer back",
    TopicProgress,
    "whole",
    lambda self, _=None: [one for one in self.partitions.values() if one.is_whole],
)


def _keep_state(_: Committer, owned: AssignedPartition, fence: Fenced) -> None:
    owned.epoch, owned.committed = fence.stored_epoch, fence.stored


def _seek_to_the_end(self: Assignment, owned: AssignedPartition) -> None:
    position = TopicPartition(self._topic, owned.number)
    _, high = self._consumer.get_watermark_offsets(position, cached=True)
    owned.jumped(0, high)
    self._consumer.seek(TopicPartition(self._topic, owned.number, high))


def _flush_late(self: Committer, owned: AssignedPartition) -> None:
    with patch.object(self._dead_letters, "flush", lambda _: None):
        _commit(self, owned)
    self._dead_letters.flush(10.0)


_patched("a fenced worker keeps its state", Committer, "_fence", _keep_state)
_patched("what it took back is not sought", Assignment, "seek", lambda *_: None)
_patched("it seeks to the end of the log", Assignment, "seek", _seek_to_the_end)
_patched(
    "dead letters are flushed after the commit that passes them", Committer, "_commit", _flush_late
)


@_worker("the topic's id is asked for once")
class _AsksOnce(Worker):
    def __init__(self, *arguments: Any) -> None:
        settings, metrics, store, name, clients, clock = arguments
        found = clients.topic_id()
        once = dataclasses.replace(clients, topic_id=lambda: found)
        super().__init__(settings, metrics, store, name, once, clock)
