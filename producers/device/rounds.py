"""Rounds: the open questions of minimum and maximum metrics, and their decisions."""

from __future__ import annotations

import msgspec

from estimators.extremes import Decision, Progress
from estimators.limits import LARGEST_ANSWER, MOST_ROUNDS
from estimators.metrics.search import SearchMetric
from estimators.metrics.validation import NAME_PATTERN
from producers.wire.decoding import decode_json

ROUND_EVENT_TYPE = "dither.round"
"""The type of events on the topic of rounds, which are CloudEvents in binary mode."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The open round of a metric, and the decisions that led to it.

    The latest round under a metric's key on the topic is in force. `number` counts from 1;
    `threshold` is the value in the question, in the metric's unit; it is null once all rounds are
    decided (`number` is then the number of the last round). A minimum asks "is your value at most
    this?", a maximum "at least this?".
    """

    metric: str
    revision: int
    number: int
    rounds: int
    threshold: float | None
    opened_ms: int
    decisions: tuple[Decision, ...]

    @classmethod
    def of(cls, metric: SearchMetric, progress: Progress, opened_ms: int) -> Round:
        """Return the round that follows from the decisions so far.

        `metric`: the metric; `progress`: the decisions so far; `opened_ms`: when the round opens,
        in ms since the epoch.
        """
        search = metric.search
        over = search.finished(progress)
        return cls(
            metric=metric.name,
            revision=metric.revision,
            number=min(len(progress.decisions) + 1, search.rounds),
            rounds=search.rounds,
            threshold=None if over else search.threshold(progress),
            opened_ms=opened_ms,
            decisions=progress.decisions,
        )

    @property
    def progress(self) -> Progress:
        """The progress of the search."""
        return Progress(self.decisions)

    @property
    def is_over(self) -> bool:
        """Whether all rounds are decided."""
        return self.threshold is None

    def extends(self, earlier: Round) -> bool:
        """Return whether this round follows from another by at least one decision."""
        decided_count = len(earlier.decisions)
        return (
            len(self.decisions) > decided_count
            and self.decisions[:decided_count] == earlier.decisions
        )

    def fault(self, metric: SearchMetric) -> str:
        """Return why devices must not answer this round of a metric; "" if they may.

        A device trusts only its copy of the definition, not the coordinator, Kafka or an HTTP
        server. It cannot check whether the earlier rounds were decided as this round states.
        """
        search = metric.search
        shown = (
            f"round {self.number} of {self.rounds} of {self.metric!r}, revision {self.revision}, "
            f"threshold {self.threshold}"
        )
        expected = (metric.name, metric.revision, search.rounds)
        if (self.metric, self.revision, self.rounds) != expected:
            return (
                f"{shown}: expected a round of {metric.name!r}, revision {metric.revision}, which "
                f"has {search.rounds}"
            )
        if not 1 <= self.number <= search.rounds:
            return f"{shown}: expected a number from 1 to {search.rounds}"
        if self.threshold is not None and not search.could_ask(self.number, self.threshold):
            return (
                f"{shown}: expected the middle of one of the {2 ** (self.number - 1)} intervals "
                "that the search can have reached"
            )
        return ""


def encode(decoded: Round) -> bytes:
    """Return a round as JSON, in the form of messages on the topic."""
    return msgspec.json.encode(decoded)


def decode(text: bytes) -> Round:
    """Return the round that :func:`encode` wrote as JSON.

    Raises ValueError if the text is not a round, or is longer than a round can be.
    """
    if len(text) > LARGEST_ANSWER:
        raise ValueError(f"{len(text)} bytes: expected at most {LARGEST_ANSWER}")
    decoded = decode_json(text, Round)
    if decoded.rounds > MOST_ROUNDS or not NAME_PATTERN.fullmatch(decoded.metric):
        raise ValueError(f"{decoded.rounds} rounds of {decoded.metric!r:.80}: no metric has them")
    decided = len(decoded.decisions)
    expected = decided + (decoded.threshold is not None)
    if not 1 <= decoded.number <= decoded.rounds or decoded.number != expected:
        raise ValueError(f"round {decoded.number} of {decoded.rounds} after {decided} decisions")
    return decoded
