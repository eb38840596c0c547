"""Pictures of answers for notebooks: intervals, and histories with their bands.

HTML has the SVG inline, uses the colours of the page around it, so that it is legible on light and
dark ones, and runs no script. Every text is escaped: labels may be strings that strangers chose.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from aggregator.errors import DitherError
from aggregator.reading.frames.frame import Frame
from aggregator.timestamps import iso, utc
from estimators.rounding import common_decimals, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 20
"""Intervals in a picture."""
LINES = 5
"""Histories in a picture."""
WIDTH, ROW, HEIGHT, MARGIN = 260, 16, 90, 6
"""Of an interval's row and of a history, in pixels."""
CELL = 'style="text-align:left;padding:1px 8px"'
TABLE = '<table style="color:inherit;font:inherit">'
UNKNOWN = "–"  # noqa: RUF001


@dataclasses.dataclass(frozen=True)
class Interval:
    """A number with its bounds; NaN where they are not known."""

    label: str
    value: float
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Line:
    """A number over time: steps [start, end) in ms since the epoch, each with an interval."""

    label: str
    starts: Sequence[int]
    ends: Sequence[int]
    steps: Sequence[Interval]


class Picture(ABC):
    """What an answer looks like."""

    @abstractmethod
    def to_html(self) -> str:
        """Return it as HTML."""

    @abstractmethod
    def plot(self, axes: Axes) -> None:
        """Draw it with matplotlib."""


class Pictured:
    """An answer that has a table and a picture."""

    @property
    def picture(self) -> Picture:
        """What it looks like."""
        raise NotImplementedError

    def to_frame(self) -> Frame:
        """Return it as a table."""
        raise NotImplementedError

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw it with matplotlib, which Dither's extra ``plots`` brings.

        Parameters
        ----------
        axes : Axes, optional
            Where to; by default a new figure.

        Returns
        -------
        Axes

        Raises
        ------
        DitherError
            If matplotlib is not installed.
        """
        if axes is None:
            try:
                from matplotlib import pyplot
            except ModuleNotFoundError:
                raise DitherError(
                    "plot() needs matplotlib, which is not installed: pip install 'dither[plots]' "
                    "brings it"
                ) from None
            _, axes = pyplot.subplots(layout="constrained")
        self.picture.plot(axes)
        return axes

    def _repr_html_(self) -> str:
        """Return it for a notebook."""
        return self.picture.to_html()


@dataclasses.dataclass(frozen=True)
class Intervals(Picture):
    """Intervals below each other, on one scale.

    Attributes
    ----------
    title : str
    facts : tuple of str
        Lines below the title.
    rows : tuple of Interval
    unit : str
    reference : float, optional
        A value that is marked: that of no difference.
    """

    title: str
    facts: tuple[str, ...]
    rows: tuple[Interval, ...]
    unit: str = ""
    reference: float | None = None

    def to_html(self) -> str:
        """Return it as HTML."""
        shown = self.rows[:SHOWN]
        low, high = _range(shown, () if self.reference is None else (self.reference,))
        texts = _texts(shown, self.unit)
        rows = [
            f"<tr><th {CELL}>{escape(row.label)}</th>"
            f"<td {CELL}>{_svg_interval(row, low, high, self.reference, escape(text))}</td>"
            f"<td {CELL}>{escape(text)}</td></tr>"
            for row, text in zip(shown, texts, strict=True)
        ]
        left = [f"and {len(self.rows) - SHOWN} more"] if len(self.rows) > SHOWN else []
        return _page(self.title, self.facts, f"{TABLE}{''.join(rows)}</table>", left)

    def plot(self, axes: Axes) -> None:
        """Draw it with matplotlib: the first row at the top."""
        places = range(len(self.rows))
        known = [(at, row) for at, row in zip(places, self.rows, strict=True) if _is_known(row)]
        values = [row.value for _, row in known]
        below = [max(0.0, row.value - row.lower) for _, row in known]
        above = [max(0.0, row.upper - row.value) for _, row in known]
        axes.errorbar(values, [at for at, _ in known], xerr=[below, above], fmt="o", capsize=3)
        axes.set_yticks([*places], [_plain_text(row.label) for row in self.rows])
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        if self.reference is not None:
            axes.axvline(self.reference, linestyle=":", color="gray")
        axes.set_xlabel(_plain_text(self.unit))
        axes.set_title(_plain_text(self.title))


@dataclasses.dataclass(frozen=True)
class History(Picture):
    """Numbers over time, each with its band.

    Attributes
    ----------
    title : str
    facts : tuple of str
        Lines below the title.
    lines : tuple of Line
    unit : str
    """

    title: str
    facts: tuple[str, ...]
    lines: tuple[Line, ...]
    unit: str = ""

    def to_html(self) -> str:
        """Return it as HTML: all on one scale."""
        shown = self.lines[:LINES]
        low, high = _range([step for line in shown for step in line.steps])
        ends = _texts([Interval("", low, low, high)], self.unit)[0].partition(" in ")[2]
        rows = [
            f"<tr><th {CELL}>{escape(line.label)}</th>"
            f"<td {CELL}>{_svg_history(line, low, high)}</td></tr>"
            for line in shown
            if line.starts
        ]
        left = [f"and {len(self.lines) - LINES} more"] if len(self.lines) > LINES else []
        scale = [f"scale {ends}"] if rows and math.isfinite(high) else []
        return _page(self.title, self.facts, f"{TABLE}{''.join(rows)}</table>", [*scale, *left])

    def plot(self, axes: Axes) -> None:
        """Draw it with matplotlib: a step line with its band for each number."""
        from matplotlib import dates

        for line in self.lines:
            edges = [utc(ms) for ms in [*line.starts, *line.ends[-1:]]]
            value, lower, upper = (
                [*column, *column[-1:]]
                for column in (
                    [step.value for step in line.steps],
                    [step.lower for step in line.steps],
                    [step.upper for step in line.steps],
                )
            )
            times: Any = edges  # matplotlib takes datetimes
            (drawn,) = axes.step(times, value, where="post", label=_plain_text(line.label))
            axes.fill_between(times, lower, upper, step="post", alpha=0.25, color=drawn.get_color())
        if len(self.lines) > 1:
            axes.legend()
        axes.set_ylabel(_plain_text(self.unit))
        axes.set_title(_plain_text(self.title))
        locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        form = dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(form)


def _page(title: str, facts: Iterable[str], body: str, notes: Iterable[str]) -> str:
    def small(lines: Iterable[str]) -> str:
        return "".join(f'<div style="opacity:.7">{escape(line)}</div>' for line in lines)

    return f"<div><strong>{escape(title)}</strong>{small(facts)}{body}{small(notes)}</div>"


def _is_known(row: Interval) -> bool:
    return not any(map(math.isnan, (row.value, row.lower, row.upper)))


def _range(rows: Iterable[Interval], others: Sequence[float] = ()) -> tuple[float, float]:
    """Return the ends of a scale for intervals, a little apart even if they agree."""
    found = [x for row in rows if _is_known(row) for x in (row.value, row.lower, row.upper)]
    finite = [x for x in (*found, *others) if math.isfinite(x)]
    if not finite:
        return math.nan, math.nan
    low, high = min(finite), max(finite)
    return (low, high) if low < high else (low - 1, high + 1)


def _texts(rows: Sequence[Interval], unit: str) -> list[str]:
    """Return intervals in words, with as many decimals as the narrowest needs."""
    finite = [row for row in rows if math.isfinite(row.upper - row.lower)]
    places = common_decimals((row.lower for row in finite), (row.upper for row in finite))
    suffix = f" {unit}" if unit else ""
    found = []
    for row in rows:
        value, lower, upper = interval((row.value, row.lower, row.upper), places)
        found.append(f"{value}{suffix} in [{lower}, {upper}]" if _is_known(row) else UNKNOWN)
    return found


def _svg(width: int, height: int, name: str, parts: Iterable[str]) -> str:
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{name}" '
        f'fill="currentColor" stroke="currentColor">{"".join(parts)}</svg>'
    )


def _place(x: float, low: float, high: float, length: int) -> float:
    """Return where a number is on a scale, in pixels; an infinite one at its end."""
    share = (min(max(x, low), high) - low) / (high - low)
    return round(MARGIN + share * (length - 2 * MARGIN), 2)


def _svg_interval(row: Interval, low: float, high: float, mark: float | None, name: str) -> str:
    if not _is_known(row):
        return ""
    value, lower, upper = (_place(x, low, high, WIDTH) for x in (row.value, row.lower, row.upper))
    middle = ROW // 2
    parts = [f'<path d="M{lower} {middle}H{upper}" stroke-width="2" opacity=".5"/>']
    parts += [f'<path d="M{x} 3V{ROW - 3}" stroke-width="2" opacity=".5"/>' for x in (lower, upper)]
    parts.append(f'<circle cx="{value}" cy="{middle}" r="4" stroke="none"/>')
    if mark is not None:
        at = _place(mark, low, high, WIDTH)
        parts.append(f'<path d="M{at} 0V{ROW}" stroke-dasharray="2 2" opacity=".8"/>')
    return _svg(WIDTH, ROW, name, parts)


def _svg_history(line: Line, low: float, high: float) -> str:
    first, last = line.starts[0], line.ends[-1]
    width = 2 * WIDTH

    def x(ms: int) -> float:
        return _place(ms, first, last, width)

    def y(number: float) -> float:
        return round(HEIGHT - _place(number, low, high, HEIGHT), 2)

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
    return _svg(width, HEIGHT, name, parts)


def _plain_text(text: str) -> str:
    """Return text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
