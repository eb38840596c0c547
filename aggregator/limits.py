"""When to stop a partition rather than go on: too much is refused, or too much is open.

What was refused is remembered with the sums, in the same commit, so that neither a restart nor a
change of owner begins the count anew. See docs/decisions/0011-limits-of-dead-letters.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

import msgspec

from aggregator.settings import Aggregate

FIELD = "refused"
"""Where it is in the owner's hash."""
ORDINARY = frozenset({"late", "duplicate", "over_limit"})
"""Reasons that say nothing against the definitions: a device was slow, or sent too much."""
BUCKETS = 20
"""Steps in which the window of the ratio slides."""


class Refused(msgspec.Struct):
    """How much of a partition's log was refused lately.

    Attributes
    ----------
    run : int
        Messages refused in a row, up to the last one.
    window : int
        The number of messages over which the ratio is taken.
    full : list of int
        Refused messages in each full step of the window, the oldest first.
    seen, refused : int
        Messages, and refused ones, in the step that is being filled.
    reasons : dict of str to int
        Messages refused since the last one that was not, or in the window.
    """

    run: int = 0
    window: int = 0
    full: list[int] = msgspec.field(default_factory=list)
    seen: int = 0
    refused: int = 0
    reasons: dict[str, int] = msgspec.field(default_factory=dict)

    @classmethod
    def stored(cls, owner: Mapping[str, str]) -> Self:
        """Return what the facts of a partition's owner have; a new one where they have none."""
        try:
            return msgspec.json.decode(owner.get(FIELD, "{}"), type=cls)
        except msgspec.DecodeError:
            return cls()

    def facts(self) -> dict[str, str]:
        """Return it as a field of the owner's hash."""
        return {FIELD: msgspec.json.encode(self).decode()}

    def add(self, messages: int, refused: Sequence[tuple[int, str]], settings: Aggregate) -> str:
        """Go on by some messages; return why to stop before them, or the empty string.

        Parameters
        ----------
        messages : int
            That came next in the log.
        refused : sequence of (int, str)
            Which of them, from 0, were refused and why, ascending.
        settings : Aggregate
        """
        counted = [(index, reason) for index, reason in refused if reason not in ORDINARY]
        if not counted and not self.run and not settings.deadletter_ratio:
            return ""
        why = self._add_run(messages, counted, settings.deadletter_consecutive)
        if settings.deadletter_ratio:
            why = self._add_window(messages, counted, settings) or why
        self.reasons = dict(
            Counter(self.reasons) + Counter(reason for _, reason in counted)
            if self.run or settings.deadletter_ratio
            else {}
        )
        return why and f"{why}, most of them {self._usual()}. {WHAT_TO_DO}"

    def _add_run(self, messages: int, counted: Sequence[tuple[int, str]], limit: int) -> str:
        longest, last = 0, -1
        for index, _ in counted:
            self.run = self.run + 1 if index == last + 1 else 1
            longest, last = max(longest, self.run), index
        if last != messages - 1:
            self.run = 0
        if limit and longest >= limit:
            return f"{longest} messages in a row cannot be counted (deadletter_consecutive)"
        return ""

    def _add_window(
        self, messages: int, counted: Sequence[tuple[int, str]], settings: Aggregate
    ) -> str:
        if self.window != settings.deadletter_window:
            self.window, self.full, self.seen, self.refused = settings.deadletter_window, [], 0, 0
            self.reasons = {}
        indices = [index for index, _ in counted]
        step = max(1, self.window // BUCKETS)
        begin, why = 0, ""
        while begin < messages:
            end = min(messages, begin + step - self.seen)
            self.refused += bisect_left(indices, end) - bisect_left(indices, begin)
            self.seen += end - begin
            begin = end
            if self.seen < step:
                break
            self.full = [*self.full, self.refused][-BUCKETS:]
            self.seen = self.refused = 0
            share = sum(self.full) / (step * BUCKETS)
            if len(self.full) == BUCKETS and share > settings.deadletter_ratio:
                why = (
                    f"{share:.0%} of the last {step * BUCKETS} messages cannot be counted "
                    "(deadletter_ratio)"
                )
        return why

    def _usual(self) -> str:
        return max(self.reasons.items(), key=lambda item: item[1])[0] if self.reasons else "unknown"


WHAT_TO_DO = (
    "Nothing is passed over meanwhile. If the definitions are wrong, correct metrics.toml: "
    "the workers then go on; if these messages belong in the dead letters, go on once with "
    "`dither aggregate --set aggregate.deadletter_consecutive=0 "
    "--set aggregate.deadletter_ratio=0` (`dither deadletters list` then shows them)"
)
