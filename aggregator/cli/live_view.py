"""An estimate drawn in place in a terminal: value, bounds, history, categories, levels."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aggregator.reading.search_progress import search_lines, search_progress
from aggregator.reading.window import Window
from aggregator.terminal.estimate_text import (
    columns,
    counted_text,
    level_table,
    printable,
    release_lines,
    suggests_uniform_weights,
)
from estimators import Estimate
from estimators.rounding import at_most, certainty, common_decimals, interval
from estimators.shapes import Shape

HISTORY_LENGTH = 60
BAR_WIDTH = 40
SPARK_BLOCKS = "▁▂▃▄▅▆▇█"
RATE_SECONDS = 10.0


class LiveView:
    """Redraws an estimate whenever it has changed; `live` draws while it is entered.

    Parameters
    ----------
    top : int
        The most categories or coordinates that are shown.
    """

    def __init__(self, top: int) -> None:
        self.top = top
        self.live = Live(auto_refresh=False)
        self._values: deque[float] = deque(maxlen=HISTORY_LENGTH)
        self._counts: deque[tuple[float, int]] = deque(maxlen=HISTORY_LENGTH)
        self.shapes: dict[Shape, Callable[[Window, Estimate], RenderableType]] = {
            Shape.NUMBER: self._number,
            Shape.NAMED_NUMBERS: self._named_numbers,
            Shape.DISTRIBUTION: self._quantiles,
            Shape.SEARCH: self._search,
        }

    def show(self, window: Window, estimate: Estimate) -> None:
        """Draw the view again, with a new estimate."""
        self._counts.append((time.monotonic(), estimate.reports))
        if not np.ndim(estimate.value) and not np.isnan(estimate.value):
            self._values.append(float(estimate.shown))
        self.live.update(self.draw(window, estimate), refresh=True)

    def draw(self, window: Window, estimate: Estimate) -> RenderableType:
        """Return an estimate in a form that the library rich prints."""
        metric = window.metric
        rate = f", {per_second:,.0f} a second" if (per_second := self._rate()) else ""
        parts: list[RenderableType] = [
            Text.assemble(
                (metric.name, "bold"),
                f"  {metric.description}  ",
                (estimate.status, "green" if estimate.status == "final" else "dim"),
            ),
            Text(
                f"{counted_text(metric, estimate)}{rate}, "
                f"worth {estimate.effective_reports:,.0f} without noise; "
                f"{certainty(estimate.beta)} {estimate.bound} bounds, {estimate.covers}",
                style="dim",
            ),
        ]
        parts.append(self.shapes[metric.shape](window, estimate))
        if estimate.radius is not None:
            parts.append(
                Text(f"within {at_most(estimate.radius)} {metric.unit} of the true vector")
            )
        if estimate.privacy is not None:
            parts.append(Text("\n".join(["", *release_lines(estimate, window.start_ms), ""])))
        parts.append(_levels(estimate))
        if suggests_uniform_weights(estimate):
            parts.append(Text("values depend on the level: consider weights uniform", "yellow"))
        return Group(*parts)

    def _search(self, window: Window, estimate: Estimate) -> Text:
        search = search_progress(window)
        certain = "" if search is None else f"\n{search.statement}\n"
        return Text.assemble((certain, "bold cyan"), "\n".join(["", *search_lines(window), ""]))

    def _number(self, window: Window, estimate: Estimate) -> Text:
        metric = window.metric
        numbers = columns(estimate)
        value, lower, upper = interval(numbers)
        text = Text.assemble("\n", (value, "bold cyan"), f" {metric.unit} in [{lower}, {upper}]\n")
        low, high = metric.domain.ends
        text.append_text(Text.assemble(f"{low:g} ", band(low, high, *numbers), f" {high:g}\n"))
        text.append(sparkline(self._values), style="cyan")
        return text

    def _named_numbers(self, window: Window, estimate: Estimate) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("", "value", "lower", "upper", ""):
            table.add_column(name, justify="left" if not name else "right")
        shown = estimate.top(self.top)
        values, lowers, uppers = columns(shown)
        low = min(0.0, *np.nan_to_num(lowers)) if lowers else 0.0
        high = max(1e-9, *np.nan_to_num(uppers)) if uppers else 1.0
        places = common_decimals(lowers, uppers)
        for label, *numbers in zip(shown.labels, values, lowers, uppers, strict=True):
            table.add_row(
                Text(printable(label)), *interval(numbers, places), band(low, high, *numbers)
            )
        if hidden := len(estimate.labels) - len(shown.labels):
            table.add_row(f"and {hidden} more", style="dim")
        return table

    def _quantiles(self, window: Window, estimate: Estimate) -> Table:
        return self._named_numbers(window, estimate.numbers)

    def _rate(self) -> float:
        """Return the number of reports per second over the last ten seconds; 0 if unknown."""
        if not self._counts:
            return 0.0
        now, count = self._counts[-1]
        recent = [(seconds, n) for seconds, n in self._counts if now - seconds <= RATE_SECONDS]
        first_time, first_count = recent[0]
        return max(0.0, (count - first_count) / (now - first_time)) if now > first_time else 0.0


def _levels(estimate: Estimate) -> Table:
    table = Table(box=None, pad_edge=False, style="dim")
    names, rows = level_table(estimate, "{:,}")
    for name in names:
        head = f"weight ({estimate.policy})" if name == "weight" else name
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def band(low: float, high: float, value: float, lower: float, upper: float) -> Text:
    """Return a line of characters with a value and its bounds between `low` and `high`.

    Parameters
    ----------
    low, high : float
        The ends of the line.
    value, lower, upper : float
        The value and its bounds; NaN if unknown.

    Examples
    --------
    >>> band(0, 1, 0.5, 0.25, 0.75).plain
    '──────────━━━━━━━━━━●━━━━━━━━━──────────'
    """

    def cell(x: float) -> int:
        return min(BAR_WIDTH - 1, max(0, int((x - low) / (high - low) * BAR_WIDTH)))

    if any(np.isnan(x) for x in (value, lower, upper)):
        return Text("─" * BAR_WIDTH, style="dim")
    first, middle, last = cell(lower), cell(value), cell(np.nextafter(upper, low))
    return Text.assemble(
        ("─" * first, "dim"),
        ("━" * (middle - first), "cyan"),
        ("●", "bold cyan"),
        ("━" * (last - middle), "cyan"),
        ("─" * (BAR_WIDTH - 1 - max(middle, last)), "dim"),
    )


def sparkline(values: Any) -> str:
    """Return values as a line of blocks of different heights; "" unless two values differ.

    Examples
    --------
    >>> sparkline([0, 1, 2, 3])
    '▁▃▆█'
    """
    numbers = np.asarray(list(values), dtype=float)
    if numbers.size < 2 or np.ptp(numbers) == 0:
        return ""
    heights = np.rint((numbers - numbers.min()) / np.ptp(numbers) * (len(SPARK_BLOCKS) - 1))
    return "".join(SPARK_BLOCKS[int(height)] for height in heights)
