"""Answers in a notebook: intervals drawn as SVG, nothing that a label could run, and plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from aggregator import Reader
from aggregator.reading.frames.pictures import Pictured
from tests.support.reports.counted import Counting

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
