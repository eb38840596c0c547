"""The demo's view: estimates beside the truth, during the replay and at the end."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np

from aggregator.local.demo_discoveries import TrueDiscovery
from aggregator.local.demo_watches import TrueAlarm, TrueComparison, watch_notes
from aggregator.reading.search_progress import certified_number, search_progress
from aggregator.reading.serialization import plain, privacy_of
from aggregator.reading.window import Window
from aggregator.terminal.estimate_text import crowd_lines
from estimators import Estimate, Metric, SearchMetric, TrustedMetric
from producers.populations.produce import ReplayProgress
from producers.populations.truth import Truth

KIND_NOTES: dict[type[Metric], str] = {
    TrustedMetric: "trusted collection: the latest release, beside the truth of the same weeks",
    SearchMetric: "found in rounds; the few values beyond the certified one are hidden by noise",
}


RELAY_NOTE = (
    "that would hold if somebody else ran the relay: two processes of one operator are no relay"
)


@dataclasses.dataclass(frozen=True)
class View:
    """What the demo shows at one moment.

    Attributes
    ----------
    windows, estimates, truths : dict of str to Window, Estimate or Truth
        The windows, their estimates and the truth, by metric. The truth is about the devices whose
        reports are counted.
    devices : int
        The number of devices that will have reported at the end.
    counted, answers : int
        The number of counted reports of metrics without rounds, and with rounds.
    seconds : float
        The time since the replay began.
    alarms : tuple of TrueAlarm
        The alarms in the order in which they were raised.
    comparisons : tuple of TrueComparison
        The comparisons that have looked at a pane.
    discoveries : tuple of TrueDiscovery
        The discoveries of metrics whose answer is a list of strings, so that they lack an estimate.
    """

    progress: ReplayProgress | None
    windows: dict[str, Window]
    estimates: dict[str, Estimate]
    truths: dict[str, Truth]
    devices: int
    counted: int
    answers: int
    seconds: float
    url: str
    places: str
    alarms: tuple[TrueAlarm, ...] = ()
    comparisons: tuple[TrueComparison, ...] = ()
    discoveries: tuple[TrueDiscovery, ...] = ()

    @property
    def findings(self) -> list[str]:
        """Discoveries, comparisons and alarms as text, beside the truth."""
        notes = [discovery.note for discovery in self.discoveries]
        return [*notes, *watch_notes(self.alarms, self.comparisons)]

    @property
    def notes(self) -> list[str]:
        """Explanations of the metrics that need an explanation."""
        notes = [
            f"{name}: {_round(window)}{note}"
            for kind, note in KIND_NOTES.items()
            for name, window in self.windows.items()
            if isinstance(window.metric, kind)
        ]
        notes += [
            f"{name}: {' '.join(line.split())}\n{RELAY_NOTE}"
            for name, window in self.windows.items()
            if (line := " ".join(crowd_lines(window.metric)))
        ]
        notes += [
            f"{name}: no value yet: no pane of {metric.pane_ms / 1000:g} s has ended with a crowd "
            f"of {metric.crowd.minimum} reports; a longer replay (--seconds) has more panes"
            for name, window in self.windows.items()
            if (metric := window.metric).crowd is not None and not self.estimates[name].reports
        ]
        return notes

    @property
    def privacy(self) -> dict[str, Any]:
        """The JSON form of the privacy that a report keeps, for each metric with a crowd."""
        privacy = {name: privacy_of(window.metric) for name, window in self.windows.items()}
        return {name: msgspec.to_builtins(stated) for name, stated in privacy.items() if stated}

    def labels(self, name: str) -> tuple[str, ...]:
        """Return the names of a metric's numbers; ("",) if it has a single number."""
        return self.windows[name].metric.labels or ("",)

    def statement(self, name: str) -> str:
        """Return the certified statement about an extreme; "" if the metric is not searched for."""
        search, metric = search_progress(self.windows[name]), self.windows[name].metric
        if search is None:
            return ""
        return certified_number(SearchMetric.require(metric), search.certified)

    def is_uninformative(self, name: str, lower: float, upper: float) -> bool:
        """Return whether the bounds of a number tell nothing because they cover its domain.

        `name`: the name of the metric; `lower`, `upper`: the bounds.
        """
        lowest, highest = self.windows[name].metric.domain.ends
        return bool(lower <= lowest and upper >= highest)


def _round(window: Window) -> str:
    current = window.round
    if current is None:
        return ""
    if current.is_over:
        return f"all {current.rounds} rounds decided; "
    return f"round {current.number} of {current.rounds}; "


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of the demo."""

    view: View
    reports: int
    reports_per_second: float
    verified: bool
    differences: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """Return the truth, the estimate and its bounds for every number of every metric."""
        rows: list[dict[str, Any]] = []
        for name, estimate in self.view.estimates.items():
            numbers = (self.view.truths[name].value, estimate.shown, estimate.lower, estimate.upper)
            columns = (np.atleast_1d(column).tolist() for column in numbers)
            numbered = zip(self.view.labels(name), *columns, strict=True)
            for category, truth, value, lower, upper in numbered:
                rows.append(
                    {
                        "metric": name,
                        "category": category or None,
                        "truth": plain(truth),
                        "value": plain(value),
                        "lower": plain(lower),
                        "upper": plain(upper),
                        "covered": lower <= truth <= upper,
                        "vacuous": self.view.is_uninformative(name, lower, upper),
                    }
                )
        return rows

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain values for JSON."""
        return {
            "reports": self.reports,
            "reports_per_second": round(self.reports_per_second, 1),
            "verified": self.verified,
            "metrics": self.rows(),
            "privacy": self.view.privacy,
            "alarms": [watch.as_dict() for watch in self.view.alarms],
            "comparisons": [watch.as_dict() for watch in self.view.comparisons],
            "discoveries": [watch.as_dict() for watch in self.view.discoveries],
        }
