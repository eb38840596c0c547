"""Answers are tables that pandas, polars, DuckDB and spreadsheets take as they are."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from aggregator import Reader
from aggregator.errors import DitherError
from aggregator.reading.frames import pictures
from aggregator.reading.frames.columns import ESTIMATE_COLUMNS
from aggregator.reading.frames.estimates import WindowDistribution, with_window
from aggregator.reading.frames.frame import FORMULA_STARTS, Frame
from aggregator.reading.window import Window
from aggregator.storage.store import Store
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from tests.support.reports.counted import HOUR, Counting
from tests.support.rows import row
from tests.support.running.processes import run
from tests.unit.aggregator.reading.test_slices import closed, counting

__all__ = ["closed", "counting"]
HOSTILE = '<script>alert("1")</script>$x^2$'


@pytest.fixture
def reader(store: Store, metrics: dict[str, Any]) -> Reader:
    counted = Counting(store, metrics)
    delays = [counted.batch("delay", [minute] * 20, minute) for minute in range(10)]
    carriers = [counted.batch("carrier", [0] * 60 + [1] * 30, 1, 8) for _ in range(2)]
    counted.count(0, *delays, *carriers, counted.batch("page", [HOSTILE] * 90, 1, 8))
    return Reader(counted.store, metrics)


def test_an_estimate_is_a_row_for_each_of_its_numbers(reader: Reader) -> None:
    found = reader.estimate("carrier", "2013-01-01", "2013-01-02")
    frame = found.to_frame()
    assert tuple(frame.columns) == ESTIMATE_COLUMNS
    assert frame["label"] == ["AA", "B6", "DL", "UA"] == list(found.labels)
    for name, numbers in {"value": found.shown, "lower": found.lower, "upper": found.upper}.items():
        assert frame[name] == np.asarray(numbers).tolist()
    assert frame["unbiased"] == np.asarray(found.value).tolist()
    assert {*frame["metric"]} == {"carrier"}
    edges = [frame["window_start"][0].isoformat(), frame["window_end"][3].isoformat()]
    assert edges == ["2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00"]
    assert (frame["reports"], frame["status"]) == ([180] * 4, [found.status] * 4)
    assert found.top(2).to_frame()["label"] == list(found.top(2).labels)  # type: ignore[attr-defined]


def test_one_number_has_no_label_and_a_running_total_no_window(reader: Reader) -> None:
    frame = reader.estimate("delay").to_frame()
    assert (len(frame), frame["label"], frame["unit"]) == (1, [None], ["minutes"])
    assert (frame["window_start"], frame["window_end"]) == ([None], [None])
    assert (frame["bound"], frame["target"]) == (["anytime"], ["population"])

    frame = reader.estimate("silent").to_frame()
    assert frame["status"] == ["not_ready"]
    assert frame["value"] == frame["unbiased"] == [None]
    assert frame.to_csv().splitlines()[1].split(",")[6] == ""


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DitherError, match=rf"pip install 'dither\[tables\]' {library}"):
        getattr(Frame({}), f"to_{library}")()


OTHERS = """
import sys
import duckdb, pandas, polars
from aggregator import Reader
from aggregator.reading.query import Query

url, metrics, folder = sys.argv[1:]
with Reader(url, metrics, topic="dither.reports") as reader:
    frame = reader.estimate("carrier", "2013-01-01", "2013-01-02").to_frame()
one, two = polars.DataFrame(frame), pandas.DataFrame.from_arrow(frame)
three, plain = duckdb.sql("from frame").pl(), pandas.DataFrame(frame.to_dict())
assert frame.to_polars().equals(one)
typed, guessed = frame.to_pandas(), pandas.DataFrame(frame)
assert [*guessed] == [*typed] == [*frame.columns]
assert str(typed["window_start"].dtype) == "datetime64[us, UTC]"
empty = type(frame).of(frame.columns, []).to_pandas()
assert (empty.dtypes == typed.dtypes).all() and not len(empty)
for name in frame.columns:
    expected = frame[name]
    assert typed[name].tolist() == guessed[name].tolist() == expected, name
    assert one[name].to_list() == three[name].to_list() == expected, name
    assert two[name].tolist() == plain[name].tolist() == expected, name
assert str(one.schema["window_start"]) == "Datetime(time_unit='us', time_zone='UTC')"
assert str(two["window_start"].dtype) == "datetime64[us, UTC]"
(total,) = duckdb.sql("select sum(value) from frame where window_start < now()").fetchall()
assert abs(total[0] - sum(frame["value"])) < 1e-9
open(f"{folder}/answer.csv", "w", newline="").write(frame.to_csv())
frame.to_parquet(f"{folder}/answer.parquet")
assert polars.read_parquet(f"{folder}/answer.parquet").equals(one)
for name in ("value", "lower", "upper"):
    read = pandas.read_csv(f"{folder}/answer.csv")[name].tolist()
    assert all(abs(a - b) <= 1e-13 * abs(b) for a, b in zip(read, frame[name]))
    assert polars.read_csv(f"{folder}/answer.csv")[name].to_list() == frame[name]
    assert duckdb.read_csv(f"{folder}/answer.csv").pl()[name].to_list() == frame[name]
assert Query(pandas.Timestamp(9, unit="s", tz="UTC")) == Query(9.0)
try:
    Query(pandas.NaT)
except ValueError as error:
    assert "time NaT" in str(error)
else:
    raise AssertionError("NaT is no time")
print("alike")
"""


@pytest.mark.more
def test_pandas_polars_and_duckdb_take_a_table_as_it_is(
    reader: Reader, redis_url: str, metrics_file: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", OTHERS, redis_url, str(metrics_file), str(tmp_path)]
    assert run(command) == "alike\n"


def test_a_parquet_file_on_a_full_disk_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        Frame.of(("label",), [(str(i),) for i in range(3000)]).to_parquet("/dev/full")


def test_slices_have_a_column_for_each_attribute(closed: Reader) -> None:
    found = closed.estimate("late", by="country", where={"version": "1"})
    frame = found.to_frame()
    words = [one.slice["country"] for one in found.slices]
    assert frame["by_country"] == words
    assert {"DE", "FR"} < {*words}
    assert {*frame["by_version"]} == {"1"}
    assert frame["reports"] == [one.reports for one in found.slices]
    known = [None if one.estimate is None else one.estimate.shown for one in found.slices]
    assert frame["value"] == known
    assert frame["status"][known.index(None)] == "too_few_reports"
    assert {*frame["coverage"]} == {1.0}
    alone = closed.estimate("late", where={"country": "DE"}).to_frame()
    assert alone["by_country"] == ["DE"]


def test_a_distribution_has_a_table_of_quantiles_and_one_of_shares() -> None:
    metric = LocalMetric.require(
        define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=[4], unit="s")
    )
    sums, level = metric.zero(), np.zeros(4000, dtype=np.uint8)
    metric.accumulate(sums, level, metric.randomize([1.5, 6.5] * 2000, level, SeededBits(3)))
    window = Window(metric=metric, status="final", start_ms=0, end_ms=HOUR).with_sums(sums)
    found = with_window(window, Reader.answer(window))
    assert isinstance(found, WindowDistribution)
    first, *lines = str(found).splitlines()
    assert first == "4,000 reports, 95% fixed bounds"
    assert [line.partition(":")[0] for line in lines] == [*found.labels]
    frame = found.to_frame()
    assert frame["label"] == list(found.labels)
    assert frame["value"] == found.quantiles[:, 1].tolist()
    assert {*frame["unit"]} == {"s"}
    shares = found.cdf_to_frame()
    assert shares["edge"] == [*map(float, range(9))]
    assert shares["value"] == found.monotone.tolist()
    assert shares["unit"] == [""] * 9
    assert all(
        low <= x <= high
        for low, x, high in zip(*(shares[n] for n in ("lower", "value", "upper")), strict=True)
    )


def test_no_text_in_csv_is_a_formula_and_every_cell_can_be_read_again() -> None:
    rng = np.random.default_rng(4)
    texts = [*FORMULA_STARTS, "", "a,b", '"', "\r\n", "\x1b[2J", "\u202e", "'", "''=1", "ü"]
    starts = ["", "'", *FORMULA_STARTS]
    rows = [
        (str(rng.choice(starts)) + str(rng.choice(texts)) + str(rng.choice(texts)), rng.normal())
        for _ in range(400)
    ]
    text = io.StringIO(Frame.of(("label", "value"), rows).to_csv(), newline="")
    head, *cells = csv.reader(text, strict=True)
    assert head == ["label", "value"]
    for (label, number), (shown, value) in zip(rows, cells, strict=True):
        with row(repr(label)):
            assert not shown.startswith(FORMULA_STARTS)
            assert shown.removeprefix("'") == label
            assert float(value) == number


# -- In a notebook: intervals drawn as SVG, nothing that a label could run, and plots --------------


@pytest.fixture
def pyplot() -> Iterator[Any]:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def drawn(answer: pictures.Pictured) -> ElementTree.Element:
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


def test_quantiles_that_span_decades_have_a_logarithmic_axis(pyplot: Any) -> None:
    unknown = pictures.LabelledInterval("0.9", *[np.nan] * 3)
    for (lower, upper), of_quantiles, scale in [
        ((2, 200), True, "log"),
        ((2, 199), True, "linear"),
        ((0, 200), True, "linear"),
        ((2, 200), False, "linear"),
        ((np.nan, np.nan), True, "linear"),
    ]:
        with row(lower, upper, of_quantiles):
            rows = (pictures.LabelledInterval("0.5", lower, lower, upper), unknown)
            line = pictures.HistoryLine("0.5", [0, HOUR], [HOUR, 2 * HOUR], rows)
            _, (first, second) = pyplot.subplots(2)
            pictures.Intervals("", (), rows, of_quantiles=of_quantiles).plot(first)
            pictures.History("", (), (line,), of_quantiles=of_quantiles).plot(second)
            assert (first.get_xscale(), second.get_yscale()) == (scale, scale)


def test_labels_are_text_whatever_they_say(reader: Reader, pyplot: Any) -> None:
    found = reader.estimate("page", categories=[HOSTILE])
    assert "<script" not in found._repr_html_()
    (label,) = drawn(found).iter("th")
    assert label.text == HOSTILE
    assert "of_quantiles=False" in repr(found.picture)
    axes = found.plot()
    axes.figure.canvas.draw()
    assert axes.get_yticklabels()[0].get_text() == HOSTILE.replace("$", r"\$")
