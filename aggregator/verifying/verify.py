"""Verifies the sums: replays the log and compares the state byte by byte."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer

from aggregator.config.settings import Settings
from aggregator.errors import StateUnreadable
from aggregator.kafka import clients
from aggregator.kafka.log_ends import LogEnds
from aggregator.kafka.log_reader import log_ranges
from aggregator.kafka.topic_admin import topic_id
from aggregator.state.definition_history import CountingDefinitions, definitions_by_offset
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import definitions_key, partitions_key
from aggregator.storage.snapshot import Snapshot
from aggregator.storage.store import Store
from aggregator.verifying.log_replay import LogReplay, Progress
from aggregator.verifying.state_differences import PartitionComparison, Verification, stored_panes
from estimators import Metric


def verify(
    settings: Settings,
    metrics: Mapping[str, Metric],
    store: Store,
    progress: Progress = lambda *_: None,
) -> Verification:
    """Replay every partition's log up to its committed offset, and compare the state.

    This is safe while workers run, because a partition's open state is first read atomically.
    `settings`: the settings of the deployment; `metrics`: the current definitions, by name;
    `store`: the store of the topic; `progress`: called with each partition and its reached offset.
    """
    outcome = Verification()
    current_definitions = CountingDefinitions.current(metrics, settings.aggregate)
    # Queries for log ends wait until a fetch has ended, so a fetch must not wait long.
    quick = {"fetch.wait.max.ms": 10, "enable.partition.eof": True}
    with contextlib.ExitStack() as closing:

        def consumer_of(isolation: str) -> Consumer:
            properties = {**quick, "isolation.level": isolation}
            opened = clients.consumer(settings, f"dither-verify-{uuid.uuid4()}", **properties)
            return closing.enter_context(contextlib.closing(opened))

        consumer, uncommitted = consumer_of("read_committed"), consumer_of("read_uncommitted")
        listed = store.partitions()
        ranges = log_ranges(uncommitted, settings.topics.reports)
        log = LogEnds(ranges, "")  # before the state, so that no counted message appears as lag
        cluster = consumer.list_topics(settings.topics.reports, clients.ANSWER_SECONDS).cluster_id
        ids = {"cluster": cluster or "", "topic_id": topic_id(settings, settings.topics.reports)}
        for number in sorted({*listed, *log.ranges}):
            try:
                for error in store.panes.find_losses(number):
                    outcome.differ(number, error.key.rpartition("}:")[2], error.fact)
                stored = stored_panes(store, number)  # before the snapshot: all are replayed
                snapshot = store.partition.snapshot(number)
                begin, history, lost = _known_history(store, snapshot, current_definitions)
            except StateUnreadable as error:
                outcome.differ(number, "everything", str(error))
                continue
            outcome.compare_topic(number, snapshot, ids, len(ranges))
            outcome.compare_end(number, snapshot, log)
            if snapshot.next_offset == TORN:
                why = snapshot.owner.get("halted") or "a commit was applied only in part"
                outcome.differ(number, "everything", why)
            elif snapshot.next_offset != UNSET:
                if number not in listed:
                    detail = f"not among {partitions_key(store.topic)}: readers leave it out"
                    outcome.differ(number, "everything", detail)
                digests = [definitions.digest for _, definitions in history]
                outcome.definitions += [d for d in digests if d not in outcome.definitions]
                low = log.ranges.get(number, (0, 0))[0]
                if lost and begin > low:
                    detail = _describe_lost(store.topic, lost, low, begin, bool(history))
                    outcome.leave_unjudged(number, "everything", detail)
                if history:
                    replay = LogReplay(store.topic, number, history, snapshot, begin)
                    replay.run(consumer, uncommitted, progress)
                    in_force_once = [definitions for _, definitions in history]
                    PartitionComparison(store, number, stored, in_force_once, replay, outcome).run()
            elif number not in log.ranges:
                listed_in = partitions_key(store.topic)
                detail = f"among {listed_in}, but {store.topic} has no such partition"
                outcome.differ(number, "everything", detail)
    return outcome


def _known_history(
    store: Store, snapshot: Snapshot, current_definitions: CountingDefinitions
) -> tuple[int, list[tuple[int, CountingDefinitions]], list[str]]:
    """Return the definitions of a partition with their first offsets, as far as they are stored.

    If no digest is stored for the first messages, the current definitions judge them.

    Returns
    -------
    begin : int
        The first offset from which on all definitions are available; 0 if none is lost.
    history : list of (int, CountingDefinitions)
        The definitions from `begin` on; empty if the last definitions are lost.
    lost : list of str
        Digests of lost definitions.
    """
    digests_by_offset = definitions_by_offset(snapshot.owner)
    current = {current_definitions.digest: current_definitions.encode()}
    documents = store.registry.definitions() | current
    history: list[tuple[int, CountingDefinitions]] = []
    lost: list[str] = []
    for at, digest in digests_by_offset:
        try:
            history.append((at, CountingDefinitions.decode(documents[digest])))
        except (KeyError, ValueError):
            history = []
            lost.append(digest)
    if not lost:
        return 0, history or [(0, current_definitions)], []
    return history[0][0] if history else max(0, snapshot.next_offset), history, lost


def _describe_lost(topic: str, lost: Sequence[str], low: int, begin: int, is_past: bool) -> str:
    """Return a message: which offsets lost definitions leave unjudged, and what to do."""
    offsets = (
        f"offsets {low} to {begin - 1} cannot be judged: the definitions that counted them "
        f"({', '.join(lost)}) cannot be read in {definitions_key(topic)}. "
    )
    if is_past:
        return f"{offsets}Panes that began at offset {begin} or later are compared"
    return (
        f"{offsets}A running worker writes the current definitions again within a minute: "
        "start one, or name the workers' file with --metrics"
    )
