"""Windowed sums from Apache Kafka, against stream processors, on the same messages.

Every message is a batch of one report. Ours is a worker process from the first message to its last
commit in Redis, ids of batches and bounds of time checked; theirs from the first message to the
last that was added up, without their start.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.batches import payloads
from benchmarks.end_to_end import counting
from benchmarks.measure import Benchmark, NotRun, Outcome
from benchmarks.peers.process import Peer, outcomes
from benchmarks.places import Places

MESSAGES = 600_000
PEERS = {"quixstreams": 30_000, "bytewax": 150_000}
"""How many of the messages each reads: enough for seconds."""


def benchmarks(places: Places) -> Iterator[Outcome]:
    names = {peer: f"streams/windowed sum/{peer}" for peer in PEERS}
    if not places.is_real:
        reason = "needs Apache Kafka: dither kafka --fetch"
        yield from (NotRun(name, reason) for name in names.values())
        return
    encoded = payloads(places.sized(MESSAGES), 1)
    topic, messages = places.log(encoded, key=b"all")
    for peer, max_messages in PEERS.items():
        if not places.wanted(names[peer]):
            continue
        source = {"servers": places.kafka, "topic": topic, "messages": min(messages, max_messages)}

        def measured(process: Peer, name: str = names[peer]) -> Iterator[Outcome]:
            ours = counting(places, encoded, 1, 1)
            yield Benchmark(name, "reports/s", ours, process.side("windowed sum"))

        yield from outcomes(peer, source, [names[peer]], measured)
