"""Two metrics that are collected in trust, for tests: wages and votes."""

from __future__ import annotations

from collections.abc import Sequence

MINUTE = 60_000
PANE = 10 * MINUTE


def definitions(wage: Sequence[float], party: Sequence[float], pane: str = "10m") -> str:
    """Return the metrics `wage` and `party` with these privacy levels, as TOML."""
    return f"""
[metrics.wage]
kind = "mean"
trust = "central"
range = [0, 100]
levels = {list(wage)}
pane = "{pane}"
lateness = "1m"
unit = "euros"

[metrics.party]
kind = "frequency"
trust = "central"
categories = ["red", "green", "blue"]
levels = {list(party)}
pane = "{pane}"
lateness = "1m"
"""
