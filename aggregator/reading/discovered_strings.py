"""Discovery of frequent strings in closed panes.

A string has the same code under a seed in every pane, so that answers about overlapping windows are
dependent. A reading without an end therefore covers all panes that every partition has closed; if
there are k, it has beta_k = 6 beta / (pi^2 k^2). Summed over all k, read or not, this is beta.
"""

from __future__ import annotations

import dataclasses
import math

import msgspec

from aggregator.reading.frames.columns import WINDOW_COLUMNS
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import Intervals, LabelledInterval, Picture, Pictured
from aggregator.reading.query import Progress, ignore_progress
from aggregator.reading.window import Window
from aggregator.timestamps import from_iso, iso
from estimators import Discovery, LocalMetric
from estimators.rounding import certainty

FOUND_NEARLY_ALWAYS = 10.0
"""The frequency, in standard errors, from which on more than 90% of strings are found."""
COMMON_SHARE = 0.1
"""The share of people for which an answer without strings says how many reports are needed."""
DISCOVERY_COLUMNS = (
    *WINDOW_COLUMNS,
    *("label", "value", "lower", "upper", "reports", "status", "beta", "covers"),
)


class SearchCancelledError(Exception):
    """A search was cancelled."""


@dataclasses.dataclass(frozen=True)
class Discovered(Pictured):
    """The frequent strings that were found in a window.

    Attributes
    ----------
    found : Discovery
        The result of the search; it has no strings unless the status is ``final``.
    status : str
        ``not_ready`` (no pane is closed), ``provisional`` (the window is not closed yet),
        ``too_few_reports``, ``final`` or ``expired``.
    beta : float
        The largest probability that one of the covered answers is wrong.
    covers : str
        The answers that are all correct with probability 1 - beta.
    """

    window: Window
    found: Discovery
    status: str
    beta: float
    covers: str

    def to_frame(self) -> Frame:
        """Return a table with a row for each string, the most frequent first."""
        return discovery_answer(self).to_frame()

    @property
    def reason(self) -> str:
        """Why there are no strings; "" if there are some."""
        return "" if len(self.found) else explain_no_strings(self)

    def __str__(self) -> str:
        """Return a line with the number of strings, or the reason why there are none."""
        name = self.window.metric.name
        if self.reason:
            return f"{name}: {self.reason}"
        return f"{name}: {len(self.found)} frequent strings in {self.found.reports:,} reports"

    @property
    def picture(self) -> Picture:
        """The picture of the intervals of the strings' shares."""
        name, discovery = self.window.metric.name, self.found
        facts: tuple[str, ...] = (
            f"{self.status.replace('_', ' ')}; {discovery.reports:,} reports",
            f"with {certainty(self.beta)} all strings are real and all bounds hold; "
            f"covers {self.covers}",
        )
        facts += (self.reason,) * bool(self.reason)
        rows = (LabelledInterval(row.string, row.value, row.lower, row.upper) for row in discovery)
        return Intervals(f"{name}: {len(discovery)} frequent strings", facts, tuple(rows))


class StringAnswer(msgspec.Struct, frozen=True):
    """A string that was found, its estimated share of people, and its bounds.

    If the lower bound is zero, the share is above it, because somebody holds the string.
    """

    string: str
    value: float
    lower: float
    upper: float


class DiscoveryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The strings that were found in a window, the most frequent first.

    A string is found nearly always if at least a share `found_from` of people hold it (10 standard
    errors; null without reports). To find strings with a share f, `reports` (found_from / f)^2
    reports are needed. Strings whose code words have more than `longest_code` bits are never found,
    however frequent.
    """

    metric: str
    status: str
    start: str | None = msgspec.field(name="from")
    end: str | None = msgspec.field(name="to")
    beta: float
    covers: str
    reports: int
    whole_strings: int
    candidates: int
    found_from: float | None
    longest_code: int
    strings: list[StringAnswer]

    def to_frame(self) -> Frame:
        """Return a table with a row for each string, the most frequent first."""
        ends = (self.start, self.end)
        window = (None if end is None else round(1000 * from_iso(end)) for end in ends)
        named = (self.metric, "frequency", "", *window)
        stated = (self.reports, self.status, self.beta, self.covers)
        numbers = map(msgspec.structs.astuple, self.strings)
        return Frame.of(DISCOVERY_COLUMNS, ((*named, *row, *stated) for row in numbers))


class PaneDiscovery(msgspec.Struct, frozen=True, kw_only=True):
    """The strings that were found in a final pane, the most frequent first.

    With probability 1 - beta, somebody holds each string and all bounds hold; this promise is
    separate from that of the estimate. The fields are those of a discovery, and `left_out`: how
    many found strings are not shown.
    """

    beta: float
    covers: str
    whole_strings: int
    candidates: int
    found_from: float | None
    strings: list[StringAnswer]
    left_out: int


def pane_discovery(discovery: DiscoveryAnswer, max_strings: int) -> PaneDiscovery:
    """Return the JSON form of the strings of a pane, at most `max_strings`."""
    return PaneDiscovery(
        beta=discovery.beta,
        covers=discovery.covers,
        whole_strings=discovery.whole_strings,
        candidates=discovery.candidates,
        found_from=discovery.found_from,
        strings=discovery.strings[:max_strings],
        left_out=max(0, len(discovery.strings) - max_strings),
    )


def discovery_answer(discovered: Discovered) -> DiscoveryAnswer:
    """Return the JSON form of the discovered strings."""
    window, discovery = discovered.window, discovered.found
    from_share = FOUND_NEARLY_ALWAYS * discovery.noise_floor
    return DiscoveryAnswer(
        metric=window.metric.name,
        status=discovered.status,
        start=None if window.start_ms is None else iso(window.start_ms),
        end=None if window.end_ms is None else iso(window.end_ms),
        beta=discovered.beta,
        covers=discovered.covers,
        reports=discovery.reports,
        whole_strings=discovery.tested,
        candidates=discovery.candidates,
        found_from=from_share if math.isfinite(from_share) else None,
        longest_code=LocalMetric.require(window.metric).require_discovery().layout.depths[-1],
        strings=[StringAnswer(*row) for row in discovery],
    )


def explain_no_strings(discovered: Discovered) -> str:
    """Return why no string was found; if reports are too few, say how many are needed."""
    metric, discovery = LocalMetric.require(discovered.window.metric), discovered.found
    answer = discovery_answer(discovered)
    match discovered.status:
        case "not_ready":
            return (
                f"no pane is closed yet: one of {metric.pane} closes {metric.lateness} of event "
                "time after its end, in every partition"
            )
        case "provisional":
            return "the window is not closed yet, and strings are found in closed panes only"
        case "expired":
            return "the window has expired (`retention`)"
        case "too_few_reports":
            return (
                f"{discovery.reports:,} reports are too few: the metric asks for "
                f"{metric.minimum_reports:,} (`minimum_reports`)"
            )
    if answer.found_from is None:
        return "there are no reports"
    if answer.found_from > 1:
        return (
            f"{discovery.reports:,} reports are too few: strings of {COMMON_SHARE:.0%} of people "
            f"need about {reports_needed(answer.reports, answer.found_from):,}"
        )
    return (
        f"no string is frequent enough: those of {answer.found_from:.2%} of people are found "
        f"nearly always, but for code words of more than {answer.longest_code} bits"
    )


def reports_needed(reports: int, found_from: float) -> int:
    """Return how many reports are needed to find the strings that `COMMON_SHARE` of people hold.

    With `reports` reports, strings that a share `found_from` of people hold are found.
    """
    return math.ceil(reports * (found_from / COMMON_SHARE) ** 2)


def discover_strings(
    window: Window, beta: float, reading: int | None, progress: Progress = ignore_progress
) -> Discovered:
    """Return the frequent strings of a window.

    Parameters
    ----------
    window : Window
        The window, with its sums.
    beta : float
        The largest probability that the answer is wrong.
    reading : int or None
        The number of closed panes if the window is all panes so far; None if its end is fixed.
    progress : callable
        Takes the share of the work that is done; an exception from it ends the work.

    Raises
    ------
    ValueError
        If the metric does not discover strings, or beta is not a probability.
    """
    metric = LocalMetric.require(window.metric)
    if not 0 < beta < 1:
        raise ValueError(f"beta = {beta!r}: expected a probability between 0 and 1")
    reports = int(metric.counts(window.sums).sum())
    status = window.status
    if status == "final" and reports < metric.minimum_reports:
        status = "too_few_reports"
    reading_beta, covers = beta, "this window"
    if reading is not None:
        reading_beta, covers = 6 * beta / (math.pi * max(1, reading)) ** 2, "all ends of panes"
    statistic = window.sums if status == "final" else metric.zero()
    discovery = metric.discover(statistic, reading_beta, progress)
    discovery = dataclasses.replace(discovery, reports=reports)
    return Discovered(window, discovery, status, beta, covers)
