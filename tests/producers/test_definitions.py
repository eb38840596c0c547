"""Definitions suggested from a CSV file can be loaded and fit its values."""

from __future__ import annotations

from pathlib import Path

import pytest

from estimators import Metric, load_metrics
from producers.definitions import MOST_CATEGORIES, suggest
from producers.population import Arrivals
from producers.tables import read_population


def defined(folder: Path, text: str) -> Metric:
    """Return the one metric of a definitions file."""
    file = folder / "metrics.toml"
    file.write_text(text, encoding="utf-8")
    (metric,) = load_metrics(file).values()
    return metric


def table(folder: Path, *rows: str) -> Path:
    file = folder / "table.csv"
    file.write_text("\n".join(rows), encoding="utf-8")
    return file


def test_numbers_become_a_mean_over_their_range(tmp_path: Path) -> None:
    file = table(tmp_path, "Delay (min),when", "3.5,60", "NA,99", "-2,600", "8,120060")
    metric = defined(tmp_path, suggest(file, "Delay (min)", unit="minutes", time=["when"]))
    assert (metric.name, metric.kind, metric.unit) == ("delay_min", "mean", "minutes")
    assert metric.range is not None
    assert list(metric.range) == [-2, 8]
    assert metric.pane == "5m", "120,000 s are 2,000 minutes: 400 panes of 5 minutes"


def test_strings_become_categories(tmp_path: Path) -> None:
    file = table(tmp_path, "c", 'B"6', "Zürich", "", 'B"6', "back\\slash")
    metric = defined(tmp_path, suggest(file, "c", name="carrier", levels=[1, 3]))
    assert metric.category_names == ('B"6', "Zürich", "back\\slash")
    assert tuple(metric.levels) == (1, 3)


def test_many_strings_become_an_open_vocabulary(tmp_path: Path) -> None:
    names = [f"N{i}" for i in range(MOST_CATEGORIES + 1)]
    file = table(tmp_path, "tail", *names, "N7", "N7", "N3")
    metric = defined(tmp_path, suggest(file, "tail"))
    assert metric.categories == "open"
    assert metric.labels[:2] == ("N7", "N3")
    population = read_population(file, {"tail": metric}, {"tail": "tail"}, arrivals=Arrivals(1, 1))
    assert population.present("tail").all()


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ("missing", {}, "no column 'missing'"),
        ("empty", {}, "column 'empty' has no value"),
        ("text", {"within": (0, 1)}, "column 'text' is not of numbers"),
        ("number", {"within": (5, 1)}, "range"),
        ("number", {"name": "Not A Name"}, "name"),
        ("number", {"levels": [0]}, "levels"),
        ("number", {"time": ["text"]}, "is no event time"),
    ],
)
def test_what_cannot_be_suggested_is_explained(
    tmp_path: Path, column: str, options: dict[str, object], message: str
) -> None:
    file = table(tmp_path, "number,text,empty", "1,x,", "2,y,")
    with pytest.raises(ValueError, match=message):
        suggest(file, column, **options)  # type: ignore[arg-type]
