"""Measurements of counting in a partition: histograms of durations, and counts of refused reports.

The owner writes them to its hash with each commit. The log does not determine them, and a replay
does not have them.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from producers.wire.decoding import decode_json

MEASURED_FIELD = "measured"
"""The field of the owner's hash with the measurements."""
COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
LATENCY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Upper bounds of the buckets, in seconds; the last bucket has no bound."""

Buckets = tuple[float, ...]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Histogram(msgspec.Struct, frozen=True):
    """A histogram of durations."""

    counts: tuple[Count, ...]  # observations per bucket, not cumulative
    seconds: float = 0.0  # the sum of all observations

    @classmethod
    def of(cls, buckets: Buckets) -> Self:
        """Return an empty histogram with these buckets."""
        return cls((0,) * (len(buckets) + 1))

    def with_observations(self, buckets: Buckets, seconds: NDArray[np.float64]) -> Self:
        """Return the histogram with an array of durations, in seconds, added."""
        new = np.bincount(np.searchsorted(buckets, seconds), minlength=len(self.counts))
        return type(self)(tuple((new + self.counts).tolist()), self.seconds + float(seconds.sum()))

    def __add__(self, other: Histogram) -> Histogram:
        """Return the sum of two histograms with the same buckets."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(counts, self.seconds + other.seconds)

    def cumulative(self) -> list[int]:
        """Return the cumulative number of observations up to each bucket."""
        return list(itertools.accumulate(self.counts))


NO_COMMITS, NO_LATENCIES = Histogram.of(COMMIT_BUCKETS), Histogram.of(LATENCY_BUCKETS)


class Measurements(msgspec.Struct, frozen=True):
    """The measurements of a partition, over all its owners."""

    commits: Histogram = NO_COMMITS  # durations, without that of the last commit
    commit_bytes: Count = 0
    latencies: Histogram = NO_LATENCIES  # from each message's Kafka timestamp to its commit
    deadletters: dict[str, Count] = msgspec.field(default_factory=dict)  # messages by reason

    @classmethod
    def stored(cls, owner: Mapping[str, str]) -> Self:
        """Return the measurements in an owner's hash; measurements that it lacks are empty."""
        try:
            measurements = decode_json(owner.get(MEASURED_FIELD, "{}"), cls)
        except ValueError:  # measurements do not affect the sums: they begin anew
            measurements = cls()
        # Stored histograms may have other buckets.
        if len(measurements.commits.counts) != len(NO_COMMITS.counts):
            measurements = msgspec.structs.replace(measurements, commits=NO_COMMITS)
        if len(measurements.latencies.counts) != len(NO_LATENCIES.counts):
            measurements = msgspec.structs.replace(measurements, latencies=NO_LATENCIES)
        return measurements

    def facts(self) -> dict[str, str]:
        """Return the measurements as a field of the owner's hash."""
        return {MEASURED_FIELD: msgspec.json.encode(self).decode()}

    def __add__(self, other: Measurements) -> Measurements:
        """Return the measurements of two partitions together."""
        return Measurements(
            self.commits + other.commits,
            self.commit_bytes + other.commit_bytes,
            self.latencies + other.latencies,
            dict(Counter(self.deadletters) + Counter(other.deadletters)),
        )

    def with_commit(self, seconds: float, size: int) -> Measurements:
        """Return the measurements after a commit of `size` bytes; the next commit stores them."""
        commits = self.commits.with_observations(COMMIT_BUCKETS, np.array([seconds]))
        return msgspec.structs.replace(self, commits=commits, commit_bytes=self.commit_bytes + size)

    def with_arrivals(self, arrivals: array[int], now: int) -> Measurements:
        """Return the measurements with the messages of a commit at the time `now` (ms).

        `arrivals` are Kafka's timestamps of the messages in ms, of type ``q``. A negative timestamp
        is ignored; a future one counts as a latency of 0.
        """
        if not arrivals:
            return self
        timestamps = np.frombuffer(arrivals, dtype=np.int64)
        seconds = np.maximum(now - timestamps[timestamps >= 0], 0) / 1000
        latencies = self.latencies.with_observations(LATENCY_BUCKETS, seconds)
        return msgspec.structs.replace(self, latencies=latencies)

    def with_refusal(self, reason: str) -> Measurements:
        """Return the measurements with one more refused message."""
        counts = {**self.deadletters, reason: self.deadletters.get(reason, 0) + 1}
        return msgspec.structs.replace(self, deadletters=counts)
