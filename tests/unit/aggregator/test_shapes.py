"""Whoever shows answers has an entry for every shape that there is."""

import re
from collections.abc import Mapping
from pathlib import Path

from aggregator.cli.live_view import LiveView
from aggregator.monitoring import answer_samples
from aggregator.reading import serialization
from aggregator.terminal import estimate_text as text
from estimators.shapes import Shape
from producers.populations import truth

STATIC = Path("aggregator/web/static/shapes.js")


def test_every_shape_is_shown() -> None:
    shown: dict[str, Mapping[Shape, object]] = {
        "API and events": serialization.FIELDS_BY_SHAPE,
        "exporter": answer_samples.SAMPLES_BY_SHAPE,
        "text": text.SHAPE_TEXTS,
        "terminal": LiveView(1).shapes,
        "truth": truth.TALLIES_BY_SHAPE,
    }
    for name, shapes in shown.items():
        assert set(shapes) == set(Shape), name


def test_the_dashboard_shows_every_shape() -> None:
    body = re.search(r"^const SHAPES = {\n(.*?)^};", STATIC.read_text(), re.DOTALL | re.MULTILINE)
    assert body is not None
    names = re.findall(r'^  "?([a-z ]+?)"?: {', body[1], re.MULTILINE)
    assert names == [shape.value for shape in Shape]
