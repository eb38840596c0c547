"""Alarms in the form that events, `--json` and HTTP have."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.reading.serialization import Moment, Numbers, Value
from estimators.metrics.attributes import NO_VALUE, OTHER_VALUE

State = Literal["learning", "watching", "unwatchable"]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline of a series: estimated from panes before the start, or stated by the definition.

    `from`, `to` and `reports` are null if the definition states the value.
    """

    start: Moment | None = msgspec.field(name="from")
    end: Moment | None = msgspec.field(name="to")
    value: Numbers
    reports: int | None


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate from `since` on, or of the last pane if earlier panes have expired.

    Its bounds are not guaranteed, because the window was chosen from the data.
    """

    value: Numbers
    lower: Numbers
    upper: Numbers
    reports: int


class AlarmRaised(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an alarm's event: a series has moved from its baseline.

    `at` is the end of the pane that raised the alarm. `since` is where the change most probably
    began, without a guarantee. `evidence` is the logarithm of how much more probable the panes are
    if the series has moved than if it has not; an alarm is raised when it reaches `needed`. `panes`
    is the number of panes since the start, or since the last alarm of the series. `promise` says
    how many false alarms are expected at most.
    """

    alarm: str
    metric: str
    unit: str
    slice: dict[str, Value]
    category: str | UnsetType = UNSET
    direction: Literal["up", "down"]
    at: Moment
    since: Moment
    baseline: Baseline
    now: Since
    evidence: float
    needed: float
    promise: str
    panes: int

    @property
    def names(self) -> list[str]:
        """The series' ``attribute=value`` pairs and category."""
        return series_names(self.slice, self.category)


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One series of an alarm.

    `evidence` is the evidence of a move from the baseline, as a share of what an alarm needs: at 1
    an alarm is raised; null before the first pane. `smallest_shift` is the smallest move that would
    have raised an alarm by now with a probability of about 90%; null if unknown. A series without
    an alarm may still have moved. `reason` says why a series cannot be watched. `alarms` is the
    number of alarms that the series has raised.
    """

    slice: dict[str, Value]
    category: str | UnsetType = UNSET
    state: State
    evidence: float | None
    baseline: Baseline | None
    smallest_shift: float | None
    panes: int
    alarms: int
    reason: str

    @property
    def names(self) -> list[str]:
        """The series' ``attribute=value`` pairs and category."""
        return series_names(self.slice, self.category)


class AlarmAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an alarm: how far it has looked, and the state of each series.

    `until` is the end of the last pane that it has looked at; null before the first pane. `skipped`
    is the number of panes that expired before the alarm looked at them. The series with most
    evidence come first, those that cannot be watched last. `promised_per_year` is how many false
    alarms a year are expected at most from all series of the alarm together. `raised` are the
    latest alarms, the newest first. `reason` says why the alarm does not look at panes; empty if it
    does.
    """

    alarm: str
    metric: str
    unit: str
    by: list[str]
    where: dict[str, Value]
    start: Moment
    every_seconds: float
    direction: Literal["any", "up", "down"]
    state: State
    until: Moment | None
    skipped: int
    promise: str
    promised_per_year: float
    series: list[SeriesAnswer]
    raised: list[AlarmRaised]
    reason: str


class AlarmsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All alarms; together at most `promised_per_year` false alarms a year are expected."""

    alarms: list[AlarmAnswer]
    promised_per_year: float


def series_names(slice: dict[str, Value], category: str | UnsetType) -> list[str]:  # noqa: A002
    """Return the ``attribute=value`` pairs of a series, and its category.

    Examples
    --------
    >>> series_names({"country": "DE", "version": None}, "red")
    ['country=DE', 'version=none', 'category=red']
    """
    names = [
        f"{name}={NO_VALUE if value is None else value if isinstance(value, str) else OTHER_VALUE}"
        for name, value in slice.items()
    ]
    return names if category is UNSET else [*names, f"category={category}"]


def series_answer_order(series: SeriesAnswer) -> tuple[bool, float]:
    """Return a sort key: series with most evidence first, those that cannot be watched last."""
    return series.state == "unwatchable", -(series.evidence or 0.0)
