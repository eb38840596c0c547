"""Schedules by the thousand: what they did, and the story of one that failed."""

from __future__ import annotations

import dataclasses
from collections import Counter

from tests.models.simulation.schedule import Outcome, Schedule


@dataclasses.dataclass
class Tally:
    """What schedules have done together.

    Attributes
    ----------
    failed : list of int
        The seeds of those that broke a promise.
    """

    schedules: int = 0
    did: Counter[str] = dataclasses.field(default_factory=Counter)
    injected: Counter[str] = dataclasses.field(default_factory=Counter)
    failed: list[int] = dataclasses.field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a schedule."""
        self.schedules += 1
        self.did += outcome.did
        self.injected += outcome.injected
        if outcome.violation:
            self.failed.append(outcome.seed)

    def lines(self, seconds: float) -> list[str]:
        """Return it as text."""
        faults = sum(self.injected.values())
        return [
            f"{self.schedules} schedules in {seconds:.0f} s, {len(self.failed)} failed"
            + (f": seeds {sorted(self.failed)}" if self.failed else ""),
            *(f"{count:>9} {what}" for what, count in self.did.items()),
            f"{faults:>9} faults, of which",
            *(f"{count:>9} {kind}" for kind, count in self.injected.most_common()),
        ]


def run(seed: int, keep_trace: bool = False) -> Outcome:
    """Run one schedule."""
    return Schedule(seed).run(keep_trace)


def story(outcome: Outcome) -> list[str]:
    """Return the steps of a schedule, how it ended, and how to repeat it."""
    ending = outcome.violation or f"schedule {outcome.seed} kept every promise"
    repeat = f"to repeat it: python -m tests.models.simulation --schedule {outcome.seed}"
    return [*outcome.trace, ending, repeat]
