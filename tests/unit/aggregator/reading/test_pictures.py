"""Answers in a notebook: intervals drawn as SVG, nothing that a label could run, and plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from aggregator import Reader
from aggregator.reading.frames.pictures import History, Interval, Intervals, Line, Pictured
from tests.support.reports.counted import HOUR, Counting
from tests.support.reports.messages import EPOCH

NAN = float("nan")
HOSTILE = '<script>alert("1")</script>$x^2$'


@pytest.fixture
def reader(counting: Counting) -> Reader:
    delays = [counting.batch("delay", [minute] * 20, minute) for minute in range(10)]
    counting.count(0, *delays, counting.batch("page", [HOSTILE] * 90, 1, 8))
    return Reader(counting.store, counting.metrics)


@pytest.fixture
def pyplot() -> Iterator[Any]:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def drawn(answer: Pictured) -> ElementTree.Element:
    """Return what a notebook shows, which has to be well-formed."""
    return ElementTree.fromstring(answer._repr_html_())  # noqa: S314


def test_a_notebook_shows_an_estimate_with_its_interval(reader: Reader) -> None:
    shown = drawn(reader.estimate("delay"))
    text = "".join(shown.itertext())
    assert text.startswith("delay: Departure delay")
    assert "200 reports from the first report to now" in text
    assert "minutes in [" in text
    (picture,) = shown.iter("svg")
    assert str(picture.get("aria-label")) in text
    assert picture.get("fill") == picture.get("stroke") == "currentColor"
    assert len([*picture.iter("circle")]) == 1
    unknown = drawn(reader.estimate("silent"))
    assert not [*unknown.iter("svg")]
    assert "not ready; 0 reports" in "".join(unknown.itertext())


def test_labels_are_text_whatever_they_say(reader: Reader, pyplot: Any) -> None:
    found = reader.estimate("page", categories=[HOSTILE])
    assert "<script" not in found._repr_html_()
    (label,) = drawn(found).iter("th")
    assert label.text == HOSTILE
    axes = found.plot()
    axes.figure.canvas.draw()
    assert axes.get_yticklabels()[0].get_text() == HOSTILE.replace("$", r"\$")


def test_intervals_are_on_one_scale_with_a_mark_at_no_difference() -> None:
    rows = (Interval("a", 1, 0, 2), Interval("b", 3, 2, float("inf")), Interval("c", NAN, NAN, NAN))
    root = ElementTree.fromstring(Intervals("t", (), rows, "", -2.0).to_html())  # noqa: S314
    one, two = root.iter("svg")
    places = [float(svg.find("circle").get("cx")) for svg in (one, two)]  # type: ignore[union-attr, arg-type]
    assert places == [154.8, 254.0]
    marks = [path.get("d") for path in root.iter("path") if path.get("stroke-dasharray")]
    assert marks == ["M6.0 0V16"] * 2
    many = Intervals("t", (), tuple(Interval(str(n), n, n - 1, n + 1) for n in range(50))).to_html()
    assert many.count("<svg") == 20
    assert "and 30 more" in many


def test_a_series_is_a_band_with_gaps_where_nothing_is_known(reader: Reader) -> None:
    found = reader.series("delay", EPOCH / 1000, (EPOCH + HOUR) / 1000, step="5m")
    shown = drawn(found)
    known = [point for point in found.points if point.value is not None]
    assert 0 < len([*shown.iter("rect")]) == len(known)
    assert "12 steps of 5m from 2013-01-01T00:00:00Z to 2013-01-01T01:00:00Z" in "".join(
        shown.itertext()
    )
    steps = [Interval("", NAN, NAN, NAN)]
    nothing = History("t", (), (Line("", [0], [1], steps), Line("", [], [], [])))
    assert nothing.to_html().count("<rect") == 0


def test_plots_are_matplotlib_axes(reader: Reader, pyplot: Any) -> None:
    axes = reader.estimate("delay").plot()
    assert (axes.get_title(), axes.get_xlabel()) == ("delay: Departure delay", "minutes")
    _, mine = pyplot.subplots()
    found = reader.series("delay", EPOCH / 1000, (EPOCH + HOUR) / 1000, step="5m")
    assert found.plot(mine) is mine
    mine.figure.canvas.draw()
    assert mine.get_ylabel() == "minutes"
    assert np.size(mine.lines[0].get_xdata()) == len(found.points) + 1
