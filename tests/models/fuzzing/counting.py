"""Count fuzzed messages twice, as columns and one by one: each report is accounted for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aggregator.state.partition import Partition
from estimators import ReportError
from producers.wire.batch import parse_batch
from tests.support.reports.messages import LogMessage
from tests.support.reports.mutations import Fuzzer, arrival, corpus, fuzzed_metrics
from tests.support.reports.partitions import everything

CHUNK = 1_000
FUTURE_MS = 600_000


class MismatchError(AssertionError):
    """The two ways of counting differ, or a message has no outcome."""


def reports_of(payload: bytes | None, *, is_refused: bool) -> int:
    """Return how many reports a message has to be accounted for with: one at least if refused."""
    try:
        reports = len(parse_batch(payload).levels) if payload is not None else 0
    except ReportError:
        reports = 0
    return max(int(is_refused), reports)


def fuzz(batches: int, seed: int) -> Counter[str]:
    """Count so many fuzzed messages; return the reports by outcome.

    Raises
    ------
    MismatchError
        Naming the seed and the first message at which the two differ.
    """
    metrics = fuzzed_metrics()
    fuzzer = Fuzzer(corpus(metrics, seed), seed)
    fast, slow = Partition(metrics, FUTURE_MS), Partition(metrics, FUTURE_MS)
    outcomes: Counter[str] = Counter()
    for first in range(0, batches, CHUNK):
        payloads = list(fuzzer.messages(min(CHUNK, batches - first)))
        messages = [LogMessage(first + i, p, arrival(first + i)) for i, p in enumerate(payloads)]
        refused = _told(fast, messages)
        one_by_one = [told for message in messages for told in _told(slow, [message])]
        if refused != one_by_one:
            wrong = next(
                pair for pair in zip(refused, one_by_one, strict=False) if len(set(pair)) > 1
            )
            raise MismatchError(f"seed {seed}: as columns {wrong[0]}, one by one {wrong[1]}")
        _compare(fast, slow, seed, first)
        offsets = {offset for offset, *_ in refused}
        expected = sum(
            reports_of(payload, is_refused=first + i in offsets)
            for i, payload in enumerate(payloads)
        )
        counted = sum(fast.counts.values()) - sum(outcomes.values())
        if counted != expected:
            raise MismatchError(
                f"seed {seed}, offsets from {first}: {counted} of {expected} reports"
            )
        outcomes = _outcomes(fast.counts)
    return outcomes


def _told(partition: Partition, messages: Sequence[LogMessage]) -> list[tuple[int, str, str]]:
    refusals = partition.count(messages)
    return [(each.message.offset(), each.reason, each.detail) for each in refusals]


def _compare(fast: Partition, slow: Partition, seed: int, first: int) -> None:
    """Compare the states, and let go of the closed panes of both."""
    if _state(fast) != _state(slow):
        raise MismatchError(
            f"seed {seed}: states differ after offsets {first} to {first + CHUNK - 1}"
        )
    fast.mark_committed()
    slow.mark_committed()


def _state(partition: Partition) -> tuple[Any, ...]:
    return everything(partition), {k: pane.first_offset for k, pane in partition.panes.items()}


def _outcomes(counts: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, reports in counts.items():
        found[name.partition(":")[0]] += reports
    return found
