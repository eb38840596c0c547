"""Decides when a partition halts because too many messages are refused.

The counts are committed with the sums, so that neither a restart nor a change of owner resets them.
See docs/decisions/0011-limits-of-dead-letters.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import msgspec

from aggregator.config.settings import Aggregate
from estimators.durations import milliseconds
from producers.wire.decoding import decode_json

REFUSED_FIELD = "refused"
"""The field of the owner's hash with the window of refused messages."""
DEFINITION_REASONS = frozenset({"unknown_metric", "wrong_revision", "too_many_reports"})
"""Reasons that a wrong metrics.toml can cause; only messages refused for these are limited."""
IGNORED_REASONS = frozenset({"malformed", "bad_frame", "too_large"})
"""Reasons that say nothing about the definitions; messages with these reasons are ignored."""
SPAN_PARTS = 10
"""How many parts the span has. Each part needs a message of the run; otherwise the span
restarts."""
WINDOW_STEPS = 20
"""The number of steps in which the window of the ratio slides."""


class RejectionWindow(msgspec.Struct):
    """The recently refused messages of a partition's log."""

    run: int = 0  # consecutive refused messages up to the last one
    since: int = 0  # Kafka's timestamp of the first of them after a gap, ms
    latest: int = 0  # the latest Kafka timestamp of them, ms
    reasons: dict[str, int] = msgspec.field(default_factory=dict)  # reasons of the run
    window: int = 0  # messages over which the ratio is taken
    # Refused messages per full step, oldest first.
    full: list[int] = msgspec.field(default_factory=list)
    # Reasons per full step, and of the current one.
    why: list[dict[str, int]] = msgspec.field(default_factory=list)
    seen: int = 0  # messages in the current step
    refused: int = 0  # refused messages in the current step

    @classmethod
    def stored(cls, owner: Mapping[str, str]) -> Self:
        """Return the window in an owner's hash; a new window if it has none."""
        try:
            return decode_json(owner.get(REFUSED_FIELD, "{}"), cls)
        except ValueError:
            return cls()

    def facts(self) -> dict[str, str]:
        """Return the field of the owner's hash that stores the window."""
        return {REFUSED_FIELD: msgspec.json.encode(self).decode()}

    def add(
        self, arrived: Sequence[int], refused: Sequence[tuple[int, str]], settings: Aggregate
    ) -> str:
        """Add messages; return why counting must stop before them, or "" if it may continue.

        `arrived`: Kafka's timestamps of the next messages in the log, in ms; `refused`: index and
        reason of each refused message, ascending; `settings`: the settings with the limits.
        """
        refusals: list[tuple[int, int, str]] = []
        skipped = 0
        for index, reason in refused:
            if reason in IGNORED_REASONS:
                skipped += 1
            elif reason in DEFINITION_REASONS:
                refusals.append((index - skipped, arrived[index], reason))
        messages = len(arrived) - skipped
        if not refusals and not self.run and not settings.deadletter_ratio:
            return ""
        why = self._add_run(messages, refusals, settings)
        if settings.deadletter_ratio:
            why = self._add_window(messages, refusals, settings) or why
        return why and f"{why}. {WHAT_TO_DO}"

    def _add_run(
        self, messages: int, refusals: Sequence[tuple[int, int, str]], settings: Aggregate
    ) -> str:
        limit, min_span_ms = settings.deadletter_consecutive, milliseconds(settings.deadletter_span)
        why, last = "", -1
        for index, time, reason in refusals:
            if index != last + 1 or not self.run:
                self.run, self.since, self.latest, self.reasons = 0, time, time, {}
            parts = [ms * SPAN_PARTS // (min_span_ms or 1) for ms in (self.latest, time)]
            if min_span_ms and parts[1] > parts[0] + 1:
                self.since = time
            self.run, self.latest, last = self.run + 1, max(self.latest, time), index
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            if limit and self.run >= limit and time - self.since >= min_span_ms:
                why = (
                    f"{self.run} messages in a row cannot be counted (deadletter_consecutive), "
                    f"most of them {_main_reason([self.reasons])}"
                )
        if last != messages - 1:
            self.run, self.since, self.latest, self.reasons = 0, 0, 0, {}
        return why

    def _add_window(
        self, messages: int, refusals: Sequence[tuple[int, int, str]], settings: Aggregate
    ) -> str:
        if self.window != settings.deadletter_window or len(self.why) != len(self.full) + 1:
            self.window, self.full, self.why = settings.deadletter_window, [], [{}]
            self.seen = self.refused = 0
        indices = [index for index, _, _ in refusals]
        step = max(1, self.window // WINDOW_STEPS)
        begin, why = 0, ""
        while begin < messages:
            end = min(messages, begin + step - self.seen)
            first, last = bisect_left(indices, begin), bisect_left(indices, end)
            added_reasons = Counter(reason for *_, reason in refusals[first:last])
            self.why[-1] = dict(Counter(self.why[-1]) + added_reasons)
            self.refused += last - first
            self.seen += end - begin
            begin = end
            if self.seen < step:
                break
            self.full = [*self.full, self.refused][-WINDOW_STEPS:]
            share = sum(self.full) / (step * WINDOW_STEPS)
            if len(self.full) == WINDOW_STEPS and share > settings.deadletter_ratio:
                why = (
                    f"{share:.0%} of the last {step * WINDOW_STEPS} messages cannot be counted "
                    f"(deadletter_ratio), most of them {_main_reason(self.why[-WINDOW_STEPS:])}"
                )
            self.why = [*self.why[-WINDOW_STEPS:], {}]
            self.seen = self.refused = 0
        return why


def _main_reason(reasons: Iterable[Mapping[str, int]]) -> str:
    """Return the most frequent reason."""
    return sum(map(Counter, reasons), Counter[str]()).most_common(1)[0][0]


WHAT_TO_DO = (
    "No message is skipped meanwhile. If the definitions are wrong, correct metrics.toml, and the "
    "workers resume. If these messages belong in the dead letters, run once "
    "`dither aggregate --set aggregate.deadletter_consecutive=0 "
    "--set aggregate.deadletter_ratio=0` (`dither deadletters list` then shows them)"
)
