"""What must have come out, by a second and simpler reckoning: one message after the other."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from aggregator.dead_letters.writer import HEADER_PREFIX
from aggregator.reading.pane_sums import total_request
from aggregator.state.pane_keys import metric_key
from aggregator.storage.store import Store
from estimators import Metric
from producers.wire.reports_pb2 import ReportBatch

Place = tuple[int, int]
"""Partition and offset."""


@dataclasses.dataclass
class Account:
    """What a log amounts to.

    Attributes
    ----------
    counts : Counter
        Reports by partition and ``outcome:metric``, of what is well formed.
    refused : dict of Place to str
        Why each message that must be in the dead letters is there.
    totals : dict of (int, str) to array
        The sum of all counted reports by partition and metric.
    panes : dict of (int, str) to array
        The same by the start of the pane, over all partitions.
    """

    counts: Counter[tuple[int, str]] = dataclasses.field(default_factory=Counter)
    refused: dict[Place, str] = dataclasses.field(default_factory=dict)
    totals: dict[tuple[int, str], Any] = dataclasses.field(default_factory=dict)
    panes: dict[tuple[int, str], Any] = dataclasses.field(default_factory=dict)


def reckon(
    metrics: Mapping[str, Metric],
    logs: Mapping[int, Iterable[Any]],
    bad: Mapping[bytes | None, str],
) -> Account:
    """Go through the logs of partitions, message by message.

    Parameters
    ----------
    logs : mapping of int to messages
    bad : mapping of bytes to str
        The payloads that are not well formed, and the reason of each.
    """
    account = Account()
    for partition, messages in logs.items():
        seen: set[tuple[str, int, bytes]] = set()
        watermarks: defaultdict[str, int] = defaultdict(lambda: -1)
        recent: defaultdict[str, list[int]] = defaultdict(list)
        for message in messages:
            if (reason := bad.get(message.value())) is not None:
                account.refused[partition, message.offset()] = reason
                continue
            one = ReportBatch.FromString(message.value())
            metric = metrics[one.metric]
            pane = one.time_ms - one.time_ms % metric.pane_ms
            outcome, is_heartbeat = "accepted", not one.levels
            if is_heartbeat:
                pass
            elif pane + metric.pane_ms + metric.lateness_ms <= watermarks[one.metric]:
                outcome = account.refused[partition, message.offset()] = "late"
            elif (one.metric, pane, one.batch_id) in seen:
                outcome = "duplicate"
            if outcome == "accepted":
                times = [*recent[one.metric], min(one.time_ms, message.timestamp()[1])][-32:]
                recent[one.metric] = times
                if len(times) >= 8:
                    eighth = sorted(times, reverse=True)[7]
                    watermarks[one.metric] = max(watermarks[one.metric], eighth)
            if outcome == "accepted" and not is_heartbeat:
                seen.add((one.metric, pane, one.batch_id))
                levels = np.frombuffer(one.levels, np.uint8)
                reports = metric.randomizer.decode(one.values)
                for sums, key in ((account.totals, partition), (account.panes, pane)):
                    total = sums.setdefault((key, one.metric), metric.zero())
                    metric.accumulate(total, levels, reports)
            account.counts[partition, f"{outcome}:{one.metric}"] += len(one.levels)
    return account


def differences(
    account: Account,
    metrics: Mapping[str, Metric],
    store: Store,
    letters: Iterable[Mapping[str, bytes]],
) -> list[str]:
    """Return where the store and the dead letters are not what the account says."""
    found = []
    counts = {
        (partition, name): count
        for partition in store.partitions()
        for name, count in store.counts(partition).items()
        if name.partition(":")[0] in ("accepted", "duplicate", "late")
    }
    for partition, name in sorted(counts.keys() | account.counts.keys()):
        stored, expected = counts.get((partition, name), 0), account.counts[partition, name]
        if stored != expected:
            found.append(f"partition {partition}: {name}: stored {stored}, sent {expected}")
    for (partition, name), total in account.totals.items():
        sums = metrics[name].zero()
        key = metric_key(name, metrics[name].revision)
        ((sums,),) = store.panes.totals([total_request(metrics[name], key, [partition])])
        if (sums != total).any():
            cells = np.flatnonzero(sums != total).size
            found.append(f"partition {partition}: total of {name}: {cells} cells differ")
    dead: dict[Place, str] = {}
    for headers in letters:
        place = int(headers[HEADER_PREFIX + "partition"]), int(headers[HEADER_PREFIX + "offset"])
        dead[place] = headers[HEADER_PREFIX + "exception.class.name"].decode()
    for place in sorted(dead.keys() | account.refused.keys()):
        was, should = dead.get(place, "no letter"), account.refused.get(place, "no letter")
        if was != should:
            found.append(f"dead letter of partition, offset {place}: {was}, expected {should}")
    return found
