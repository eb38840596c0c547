"""An estimate as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import UNSET

from aggregator.reading import coverage
from aggregator.reading.search_progress import in_words, searched
from aggregator.reading.serialization import lies
from aggregator.reading.windows import Window
from aggregator.timestamps import iso
from estimators import Estimate, LocalMetric, Metric, SearchMetric, rounding
from estimators.estimate import Floats
from estimators.rounding import at_most, certainty, common_decimals, interval

TINY = 1e-3
"""A p-value at which levels are said to differ: one metric in a thousand without a reason."""
SHOWN = 20
"""Categories in a table."""
WARNING = (
    "warning    the values depend on the privacy level: weights other than uniform then estimate\n"
    "           a different population (--weights uniform, or dither weights METRIC uniform)"
)


def as_text(
    metric: Metric,
    found: Estimate,
    top: int,
    nearest: Floats | None = None,
    window: Window | None = None,
    told: Sequence[str] = (),
) -> str:
    """Return an estimate for people, the nearest distribution beside it.

    Parameters
    ----------
    metric : Metric
        The question.
    found : Estimate
        Its answer.
    top : int
        How many categories or coordinates to show at most.
    nearest : ndarray of float64, optional
        The nearest probability distribution.
    window : Window, optional
        What was read: it says which pane a release is of, and where a search stands.
    told : sequence of str
        Lines on what the answer does not contain.
    """
    lines = [
        f"{metric.name}: {metric.description or metric.kind}",
        f"status     {found.status}",
        f"reports    {found.reports} (worth {found.effective_reports:.0f} without noise)",
        f"bounds     {certainty(found.beta)} {found.bound}, {found.target}",
        f"weights    {found.policy}",
    ]
    lines[4:4] = coverage.in_words(found)
    lines[3:3] = told
    if window is not None and isinstance(metric, SearchMetric):
        lines += in_words(window)
    elif found.privacy is None:
        lines += lying(metric, found)
    else:
        lines += releasing(found, None if window is None else window.start_ms)
    if found.heterogeneity is not None:
        evidence = "values depend" if depends(found) else "no evidence that values depend"
        p = f"(Cochran's Q, p = {found.heterogeneity:.2g})"
        lines.append(f"levels     {evidence} on the privacy level {p}")
    if warns(found):
        lines.append(WARNING)
    lines.append("")
    if np.ndim(found.value):
        kind, plural = (
            ("coordinate", "coordinates")
            if metric.kind == "vector_mean"
            else ("category", "categories")
        )
        shown = found.top(top)
        head, columns = [kind, "value", "lower", "upper"], _columns(shown)
        places = common_decimals(*columns[1:])
        rows: list[tuple[str, ...]] = [
            (label, *interval(numbers, places))
            for label, *numbers in zip(shown.labels, *columns, strict=True)
        ]
        if nearest is not None:  # in the same order: the projection keeps it
            head.append("simplex")
            ordered = np.sort(nearest)[::-1][: len(rows)].tolist()
            rows = [
                (*row, rounding.nearest(x, places)) for row, x in zip(rows, ordered, strict=True)
            ]
        lines.append(table(tuple(head), rows))
        if left := len(found.labels) - len(shown.labels):
            lines.append(f"and {left} more {plural} (--top)")
        if not found.labels:
            lines.append(
                "ask for any string with --category, or list it as watch in the definition"
            )
        if found.radius is not None:
            unit = f" {metric.unit}" if metric.unit else ""
            lines.append(f"within {at_most(found.radius)}{unit} of the true vector (l2)")
    elif window is not None and (search := searched(window)) is not None:
        lines.append(search.statement)
    elif not isinstance(metric, SearchMetric):
        unit = f" {metric.unit}" if metric.unit else ""
        value, lower, upper = interval(_numbers(found))
        lines.append(f"{value}{unit} in [{lower}, {upper}]")
    levels = zip(found.levels, found.counts, found.weights, strict=True)
    mix: list[tuple[Any, ...]] = [(f"{e:g}", int(n), f"{w:.3f}") for e, n, w in levels]
    mix_head: tuple[str, ...] = ("epsilon", "reports", "weight")
    if found.privacy is not None:
        mix_head = (*mix_head, "loss")
        mix = [(*row, rounding.loss(loss)) for row, loss in zip(mix, found.privacy, strict=True)]
    return "\n".join([*lines, "", table(mix_head, mix)])


def releasing(found: Estimate, start: int | None) -> list[str]:
    """Return lines on a release: of which pane, and what its privacy costs."""
    drawn = f"of the pane from {iso(start)}, drawn once"
    pane = "none yet" if found.status == "not_ready" else drawn
    lines = [f"release    {pane}; devices send true values"]
    if found.saturation is not None:
        lines.append(
            f"saturation levels above {rounding.loss(found.saturation)} do not improve the release"
        )
    return lines


def lying(metric: Metric, found: Estimate) -> list[str]:
    """Return a line on what fabricated reports could do; none where nothing is known yet."""
    if not isinstance(metric, LocalMetric):
        return []
    told = lies(metric, found)
    shift = told.shift if told.l2 is UNSET else told.l2
    if shift is None or not np.size(found.value):
        return []
    unit = f" {metric.unit}" if metric.unit else ""
    what = "a share" if metric.kind == "frequency" else "this"
    how = "" if told.l2 is UNSET else " (l2)"
    return [
        f"influence  if {100 * told.share:g}% of the reports ({told.reports}) were fabricated, "
        f"{what} could be off by up to {at_most(shift)}{unit}{how}"
        + (f" (without privacy {at_most(told.without_privacy)})" if told.l2 is UNSET else "")
    ]


def _numbers(found: Estimate) -> list[float]:
    return [float(x) for x in (found.shown, found.lower, found.upper)]


def _columns(found: Estimate) -> list[list[float]]:
    return [np.asarray(x).tolist() for x in (found.shown, found.lower, found.upper)]


def depends(found: Estimate) -> bool:
    """Return whether there is evidence that values depend on the privacy level."""
    return found.heterogeneity is not None and found.heterogeneity < TINY


def warns(found: Estimate) -> bool:
    """Return whether they do, and the weights suppose otherwise."""
    return depends(found) and found.policy != "uniform"


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return rows as aligned columns.

    Examples
    --------
    >>> print(table(("metric", "reports"), [("delay", 12), ("late", 7)]))
    metric  reports
    delay   12
    late    7
    """
    cells = [head, *[tuple(str(cell) for cell in row) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
