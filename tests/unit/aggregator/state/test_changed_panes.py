"""What is kept step by step, of what changed and how large it is, is what a full scan gives."""

import dataclasses
import random
from typing import Any

import pytest

from aggregator.state.batch_ids import BatchIds
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition
from aggregator.storage.commit import commit_commands
from estimators import Metric, define
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.messages import EPOCH, LogMessage, batch
from tests.support.reports.partitions import DELAY, FUTURE_MS, HOUR, MINUTE, PAY, VOTE, everything

PATIENT = dataclasses.replace(DELAY, name="patient", lateness="2h")
BRIEF = define(
    name="brief",
    kind="vector_mean",
    mechanism="caps",
    dimension=3,
    radius=1,
    levels=[1],
    pane="10s",
    lateness="30s",
)
METRICS = {metric.name: metric for metric in (DELAY, PATIENT, BRIEF, PAY, VOTE)}
VALUES: dict[str, Any] = {BRIEF.name: (0.6, 0.0, 0.8)}
STEPS = 40


class Log:
    """Messages of all metrics: in order, late, twice, heartbeats and junk."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._now, self._made = rng, EPOCH, 0
        self._payloads: list[bytes] = [b"junk"]
        self.offset = -1

    def messages(self) -> list[LogMessage]:
        rng, found = self._rng, []
        for _ in range(rng.choice((1, 2, 20))):
            self._now += rng.choice((0, 1_000, 5_000, MINUTE))
            self.offset += rng.choice((1, 1, 4))
            if rng.random() > 0.1:
                self._payloads.append(self._payload(rng.choice([*METRICS.values()])))
            payload = rng.choice(self._payloads[-1:] * 9 + self._payloads[:1])
            found.append(LogMessage(self.offset, payload, about=bytes([rng.randrange(9)])))
        return found

    def _payload(self, metric: Metric) -> bytes:
        time = self._now - self._rng.choice((0, 0, 1_000, MINUTE, 3 * HOUR))
        if self._rng.random() < 0.05:
            return heartbeat(metric, time)
        self._made += 1
        values = [VALUES.get(metric.name, 1)] * self._rng.randrange(1, 4)
        return batch(metric, values, time_ms=time, seed=self._made).SerializeToString()


def contents(partition: Partition) -> dict[PaneKey, tuple[Any, ...]]:
    return {
        key: (pane.statistic.tobytes(), frozenset(pane.batch_ids), dict(pane.used), pane.closed)
        for key, pane in partition.panes.items()
    }


def heir(partition: Partition) -> Partition:
    """Return what another owner reads back."""
    found = Partition(METRICS, FUTURE_MS)
    found.next_offset = partition.next_offset
    found.watermarks.update(partition.watermarks)
    found.counts.update(partition.counts)
    for key, pane in partition.panes.items():
        sums, ids = pane.statistic.copy(), BatchIds(pane.batch_ids)
        found.restore(key, Pane(pane.metric, pane.first_offset, sums, ids, used={**pane.used}))
    return found


def check_sizes(partition: Partition) -> None:
    still = [pane for pane in partition.panes.values() if not pane.closed]
    assert partition.open_bytes == sum(pane.nbytes for pane in still)
    assert partition.changed_bytes == sum(p.statistic.nbytes for p in partition.changed.values())


def reports(message: LogMessage) -> int:
    """Return of how many reports a message is; junk counts as one."""
    payload = message.value()
    return 1 if payload in (None, b"junk") else len(ReportBatch.FromString(payload).levels)


@pytest.mark.parametrize("seed", range(12))
def test_a_commit_writes_exactly_what_a_full_scan_finds_changed(seed: int) -> None:
    rng = random.Random(seed)
    log, sent, partition = Log(rng), list[LogMessage](), Partition(METRICS, FUTURE_MS)
    committed: dict[PaneKey, tuple[Any, ...]] = {}
    stored: dict[str, bytes] = {}
    closed: dict[PaneKey, Pane] = {}
    for _ in range(STEPS):
        messages = log.messages()
        sent += messages
        partition.count(messages)
        check_sizes(partition)
        if rng.random() < 0.5:
            continue
        found = contents(partition)
        changed = {key for key, content in found.items() if content != committed.get(key)}
        assert changed == partition.changed.keys()
        written = {
            word[1]: bytes(word[2])
            for word in commit_commands("P", partition, {})
            if word[0] == "SET"
        }
        assert written.keys() == {f"P:{key}" for key in changed}
        stored |= written
        evicted = partition.mark_committed()
        assert evicted.keys() == {key for key, content in found.items() if content[-1]}
        closed |= evicted
        check_sizes(partition)
        assert not partition.changed
        if rng.random() < 0.3:
            partition = heir(partition)
            check_sizes(partition)
        committed = contents(partition)
        whole = partition.panes | closed
        assert stored == {f"P:{key}": bytes(pane.encode(key.chunk)) for key, pane in whole.items()}
    assert {key.grain for key in closed} >= {"pane", "hour"}
    partition.panes |= closed
    uncut = Partition(METRICS, FUTURE_MS)
    uncut.count(sent)
    assert everything(partition) == everything(uncut)
    assert uncut.next_offset == log.offset + 1
    assert sum(uncut.counts.values()) == sum(map(reports, sent)), "each has one outcome"
    sums = [pane for key, pane in uncut.panes.items() if key.grain == "pane"]
    accepted = [n for name, n in uncut.counts.items() if name.startswith("accepted:")]
    assert sum(int(pane.metric.counts(pane.statistic).sum()) for pane in sums) == sum(accepted)
