"""An estimate as text: its numbers, reports, bounds and privacy; or in one line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET

from aggregator.reading import coverage
from aggregator.reading.search_progress import search_lines, search_progress, threshold_text
from aggregator.reading.serialization import manipulation_bound, privacy_of
from aggregator.reading.window import Release, Window
from aggregator.terminal.two_way_tables import two_way_table
from aggregator.timestamps import iso
from estimators import DistributionEstimate, Estimate, LocalMetric, Metric, SearchMetric, rounding
from estimators.distribution import number_text
from estimators.estimate import Floats
from estimators.metrics.categories import CodedVocabulary
from estimators.rounding import at_most, certainty, common_decimals, interval
from estimators.shapes import Shape

HETEROGENEITY_P_VALUE = 1e-3
"""If the p-value is below this, levels differ: a false warning for one metric in a thousand."""
Row = tuple[Any, ...]
MAX_SHOWN_CATEGORIES, MAX_LINE_CATEGORIES = 20, 3
SINGULAR_NAMES = {"categories": "category", "coordinates": "coordinate", "quantiles": "quantile"}
LEVELS_WARNING = (
    "warning    the values depend on the privacy level: weights other than uniform then estimate\n"
    "           a different population (--weights uniform, or dither weights METRIC uniform)"
)


@dataclasses.dataclass(frozen=True)
class EstimateView:
    """An estimate, and how it is to be shown.

    Attributes
    ----------
    window : Window
        The window that was read, with the pane of a release and the progress of a search.
    top : int
        The most categories in the table.
    nearest : ndarray, optional
        The nearest distribution, shown beside the estimate.
    below : tuple of float
        Values below which the share of the distribution is also shown.
    margins : Estimate or str, optional
        The margins of a two-way table, or why it has none.
    """

    window: Window
    estimate: Estimate
    top: int
    nearest: Floats | None = None
    below: tuple[float, ...] = ()
    margins: Estimate | str | None = None

    @property
    def metric(self) -> Metric:
        """The metric."""
        return self.window.metric

    @property
    def unit(self) -> str:
        """The metric's unit with a space before it; "" without a unit."""
        return f" {self.metric.unit}" if self.metric.unit else ""


def as_text(view: EstimateView, notes: Sequence[str] = ()) -> str:
    """Return an estimate as text; `notes` are lines about reports that the estimate lacks."""
    metric, estimate = view.metric, view.estimate
    shape = SHAPE_TEXTS[metric.shape]
    lines = [
        f"{metric.name}: {metric.description or metric.kind}",
        f"status     {estimate.status}",
        *shape.counted(view),
        *notes,
        f"bounds     {certainty(estimate.beta)} {estimate.bound}, {estimate.target}",
        *coverage.coverage_lines(estimate),
        f"weights    {estimate.policy}",
        *shape.about(view),
        *crowd_lines(metric),
    ]
    if estimate.heterogeneity is not None:
        is_found = depends_on_level(estimate)
        evidence = "values depend" if is_found else "no evidence that values depend"
        p = f"(Cochran's Q, p = {estimate.heterogeneity:.2g})"
        lines.append(f"levels     {evidence} on the privacy level {p}")
    if suggests_uniform_weights(estimate):
        lines.append(LEVELS_WARNING)
    lines += ["", *shape.result(view), *_shares(view)]
    return "\n".join([*lines, "", table(*level_table(estimate))])


def _reports(view: EstimateView) -> list[str]:
    """Return a line on the reports of an estimate."""
    reports, effective = view.estimate.reports, view.estimate.effective_reports
    return [f"reports    {reports} (worth {effective:.0f} without noise)"]


def _answers(view: EstimateView) -> list[str]:
    """Return a line on the number of answers to decided rounds."""
    return [f"answers    {view.estimate.reports} to rounds that are decided"]


def level_table(estimate: Estimate, count: str = "{}") -> tuple[tuple[str, ...], list[Row]]:
    """Return the head and the rows of the table of levels; `count` formats numbers of reports."""
    columns: dict[str, list[str]] = {
        "epsilon": [f"{epsilon:g}" for epsilon in estimate.levels],
        "reports": [count.format(int(reports)) for reports in estimate.counts],
        "weight": [f"{weight:.3f}" for weight in estimate.weights],
    }
    if estimate.privacy is not None:
        columns["loss"] = [rounding.loss(loss) for loss in estimate.privacy]
    return (*columns,), [*zip(*columns.values(), strict=True)]


def _privacy(view: EstimateView) -> list[str]:
    """Return lines on how far fabricated reports can move the estimate, or on a release's loss."""
    if view.estimate.privacy is None:
        return _manipulation_lines(view)
    return release_lines(view.estimate, view.window.start_ms)


def _number(view: EstimateView) -> list[str]:
    """Return a line with the number and its bounds."""
    value, lower, upper = interval(columns(view.estimate))
    return [f"{value}{view.unit} in [{lower}, {upper}]"]


def _named_numbers(view: EstimateView) -> list[str]:
    """Return the largest numbers as a table; a two-way table if the answer is one."""
    estimate, names = view.estimate, view.metric.domain.names
    if lines := _two_way(view):
        return lines
    top_estimate = estimate.top(view.top)
    unit = f" ({view.metric.unit})" if view.metric.unit else ""
    head, numbered = [SINGULAR_NAMES[names], f"value{unit}"], columns(top_estimate)
    head += ["lower", "upper"]
    places = common_decimals(*numbered[1:])
    rows: list[tuple[str, ...]] = [
        (printable(label), *interval(numbers, places))
        for label, *numbers in zip(top_estimate.labels, *numbered, strict=True)
    ]
    if view.nearest is not None:  # the projection keeps the order
        head.append("simplex")
        ordered = np.sort(view.nearest)[::-1][: len(rows)].tolist()
        rows = [(*row, rounding.nearest(x, places)) for row, x in zip(rows, ordered, strict=True)]
    lines = [table(tuple(head), rows)]
    if hidden := len(estimate.labels) - len(top_estimate.labels):
        lines.append(f"and {hidden} more {names} (--top)")
    if not estimate.labels:
        lines.append("ask for any string with --category, or list it as watch in the definition")
        if isinstance(view.metric.domain, CodedVocabulary):
            lines.append(f"`dither discover {view.metric.name}` finds the frequent ones")
    axes = [] if view.metric.axes is None else [*view.metric.axes.values]
    if len(axes) > 2 and estimate.labels == view.metric.labels:
        lines.append(f"a two-way table: --category '{axes[0]}, {axes[1]}'")
    if estimate.radius is not None:
        lines.append(f"within {at_most(estimate.radius)}{view.unit} of the true vector (l2)")
    return lines


def _shares(view: EstimateView) -> list[str]:
    """Return a table of the shares of A among B, or a line on why there are none."""
    estimate = view.estimate.shares
    if estimate is None:
        is_refused = view.metric.share_names and view.estimate.labels == view.metric.labels
        return ["no shares among: --category with one of them says why"] if is_refused else []
    numbered = columns(estimate)
    places = common_decimals(*numbered[1:])
    rows = [
        (printable(label), *interval(numbers, places))
        for label, *numbers in zip(estimate.labels, *numbered, strict=True)
    ]
    return ["", table(("share among", "value", "lower", "upper"), rows)]


def _two_way(view: EstimateView) -> list[str]:
    """Return the numbers of two axes as a two-way table; no lines if they do not form one."""
    axes, margins = view.metric.axes, view.margins
    is_cut = view.top < min(MAX_SHOWN_CATEGORIES, len(view.estimate.labels))
    if axes is None or view.nearest is not None or is_cut:
        return []
    shares = margins if isinstance(margins, Estimate) else None
    if (two_way := two_way_table(axes, view.estimate, shares)) is None:
        return []
    head, *rows = (tuple(map(printable, row)) for row in (two_way.head, *two_way.rows))
    lines = [table(head, rows)]
    if shares is not None:
        certain = certainty(shares.beta)
        lines.append(f"{certain} for all cells together, and {certain} for all margins together")
    elif margins is not None:
        lines.append(f"no margins: {margins}")
    if margins is not None:
        row, column = two_way.axes
        lines.append(f"shares of rows: --category '{column} / {row}'")
    return lines


def _distribution(view: EstimateView) -> list[str]:
    """Return a table of quantiles, and one of the shares below values."""
    estimate = view.estimate
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    lines = _named_numbers(dataclasses.replace(view, estimate=estimate.numbers))
    if view.below:
        shares = [estimate.below(value) for value in view.below]
        places = common_decimals((low for _, low, _ in shares), (high for _, _, high in shares))
        rows = [
            (f"{number_text(value)}{view.unit}", *interval(share, places))
            for value, share in zip(view.below, shares, strict=True)
        ]
        lines += ["", table(("below", "share", "lower", "upper"), rows)]
    if estimate.crossed:
        lines.append(
            "these reports contradict each other, so nothing is certain: honest ones do so with "
            "probability beta at most, fabricated ones at will"
        )
    return lines


def _search_round(view: EstimateView) -> list[str]:
    """Return lines on the open round."""
    return search_lines(view.window)


def _search(view: EstimateView) -> list[str]:
    """Return a line with the certified statement about the extreme, if there is a search."""
    search = search_progress(view.window)
    return [] if search is None else [search.statement]


def _number_in_line(view: EstimateView) -> str:
    return _number(view)[0]


def _named_numbers_in_line(view: EstimateView) -> str:
    top_estimate = view.estimate.top(min(view.top, MAX_LINE_CATEGORIES))
    rows = zip(top_estimate.labels, *columns(top_estimate), strict=True)
    values = ", ".join(
        "{} {}{unit} in [{}, {}]".format(printable(label), *interval(numbers), unit=view.unit)
        for label, *numbers in rows
    )
    hidden = len(view.estimate.labels) - len(top_estimate.labels)
    return values + (f" and {hidden} more" if hidden else "")


def _distribution_in_line(view: EstimateView) -> str:
    return _named_numbers_in_line(dataclasses.replace(view, estimate=view.estimate.numbers))


def _search_in_line(view: EstimateView) -> str:
    search = search_progress(view.window)
    if search is None:
        return "no round yet"
    round_state = "all decided"
    if search.threshold is not None:
        threshold = threshold_text(SearchMetric.require(view.metric), search.threshold)
        round_state = f"at {threshold}{view.unit}, {search.answers} answers"
    return f"{search.statement}  round {search.round} of {search.rounds} {round_state}"


@dataclasses.dataclass(frozen=True)
class ShapeText:
    """Formats answers of a shape as text: what was counted, remarks, the result; or as one line."""

    counted: Callable[[EstimateView], list[str]]
    about: Callable[[EstimateView], list[str]]
    result: Callable[[EstimateView], list[str]]
    line: Callable[[EstimateView], str]


SHAPE_TEXTS: dict[Shape, ShapeText] = {
    Shape.NUMBER: ShapeText(_reports, _privacy, _number, _number_in_line),
    Shape.NAMED_NUMBERS: ShapeText(_reports, _privacy, _named_numbers, _named_numbers_in_line),
    Shape.DISTRIBUTION: ShapeText(_reports, _privacy, _distribution, _distribution_in_line),
    Shape.SEARCH: ShapeText(_answers, _search_round, _search, _search_in_line),
}


def as_line(window: Window, estimate: Estimate, top: int = MAX_LINE_CATEGORIES) -> str:
    """Return an estimate as a line of text.

    `window`: the window that the estimate is about; `estimate`: the estimate; `top`: the most
    categories shown, but never more than `MAX_LINE_CATEGORIES`.
    """
    values = SHAPE_TEXTS[window.metric.shape].line(EstimateView(window, estimate, top))
    # of a release: its pane's end
    at = window.end_ms if isinstance(window.content, Release) else window.arrived_ms
    moment = "-" if at is None or at < 0 else iso(at)
    warning = (
        "  (values depend on the privacy level: consider uniform weights)"
        * suggests_uniform_weights(estimate)
    )
    counted = counted_text(window.metric, estimate)
    return f"{moment}  {values}  {counted}  {estimate.status}{warning}"


def counted_text(metric: Metric, estimate: Estimate) -> str:
    """Return the number of an estimate's reports, or of a search's decided answers, as text."""
    noun = "answers to decided rounds" if metric.shape is Shape.SEARCH else "reports"
    return f"{estimate.reports:,} {noun}"


def release_lines(estimate: Estimate, start: int | None) -> list[str]:
    """Return lines on the pane of a release and on its privacy levels."""
    drawn = f"of the pane from {iso(start)}, drawn once"
    pane = "none yet" if estimate.status == "not_ready" else drawn
    lines = [f"release    {pane}; devices send true values"]
    if estimate.saturation is not None:
        lines.append(
            f"saturation levels above {rounding.loss(estimate.saturation)} do not improve the "
            "release"
        )
    return lines


def crowd_lines(metric: Metric) -> list[str]:
    """Return lines on the privacy of reports that a relay has shuffled; none without a crowd."""
    if (privacy := privacy_of(metric)) is None:
        return []
    local = f"privacy    epsilon {privacy.local:g} whoever colludes; "
    if privacy.central is None:
        return [f"{local}nothing smaller is proved for its crowd"]
    epsilon, delta, crowd = privacy.central.epsilon, privacy.central.delta, privacy.central.crowd
    return [
        f"{local}among {crowd:,} others whom a relay shuffled,",
        f"           {epsilon:g} with delta {delta:g}, in one pane: times the panes for one person",
    ]


def _manipulation_lines(view: EstimateView) -> list[str]:
    """Return a line on how far fabricated reports can move numbers; none without an estimate."""
    metric, estimate = view.metric, view.estimate
    if not isinstance(metric, LocalMetric):
        return []
    bound = manipulation_bound(metric, estimate)
    shift = bound.shift if bound.l2 is UNSET else bound.l2
    if shift is None or not np.size(estimate.value):
        return []
    quantity = "a share" if metric.domain.names in ("categories", "quantiles") else "this"
    unit = "" if metric.domain.names == "quantiles" else view.unit
    true_values = f" (without privacy {at_most(bound.without_privacy)})"
    how = true_values if bound.l2 is UNSET else " (l2)"
    return [
        f"influence  if {100 * bound.share:g}% of the reports ({bound.reports}) were fabricated, "
        f"{quantity} could be off by up to {at_most(shift)}{unit}{how}"
    ]


def columns(estimate: Estimate) -> list[Any]:
    """Return the value and its bounds: three numbers, or three lists of numbers."""
    return [np.asarray(x).tolist() for x in (estimate.shown, estimate.lower, estimate.upper)]


def depends_on_level(estimate: Estimate) -> bool:
    """Return whether there is evidence that values depend on the privacy level."""
    return estimate.heterogeneity is not None and estimate.heterogeneity < HETEROGENEITY_P_VALUE


def suggests_uniform_weights(estimate: Estimate) -> bool:
    """Return whether values depend on the level and the weights assume otherwise."""
    return depends_on_level(estimate) and estimate.policy != "uniform"


def printable(text: str) -> str:
    r"""Return text with the characters that control a terminal escaped as in JSON.

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
