"""Strings that the demo discovers, beside the true shares, which only its devices know."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np

from aggregator.reading.discovered_strings import Discovered, discover_strings
from aggregator.reading.reader import MetricReader
from aggregator.timestamps import iso
from estimators import LocalMetric, Metric
from producers.populations.population import Population

DISCOVERY_BETA = 0.05
MAX_SHOWN_STRINGS = 4


def discovers(metric: Metric) -> bool:
    """Return whether a metric's answer is a list of strings that its definition does not name."""
    return isinstance(metric, LocalMetric) and metric.randomizer.discovers and not metric.labels


@dataclasses.dataclass(frozen=True)
class TrueDiscovery:
    """The strings discovered in a metric's closed panes, and their true shares.

    Attributes
    ----------
    truth : dict of str to float
        For each string that is held, its share among the devices that hold one and reported before
        the end of the last closed pane.
    last_ms : int or None
        When the last device reported before that end, in ms since the epoch; None if none did.
    """

    discovered: Discovered
    truth: dict[str, float]
    last_ms: int | None

    @property
    def note(self) -> str:
        """The discovered strings and their true shares, as text."""
        name, strings = self.discovered.window.metric.name, list(self.discovered.found)
        if self.discovered.status != "final":
            return f"{name}: no pane is closed yet, so that no string can be found"
        first = ", ".join(
            f"{row.string} {row.value:.1%} (truth: {self.truth.get(row.string, 0):.1%})"
            for row in strings[:MAX_SHOWN_STRINGS]
        )
        hidden = len(strings) - MAX_SHOWN_STRINGS
        more = f", and {hidden} more" if hidden > 0 else ""
        return (
            f"{name}: {len(strings)} strings found until {str(iso(self.last_ms))[:10]}, of "
            f"{len(self.truth)} that devices hold: {first}{more}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the discovery as plain values for JSON."""
        end_ms = self.discovered.window.end_ms
        return {
            "metric": self.discovered.window.metric.name,
            "to": None if end_ms is None else iso(end_ms),
            "reports": self.discovered.found.reports,
            "held": len(self.truth),
            "strings": [
                {
                    "string": row.string,
                    "truth": self.truth.get(row.string, 0.0),
                    "value": row.value,
                    "lower": row.lower,
                    "upper": row.upper,
                }
                for row in self.discovered.found
            ],
        }


class TrueDiscoveries:
    """The discoveries of a demo; a search is repeated whenever another pane is closed."""

    def __init__(self, reader: MetricReader, population: Population) -> None:
        self._reader, self._population = reader, population
        self._discoveries: dict[str, TrueDiscovery] = {}

    def now(self) -> tuple[TrueDiscovery, ...]:
        """Return the current discovery of each metric."""
        for name, metric in self._reader.metrics.items():
            if not discovers(metric):
                continue
            described, reading = self._reader.describe_closed(name)
            discovery = self._discoveries.get(name)
            if discovery is None or discovery.discovered.window.end_ms != described.end_ms:
                answer = discover_strings(self._reader.read(described), DISCOVERY_BETA, reading)
                part = self._reported(name, described.end_ms)
                self._discoveries[name] = TrueDiscovery(answer, *part)
        return tuple(self._discoveries.values())

    def _reported(self, name: str, end_ms: int | None) -> tuple[dict[str, float], int | None]:
        """Return the true shares among the reports before a time, and the last report's time."""
        times = self._population.time_ms
        rows = 0 if end_ms is None else int(np.searchsorted(times, end_ms))
        part = self._population.part(0, rows)
        held = Counter(part.columns[name][part.has_value(name)].tolist())
        shares = {text: count / held.total() for text, count in held.items()}
        return shares, int(part.time_ms[-1]) if rows else None
