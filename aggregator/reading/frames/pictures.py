"""Pictures of answers for notebooks, as SVG: intervals, and histories with their bands.

The HTML has inline SVG in the colours of its page, light or dark, and runs no script. All text is
escaped, since labels may come from strangers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from aggregator.reading.frames.frame import Frame, needed_by
from aggregator.timestamps import iso, utc
from estimators.rounding import common_decimals, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SHOWN_INTERVALS = 20
MAX_SHOWN_HISTORIES = 5
INTERVAL_WIDTH, ROW_HEIGHT, HISTORY_HEIGHT, SCALE_MARGIN = 260, 16, 90, 6
"""Sizes in pixels."""
LOG_SCALE_RATIO = 100.0
"""Quantiles above 0 are drawn on a logarithmic axis if they span at least this factor."""
CELL_STYLE = 'style="text-align:left;padding:1px 8px"'
TABLE_START = '<table style="color:inherit;font:inherit">'
UNKNOWN_TEXT = "–"  # noqa: RUF001


@dataclasses.dataclass(frozen=True)
class LabelledInterval:
    """A number with a label and bounds; NaN if unknown."""

    label: str
    value: float
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class HistoryLine:
    """A number over time: the start and end of each step in ms since the epoch, and an interval."""

    label: str
    starts: Sequence[int]
    ends: Sequence[int]
    steps: Sequence[LabelledInterval]


class Pictured:
    """An answer with a table and a picture."""

    @property
    def picture(self) -> Picture:
        """The picture of the answer."""
        raise NotImplementedError

    def to_frame(self) -> Frame:
        """Return the answer as a table."""
        raise NotImplementedError

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the picture with matplotlib (extra ``plots``), and return the axes.

        `axes`: the axes to draw into; by default those of a new figure.

        Raises LibraryMissingError if matplotlib is not installed.
        """
        if axes is None:
            with needed_by("plot()", "matplotlib", "'dither[plots]' brings it"):
                from matplotlib import pyplot
            _, axes = pyplot.subplots(layout="constrained")
        self.picture.plot(axes)
        return axes

    def _repr_html_(self) -> str:
        """Return the picture for a notebook."""
        return self.picture.to_html()


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Intervals, one below the other, on one scale.

    Attributes
    ----------
    facts : tuple of str
        Lines of text below the title.
    reference : float, optional
        A value that is marked, such as the one that means no difference.
    of_quantiles : bool
        Whether the numbers are quantiles.
    """

    title: str
    facts: tuple[str, ...]
    rows: tuple[LabelledInterval, ...]
    unit: str = ""
    reference: float | None = None
    of_quantiles: bool = False

    def to_html(self) -> str:
        """Return the intervals as HTML."""
        drawn_rows = self.rows[:MAX_SHOWN_INTERVALS]
        low, high = _scale_ends(drawn_rows, () if self.reference is None else (self.reference,))
        rows = [
            f"<tr><th {CELL_STYLE}>{escape(row.label)}</th>"
            f"<td {CELL_STYLE}>{_svg_interval(row, low, high, self.reference, escape(text))}</td>"
            f"<td {CELL_STYLE}>{escape(text)}</td></tr>"
            for row, text in zip(drawn_rows, _interval_texts(drawn_rows, self.unit), strict=True)
        ]
        table = f"{TABLE_START}{''.join(rows)}</table>"
        return _picture_page(
            self.title, self.facts, table, _more_note(len(self.rows) - len(drawn_rows))
        )

    def plot(self, axes: Axes) -> None:
        """Draw the intervals with matplotlib, the first at the top."""
        positions = [index for index, row in enumerate(self.rows) if _is_known(row)]
        rows = [self.rows[index] for index in positions]
        values = [row.value for row in rows]
        below = [max(0.0, row.value - row.lower) for row in rows]
        above = [max(0.0, row.upper - row.value) for row in rows]
        axes.errorbar(values, positions, xerr=[below, above], fmt="o", capsize=3)
        labels = [_plain_text(row.label) for row in self.rows]
        axes.set_yticks([*range(len(labels))], labels)
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        if self.reference is not None:
            axes.axvline(self.reference, linestyle=":", color="gray")
        axes.set_xscale(_axis_scale(self.of_quantiles, self.rows))
        axes.set_xlabel(_plain_text(self.unit))
        axes.set_title(_plain_text(self.title))


@dataclasses.dataclass(frozen=True)
class History:
    """Numbers over time, each with its band; `facts` are lines of text below the title."""

    title: str
    facts: tuple[str, ...]
    lines: tuple[HistoryLine, ...]
    unit: str = ""
    of_quantiles: bool = False

    def to_html(self) -> str:
        """Return the histories as HTML, on one scale."""
        drawn_rows = self.lines[:MAX_SHOWN_HISTORIES]
        low, high = _scale_ends([step for line in drawn_rows for step in line.steps])
        ends = _interval_texts([LabelledInterval("", low, low, high)], self.unit)[0].partition(
            " in "
        )[2]
        rows = [
            f"<tr><th {CELL_STYLE}>{escape(line.label)}</th>"
            f"<td {CELL_STYLE}>{_svg_history(line, low, high)}</td></tr>"
            for line in drawn_rows
            if line.starts
        ]
        notes = [f"scale {ends}"] if rows and math.isfinite(high) else []
        notes += _more_note(len(self.lines) - len(drawn_rows))
        return _picture_page(self.title, self.facts, f"{TABLE_START}{''.join(rows)}</table>", notes)

    def plot(self, axes: Axes) -> None:
        """Draw, for each number, a line of steps and its band with matplotlib."""
        from matplotlib import dates

        for line in self.lines:
            edges = [utc(ms) for ms in [*line.starts, *line.ends[-1:]]]
            steps = [*line.steps, *line.steps[-1:]]
            lower, upper = [step.lower for step in steps], [step.upper for step in steps]
            value = [step.value for step in steps]
            times: Any = edges  # matplotlib accepts datetimes
            (drawn,) = axes.step(times, value, where="post", label=_plain_text(line.label))
            axes.fill_between(times, lower, upper, step="post", alpha=0.25, color=drawn.get_color())
        if len(self.lines) > 1:
            axes.legend()
        steps = [step for line in self.lines for step in line.steps]
        axes.set_yscale(_axis_scale(self.of_quantiles, steps))
        axes.set_ylabel(_plain_text(self.unit))
        axes.set_title(_plain_text(self.title))
        locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        form = dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(form)


Picture = Intervals | History


def _more_note(hidden: int) -> list[str]:
    return [f"and {hidden} more"] if hidden > 0 else []


def _picture_page(title: str, facts: Iterable[str], body: str, notes: Iterable[str]) -> str:
    def small(lines: Iterable[str]) -> str:
        return "".join(f'<div style="opacity:.7">{escape(line)}</div>' for line in lines)

    return f"<div><strong>{escape(title)}</strong>{small(facts)}{body}{small(notes)}</div>"


def _is_known(row: LabelledInterval) -> bool:
    return not any(map(math.isnan, (row.value, row.lower, row.upper)))


def _scale_ends(
    rows: Iterable[LabelledInterval], references: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the two different ends of a scale that shows all intervals; NaN if all are unknown."""
    numbers = [x for row in rows if _is_known(row) for x in (row.value, row.lower, row.upper)]
    finite = [x for x in (*numbers, *references) if math.isfinite(x)]
    if not finite:
        return math.nan, math.nan
    low, high = min(finite), max(finite)
    return (low, high) if low < high else (low - 1, high + 1)


def _axis_scale(of_quantiles: bool, rows: Iterable[LabelledInterval]) -> str:
    """Return the name of the scale in matplotlib that suits these intervals."""
    low, high = _scale_ends(rows)
    return "log" if of_quantiles and 0 < LOG_SCALE_RATIO * low <= high else "linear"


def _interval_texts(rows: Sequence[LabelledInterval], unit: str) -> list[str]:
    """Return intervals as text, with the decimals that the narrowest interval needs."""
    finite = [row for row in rows if math.isfinite(row.upper - row.lower)]
    decimals = common_decimals((row.lower for row in finite), (row.upper for row in finite))
    suffix = f" {unit}" if unit else ""
    texts = []
    for row in rows:
        value, lower, upper = interval((row.value, row.lower, row.upper), decimals)
        texts.append(f"{value}{suffix} in [{lower}, {upper}]" if _is_known(row) else UNKNOWN_TEXT)
    return texts


def _svg(width: int, height: int, name: str, parts: Iterable[str]) -> str:
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{name}" '
        f'fill="currentColor" stroke="currentColor">{"".join(parts)}</svg>'
    )


def _pixel(x: float, low: float, high: float, length: int) -> float:
    """Return a number's position on a scale, in pixels; numbers beyond an end are moved to it."""
    share = (min(max(x, low), high) - low) / (high - low)
    return round(SCALE_MARGIN + share * (length - 2 * SCALE_MARGIN), 2)


def _svg_interval(
    row: LabelledInterval, low: float, high: float, mark: float | None, name: str
) -> str:
    if not _is_known(row):
        return ""
    value, lower, upper = (
        _pixel(x, low, high, INTERVAL_WIDTH) for x in (row.value, row.lower, row.upper)
    )
    middle = ROW_HEIGHT // 2
    parts = [f'<path d="M{lower} {middle}H{upper}" stroke-width="2" opacity=".5"/>']
    parts += [
        f'<path d="M{x} 3V{ROW_HEIGHT - 3}" stroke-width="2" opacity=".5"/>' for x in (lower, upper)
    ]
    parts.append(f'<circle cx="{value}" cy="{middle}" r="4" stroke="none"/>')
    if mark is not None:
        at = _pixel(mark, low, high, INTERVAL_WIDTH)
        parts.append(f'<path d="M{at} 0V{ROW_HEIGHT}" stroke-dasharray="2 2" opacity=".8"/>')
    return _svg(INTERVAL_WIDTH, ROW_HEIGHT, name, parts)


def _svg_history(line: HistoryLine, low: float, high: float) -> str:
    first, last = line.starts[0], line.ends[-1]
    width = 2 * INTERVAL_WIDTH

    def x(ms: int) -> float:
        return _pixel(ms, first, last, width)

    def y(number: float) -> float:
        return round(HISTORY_HEIGHT - _pixel(number, low, high, HISTORY_HEIGHT), 2)

    parts = []
    for start, end, step in zip(line.starts, line.ends, line.steps, strict=True):
        if _is_known(step):
            begin, wide = x(start), round(x(end) - x(start), 2)
            top, tall = y(step.upper), round(y(step.lower) - y(step.upper), 2)
            parts.append(
                f'<rect x="{begin}" y="{top}" width="{wide}" height="{tall}" opacity=".25" '
                'stroke="none"/>'
                f'<path d="M{begin} {y(step.value)}h{wide}" stroke-width="2"/>'
            )
    name = escape(f"{line.label} from {iso(first)} to {iso(last)}".strip())
    return _svg(width, HISTORY_HEIGHT, name, parts)


def _plain_text(text: str) -> str:
    """Return text in which the characters that matplotlib reads as mathematics are escaped."""
    return text.replace("$", r"\$")
