"""An estimate as text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET

from aggregator.reading import coverage
from aggregator.reading.search_progress import search_lines, search_progress, threshold_text
from aggregator.reading.serialization import manipulation_bound
from aggregator.reading.windows import Release, Window
from aggregator.timestamps import iso
from estimators import DistributionEstimate, Estimate, LocalMetric, Metric, SearchMetric, rounding
from estimators.distribution import number_text
from estimators.estimate import Floats
from estimators.metrics.categories import CodedVocabulary
from estimators.rounding import at_most, certainty, common_decimals, interval
from estimators.shapes import Shape

TINY = 1e-3
"""A p-value at which levels are said to differ: one metric in a thousand without a reason."""
Row = tuple[Any, ...]
SHOWN = 20
"""Categories in a table."""
LINE_TOP = 3
"""Categories in a line."""
SINGULAR = {"categories": "category", "coordinates": "coordinate", "quantiles": "quantile"}
WARNING = (
    "warning    the values depend on the privacy level: weights other than uniform then estimate\n"
    "           a different population (--weights uniform, or dither weights METRIC uniform)"
)


@dataclasses.dataclass(frozen=True)
class Shown:
    """An estimate and how it is shown.

    Attributes
    ----------
    window : Window
        What was read: it says which pane a release is of, and how far a search is.
    found : Estimate
    top : int
        Categories in the table.
    nearest : ndarray, optional
        The nearest distribution, beside it.
    below : tuple of float
        Of a distribution: show the shares below these values, too.
    """

    window: Window
    found: Estimate
    top: int
    nearest: Floats | None = None
    below: tuple[float, ...] = ()

    @property
    def metric(self) -> Metric:
        """The metric."""
        return self.window.metric

    @property
    def unit(self) -> str:
        """The unit, with a space before it."""
        return f" {self.metric.unit}" if self.metric.unit else ""


def as_text(shown: Shown, notes: Sequence[str] = ()) -> str:
    """Return an estimate for people.

    Parameters
    ----------
    shown : Shown
    notes : sequence of str
        Lines on what the estimate does not contain.
    """
    metric, found = shown.metric, shown.found
    shape = SHAPES[metric.shape]
    lines = [
        f"{metric.name}: {metric.description or metric.kind}",
        f"status     {found.status}",
        f"reports    {found.reports} (worth {found.effective_reports:.0f} without noise)",
        *notes,
        f"bounds     {certainty(found.beta)} {found.bound}, {found.target}",
        *coverage.coverage_lines(found),
        f"weights    {found.policy}",
        *shape.about(shown),
    ]
    if found.heterogeneity is not None:
        evidence = "values depend" if depends(found) else "no evidence that values depend"
        p = f"(Cochran's Q, p = {found.heterogeneity:.2g})"
        lines.append(f"levels     {evidence} on the privacy level {p}")
    if warns(found):
        lines.append(WARNING)
    lines += ["", *shape.result(shown)]
    return "\n".join([*lines, "", table(*level_table(found))])


def level_table(found: Estimate, count: str = "{}") -> tuple[tuple[str, ...], list[Row]]:
    """Return the head and the rows of the table of privacy levels; of a release with its losses.

    Parameters
    ----------
    found : Estimate
    count : str
        The format of a number of reports.
    """
    columns: dict[str, list[str]] = {
        "epsilon": [f"{epsilon:g}" for epsilon in found.levels],
        "reports": [count.format(int(reports)) for reports in found.counts],
        "weight": [f"{weight:.3f}" for weight in found.weights],
    }
    if found.privacy is not None:
        columns["loss"] = [rounding.loss(loss) for loss in found.privacy]
    return (*columns,), [*zip(*columns.values(), strict=True)]


def _privacy(shown: Shown) -> list[str]:
    """Return lines on what fabricated reports could do; of a release, on what it cost."""
    if shown.found.privacy is None:
        return _manipulation_lines(shown)
    return release_lines(shown.found, shown.window.start_ms)


def _number(shown: Shown) -> list[str]:
    """Return one number and its bounds."""
    value, lower, upper = interval(columns(shown.found))
    return [f"{value}{shown.unit} in [{lower}, {upper}]"]


def _named_numbers(shown: Shown) -> list[str]:
    """Return the largest of the numbers as a table."""
    found, names = shown.found, shown.metric.domain.names
    kept = found.top(shown.top)
    unit = f" ({shown.metric.unit})" if shown.metric.unit else ""
    head, numbered = [SINGULAR[names], f"value{unit}", "lower", "upper"], columns(kept)
    places = common_decimals(*numbered[1:])
    rows: list[tuple[str, ...]] = [
        (printable(label), *interval(numbers, places))
        for label, *numbers in zip(kept.labels, *numbered, strict=True)
    ]
    if shown.nearest is not None:  # in the same order: the projection keeps it
        head.append("simplex")
        ordered = np.sort(shown.nearest)[::-1][: len(rows)].tolist()
        rows = [(*row, rounding.nearest(x, places)) for row, x in zip(rows, ordered, strict=True)]
    lines = [table(tuple(head), rows)]
    if left := len(found.labels) - len(kept.labels):
        lines.append(f"and {left} more {names} (--top)")
    if not found.labels:
        lines.append("ask for any string with --category, or list it as watch in the definition")
        if isinstance(shown.metric.domain, CodedVocabulary):
            lines.append(f"`dither discover {shown.metric.name}` finds the frequent ones")
    if found.radius is not None:
        lines.append(f"within {at_most(found.radius)}{shown.unit} of the true vector (l2)")
    return lines


def _distribution(shown: Shown) -> list[str]:
    """Return quantiles as a table, and the shares below values."""
    found = shown.found
    assert isinstance(found, DistributionEstimate)  # noqa: S101
    lines = _named_numbers(dataclasses.replace(shown, found=found.numbers))
    if shown.below:
        known = [found.below(value) for value in shown.below]
        places = common_decimals((low for _, low, _ in known), (high for _, _, high in known))
        rows = [
            (f"{number_text(value)}{shown.unit}", *interval(share, places))
            for value, share in zip(shown.below, known, strict=True)
        ]
        lines += ["", table(("below", "share", "lower", "upper"), rows)]
    if found.crossed:
        lines.append(
            "these reports contradict each other, so nothing is certain: honest ones do so with "
            "probability beta at most, fabricated ones at will"
        )
    return lines


def _search_round(shown: Shown) -> list[str]:
    """Return lines on the round that is open."""
    return search_lines(shown.window)


def _search(shown: Shown) -> list[str]:
    """Return what is certain of the extreme."""
    search = search_progress(shown.window)
    return [] if search is None else [search.statement]


def _number_in_line(shown: Shown) -> str:
    return _number(shown)[0]


def _named_numbers_in_line(shown: Shown) -> str:
    kept = shown.found.top(min(shown.top, LINE_TOP))
    rows = zip(kept.labels, *columns(kept), strict=True)
    values = ", ".join(
        "{} {}{unit} in [{}, {}]".format(printable(label), *interval(numbers), unit=shown.unit)
        for label, *numbers in rows
    )
    left = len(shown.found.labels) - len(kept.labels)
    return values + (f" and {left} more" if left else "")


def _distribution_in_line(shown: Shown) -> str:
    return _named_numbers_in_line(dataclasses.replace(shown, found=shown.found.numbers))


def _search_in_line(shown: Shown) -> str:
    search = search_progress(shown.window)
    if search is None:
        return "no round yet"
    what = "all decided"
    if search.threshold is not None:
        threshold = threshold_text(SearchMetric.require(shown.metric), search.threshold)
        what = f"at {threshold}{shown.unit}, {search.answers} answers"
    return f"{search.statement}  round {search.round} of {search.rounds} {what}"


@dataclasses.dataclass(frozen=True)
class ShapeText:
    """The text format of one shape of answers.

    Attributes
    ----------
    about : callable
        Returns the lines that say something about the answer.
    result : callable
        Returns the lines of the answer itself.
    line : callable
        Returns the answer as a part of one line.
    """

    about: Callable[[Shown], list[str]]
    result: Callable[[Shown], list[str]]
    line: Callable[[Shown], str]


SHAPES: dict[Shape, ShapeText] = {
    Shape.NUMBER: ShapeText(_privacy, _number, _number_in_line),
    Shape.NAMED_NUMBERS: ShapeText(_privacy, _named_numbers, _named_numbers_in_line),
    Shape.DISTRIBUTION: ShapeText(_privacy, _distribution, _distribution_in_line),
    Shape.SEARCH: ShapeText(_search_round, _search, _search_in_line),
}


def as_line(window: Window, found: Estimate, top: int = LINE_TOP) -> str:
    """Return an estimate in one line.

    Parameters
    ----------
    window : Window
        What was read.
    found : Estimate
    top : int
        Categories at most; never more than a few.
    """
    values = SHAPES[window.metric.shape].line(Shown(window, found, top))
    # of a release: its pane's end
    at = window.end_ms if isinstance(window.content, Release) else window.arrived_ms
    moment = "-" if at is None or at < 0 else iso(at)
    warning = (
        "  (values depend on the privacy level: consider uniform weights)" if warns(found) else ""
    )
    return f"{moment}  {values}  {found.reports:,} reports  {found.status}{warning}"


def release_lines(found: Estimate, start: int | None) -> list[str]:
    """Return lines on a release: of which pane, and what its privacy costs."""
    drawn = f"of the pane from {iso(start)}, drawn once"
    pane = "none yet" if found.status == "not_ready" else drawn
    lines = [f"release    {pane}; devices send true values"]
    if found.saturation is not None:
        lines.append(
            f"saturation levels above {rounding.loss(found.saturation)} do not improve the release"
        )
    return lines


def _manipulation_lines(shown: Shown) -> list[str]:
    """Return a line on what fabricated reports could do; none where nothing is known yet."""
    metric, found = shown.metric, shown.found
    if not isinstance(metric, LocalMetric):
        return []
    bound = manipulation_bound(metric, found)
    shift = bound.shift if bound.l2 is UNSET else bound.l2
    if shift is None or not np.size(found.value):
        return []
    what = "a share" if metric.domain.names in ("categories", "quantiles") else "this"
    unit = "" if metric.domain.names == "quantiles" else shown.unit
    true_values = f" (without privacy {at_most(bound.without_privacy)})"
    how = true_values if bound.l2 is UNSET else " (l2)"
    return [
        f"influence  if {100 * bound.share:g}% of the reports ({bound.reports}) were fabricated, "
        f"{what} could be off by up to {at_most(shift)}{unit}{how}"
    ]


def columns(found: Estimate) -> list[Any]:
    """Return value, lower and upper bound: numbers, or lists of them if there are several."""
    return [np.asarray(x).tolist() for x in (found.shown, found.lower, found.upper)]


def depends(found: Estimate) -> bool:
    """Return whether there is evidence that values depend on the privacy level."""
    return found.heterogeneity is not None and found.heterogeneity < TINY


def warns(found: Estimate) -> bool:
    """Return whether they do, and the weights suppose otherwise."""
    return depends(found) and found.policy != "uniform"


def printable(text: str) -> str:
    r"""Return a string without characters that control a terminal: these are escaped as in JSON.

    >>> printable("N725MQ"), printable("a\x1b[2J")
    ('N725MQ', 'a\\u001b[2J')
    """
    return text if text.isprintable() else json.dumps(text)[1:-1]


def table(head: tuple[str, ...], rows: Sequence[Row]) -> str:
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
