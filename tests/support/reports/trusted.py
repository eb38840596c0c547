"""Two metrics of trusted collection, for tests: wages and votes."""

from collections.abc import Sequence

MINUTE = 60_000
PANE = 10 * MINUTE


def definitions(wage: Sequence[float], party: Sequence[float], pane: str = "10m") -> str:
    """Return the metrics `wage` and `party` with these privacy levels, as TOML."""
    keys = f'trust = "central", pane = "{pane}", lateness = "1m"'
    asked = 'kind = "frequency", categories = ["red", "green", "blue"]'
    return f"""
[metrics]
wage = {{{keys}, kind = "mean", range = [0, 100], levels = {list(wage)}, unit = "euros"}}
party = {{{keys}, {asked}, levels = {list(party)}}}
"""
