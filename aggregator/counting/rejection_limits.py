"""Decides when a partition halts: too many reports are refused, or too many panes are open.

What was refused is remembered with the sums, in the same commit, so that neither a restart nor a
change of owner begins the count anew. See docs/decisions/0011-limits-of-dead-letters.md.
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

FIELD = "refused"
"""Where it is in the owner's hash."""
AGAINST = frozenset({"unknown_metric", "wrong_revision", "too_many_reports"})
"""Reasons that a wrong metrics.toml can cause: only these are counted here."""
SILENT = frozenset({"malformed", "bad_frame", "too_large"})
"""Reasons that say nothing for or against the definitions: such messages are passed over here."""
TENTHS = 10
"""Of the span: each must have some of a row's messages, or the span begins anew."""
BUCKETS = 20
"""Steps in which the window of the ratio slides."""


class RejectionWindow(msgspec.Struct):
    """The recently refused part of a partition's log.

    Attributes
    ----------
    run : int
        Messages refused in a row, up to the last one.
    since, latest : int
        Kafka's timestamps of the first of them since there was a gap, and of the latest, in ms.
    reasons : dict of str to int
        Why they were refused.
    window : int
        The number of messages over which the ratio is taken.
    full : list of int
        Refused messages in each full step of the window, the oldest first.
    why : list of dict of str to int
        The reasons of these, and of the step that is being filled.
    seen, refused : int
        Messages, and refused ones, in the step that is being filled.
    """

    run: int = 0
    since: int = 0
    latest: int = 0
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    window: int = 0
    full: list[int] = msgspec.field(default_factory=list)
    why: list[dict[str, int]] = msgspec.field(default_factory=list)
    seen: int = 0
    refused: int = 0

    @classmethod
    def stored(cls, owner: Mapping[str, str]) -> Self:
        """Return what the facts of a partition's owner have; a new one where they have none."""
        try:
            return decode_json(owner.get(FIELD, "{}"), cls)
        except ValueError:
            return cls()

    def facts(self) -> dict[str, str]:
        """Return it as a field of the owner's hash."""
        return {FIELD: msgspec.json.encode(self).decode()}

    def add(
        self, arrived: Sequence[int], refused: Sequence[tuple[int, str]], settings: Aggregate
    ) -> str:
        """Go on by some messages; return why to stop before them, or the empty string.

        Parameters
        ----------
        arrived : sequence of int
            Kafka's timestamps of the messages that came next in the log, in ms.
        refused : sequence of (int, str)
            Which of them, from 0, were refused and why, ascending.
        settings : Aggregate
        """
        places: list[tuple[int, int, str]] = []
        skipped = 0
        for index, reason in refused:
            if reason in SILENT:
                skipped += 1
            elif reason in AGAINST:
                places.append((index - skipped, arrived[index], reason))
        messages = len(arrived) - skipped
        if not places and not self.run and not settings.deadletter_ratio:
            return ""
        why = self._add_run(messages, places, settings)
        if settings.deadletter_ratio:
            why = self._add_window(messages, places, settings) or why
        return why and f"{why}. {WHAT_TO_DO}"

    def _add_run(
        self, messages: int, places: Sequence[tuple[int, int, str]], settings: Aggregate
    ) -> str:
        limit, least = settings.deadletter_consecutive, milliseconds(settings.deadletter_span)
        why, last = "", -1
        for index, time, reason in places:
            if index != last + 1 or not self.run:
                self.run, self.since, self.latest, self.reasons = 0, time, time, {}
            if least and time * TENTHS // least > self.latest * TENTHS // least + 1:
                self.since = time
            self.run, self.latest, last = self.run + 1, max(self.latest, time), index
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            if limit and self.run >= limit and time - self.since >= least:
                why = (
                    f"{self.run} messages in a row cannot be counted (deadletter_consecutive), "
                    f"most of them {_usual([self.reasons])}"
                )
        if last != messages - 1:
            self.run, self.since, self.latest, self.reasons = 0, 0, 0, {}
        return why

    def _add_window(
        self, messages: int, places: Sequence[tuple[int, int, str]], settings: Aggregate
    ) -> str:
        if self.window != settings.deadletter_window or len(self.why) != len(self.full) + 1:
            self.window, self.full, self.why = settings.deadletter_window, [], [{}]
            self.seen = self.refused = 0
        indices = [index for index, _, _ in places]
        step = max(1, self.window // BUCKETS)
        begin, why = 0, ""
        while begin < messages:
            end = min(messages, begin + step - self.seen)
            first, last = bisect_left(indices, begin), bisect_left(indices, end)
            found = Counter(self.why[-1]) + Counter(reason for *_, reason in places[first:last])
            self.why[-1] = dict(found)
            self.refused += last - first
            self.seen += end - begin
            begin = end
            if self.seen < step:
                break
            self.full = [*self.full, self.refused][-BUCKETS:]
            share = sum(self.full) / (step * BUCKETS)
            if len(self.full) == BUCKETS and share > settings.deadletter_ratio:
                why = (
                    f"{share:.0%} of the last {step * BUCKETS} messages cannot be counted "
                    f"(deadletter_ratio), most of them {_usual(self.why[-BUCKETS:])}"
                )
            self.why = [*self.why[-BUCKETS:], {}]
            self.seen = self.refused = 0
        return why


def _usual(reasons: Iterable[Mapping[str, int]]) -> str:
    """Return the most frequent reason."""
    found = sum(map(Counter, reasons), Counter[str]())
    return found.most_common(1)[0][0]


WHAT_TO_DO = (
    "No message is skipped meanwhile. If the definitions are wrong, correct metrics.toml, and the "
    "workers resume. If these messages belong in the dead letters, run once "
    "`dither aggregate --set aggregate.deadletter_consecutive=0 "
    "--set aggregate.deadletter_ratio=0` (`dither deadletters list` then shows them)"
)
