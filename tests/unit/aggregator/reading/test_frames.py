"""Answers are tables that pandas, polars, DuckDB and spreadsheets take as they are."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator import Reader
from aggregator.reading.discovery.answers import discover_strings
from aggregator.reading.frames.columns import COLUMNS, ESTIMATE
from aggregator.reading.frames.estimates import WindowDistribution, with_window
from aggregator.reading.frames.frame import FORMULA, ArrowMissingError, Frame
from aggregator.reading.windows import Window
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from tests.support.paths import ROOT
from tests.support.reports.counted import HOUR, MINUTE, Counting
from tests.support.reports.messages import EPOCH
from tests.unit.aggregator.reading.test_slices import METRICS as SLICED
from tests.unit.aggregator.reading.test_slices import Counting as CountingSlices
from tests.unit.aggregator.reading.test_slices import closed, counting, store

__all__ = ["closed", "counting", "store"]
NUMBERS = ("value", "lower", "upper")


@pytest.fixture
def reader(redis_url: str, metrics: dict[str, Any]) -> Reader:
    from tests.support.reports.counted import connected

    counted = Counting(connected(redis_url), metrics)
    delays = [counted.batch("delay", [minute] * 20, minute) for minute in range(10)]
    carriers = [counted.batch("carrier", [0] * 60 + [1] * 30, 1, 8) for _ in range(2)]
    counted.count(0, *delays, *carriers, counted.batch("page", ["/"] * 90, 1, 8))
    return Reader(counted.store, metrics)


@pytest.fixture
def sliced(closed: CountingSlices) -> Reader:
    return Reader(closed.store, SLICED)


def test_an_estimate_is_a_row_for_each_of_its_numbers(reader: Reader) -> None:
    found = reader.estimate("carrier", "2013-01-01", "2013-01-02")
    frame = found.to_frame()
    assert tuple(frame.columns) == ESTIMATE
    assert frame["label"] == ["AA", "B6", "DL", "UA"] == list(found.labels)
    for name, numbers in zip(NUMBERS, (found.shown, found.lower, found.upper), strict=True):
        assert frame[name] == np.asarray(numbers).tolist()
    assert frame["unbiased"] == np.asarray(found.value).tolist()
    assert {*frame["metric"]} == {"carrier"}
    assert [
        moment.isoformat() for moment in (frame["window_start"][0], frame["window_end"][3])
    ] == [
        "2013-01-01T00:00:00+00:00",
        "2013-01-02T00:00:00+00:00",
    ]
    assert frame["reports"] == [180] * 4
    assert frame["status"] == [found.status] * 4
    assert found.top(2).to_frame()["label"] == list(found.top(2).labels)  # type: ignore[attr-defined]


def test_one_number_has_no_label_and_a_running_total_no_window(reader: Reader) -> None:
    frame = reader.estimate("delay").to_frame()
    assert (len(frame), frame["label"], frame["unit"]) == (1, [None], ["minutes"])
    assert (frame["window_start"], frame["window_end"]) == ([None], [None])
    assert (frame["bound"], frame["target"]) == (["anytime"], ["population"])


def test_what_is_not_known_is_missing(reader: Reader) -> None:
    frame = reader.estimate("silent").to_frame()
    assert frame["status"] == ["not_ready"]
    assert frame["value"] == frame["unbiased"] == [None]
    assert pl.DataFrame(frame)["value"].to_list() == [None]
    assert frame.to_csv().splitlines()[1].split(",")[6] == ""


def test_pandas_polars_and_duckdb_take_a_table_as_it_is(reader: Reader) -> None:
    frame = reader.estimate("carrier", "2013-01-01", "2013-01-02").to_frame()
    one, two = pl.DataFrame(frame), pd.DataFrame.from_arrow(frame)
    three = duckdb.sql("from frame").pl()
    plain = pd.DataFrame(frame.to_dict())
    for name in ESTIMATE:
        expected = frame[name]
        assert one[name].to_list() == three[name].to_list() == expected, name
        assert two[name].tolist() == plain[name].tolist() == expected, name
    assert str(one.schema["window_start"]) == "Datetime(time_unit='us', time_zone='UTC')"
    assert str(two["window_start"].dtype) == "datetime64[us, UTC]"
    (total,) = duckdb.sql("select sum(value) from frame where window_start < now()").fetchall()
    assert total[0] == pytest.approx(sum(frame["value"]))


def test_a_series_has_the_columns_of_an_estimate(reader: Reader) -> None:
    start, end = EPOCH / 1000, (EPOCH + HOUR) / 1000
    series = reader.series("delay", start, end, step="5m")
    frame = series.to_frame()
    assert tuple(frame.columns) == ESTIMATE
    assert frame["value"] == [point.value for point in series.points]
    assert sum(frame["reports"]) == 200
    first = reader.estimate("delay", start, start + 300).to_frame()
    assert [frame[name][0] for name in ESTIMATE] == [first[name][0] for name in ESTIMATE]
    together = pl.concat([pl.DataFrame(frame), pl.DataFrame(first)])
    assert len(together) == len(series.points) + 1
    of_two = reader.series("carrier", start, end, step="30m", top=2).to_frame()
    assert of_two["label"][:2] == ["AA", "B6"]
    assert len(of_two) == 4


def test_slices_have_a_column_for_each_attribute(sliced: Reader) -> None:
    found = sliced.estimate("late", by=["country"], where={"version": "1"})
    frame = found.to_frame()
    words = [one.slice["country"] for one in found.slices]
    assert frame["by_country"] == words
    assert {"DE", "FR"} < {*words}
    assert {*frame["by_version"]} == {"1"}
    assert frame["reports"] == [one.reports for one in found.slices]
    known = [None if one.estimate is None else one.estimate.shown for one in found.slices]
    assert frame["value"] == known
    assert None in known
    assert frame["status"][known.index(None)] == "too_few_reports"
    assert {*frame["coverage"]} == {1.0}
    alone = sliced.estimate("late", where={"country": "DE"}).to_frame()
    assert alone["by_country"] == ["DE"]


def test_a_comparison_is_a_table_of_both_arms(sliced: Reader) -> None:
    window: dict[str, Any] = {"start": "2013-01-01", "end": "2013-01-04"}
    found = sliced.compare("late", {"country": "DE"}, **window)
    frame = found.to_frame()
    assert (frame["value"], frame["p_value"]) == ([found.value], [found.p_value])
    assert (frame["a_slice"], frame["b_slice"]) == (["country=DE"], ["rest"])
    assert frame["a_reports"] == [found.a.estimate.reports]
    assert frame["decided"] == [found.decided]
    assert frame["a_lower"] == [None]
    each = sliced.compare("late", {"country": "DE"}, each=True, **window).to_frame()
    assert each["a_lower"][0] < each["a_value"][0] < each["a_upper"][0]
    nothing = sliced.compare("late", {"country": "DE"}, start="2012-01-01", end="2012-01-02")
    assert nothing.to_frame()["decided"] == nothing.to_frame()["value"] == [None]


def distribution() -> tuple[Window, WindowDistribution]:
    metric = LocalMetric.require(
        define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=[4], unit="s")
    )
    sums, level = metric.zero(), np.zeros(4000, dtype=np.uint8)
    metric.accumulate(sums, level, metric.randomize([1.5, 6.5] * 2000, level, SeededBits(3)))
    window = Window(metric=metric, status="final", start_ms=0, end_ms=HOUR).with_sums(sums)
    found = with_window(window, Reader.answer(window))
    assert isinstance(found, WindowDistribution)
    return window, found


def test_a_distribution_has_a_table_of_quantiles_and_one_of_shares() -> None:
    _, found = distribution()
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


def test_strings_that_were_discovered_are_rows() -> None:
    metric = LocalMetric.require(
        define(
            name="tail",
            kind="frequency",
            categories="open",
            discover=True,
            preset="upper",
            levels=[4],
            options={"last": 24},
        )
    )
    sums, level = metric.zero(), np.zeros(9_000, dtype=np.uint8)
    metric.accumulate(sums, level, metric.randomize(["JFK"] * 9_000, level, SeededBits(1)))
    window = Window(metric=metric, status="final", start_ms=0, end_ms=HOUR).with_sums(sums)
    found = discover_strings(window, 0.05, None)
    frame = found.to_frame()
    assert frame["label"] == ["JFK"]
    assert frame["lower"][0] < frame["value"][0] <= frame["upper"][0] + 1e-9
    nothing = discover_strings(window.with_sums(metric.zero()), 0.05, None).to_frame()
    assert len(nothing) == 0
    assert pl.DataFrame(nothing).columns == [*frame.columns]


def test_parquet_has_the_types_and_strings_of_the_table(tmp_path: Path) -> None:
    rows = [("=1+1", EPOCH + 1, -0.1, True), ("'a'", None, None, None)]
    frame = Frame.of(("label", "window_start", "value", "decided"), rows)
    file = tmp_path / "answer.parquet"
    frame.to_parquet(file)
    target = io.BytesIO()
    frame.to_parquet(target)
    assert target.getvalue() == file.read_bytes()
    again = pl.read_parquet(file)
    assert again.equals(pl.DataFrame(frame))
    assert again["label"].to_list() == ["=1+1", "'a'"]


def read(text: str) -> list[list[str]]:
    return [*csv.reader(io.StringIO(text, newline=""), strict=True)]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)


@given(
    st.lists(
        st.tuples(
            st.one_of(TEXTS, st.builds(str.__add__, st.sampled_from(["'", *FORMULA]), TEXTS)),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
    )
)
def test_no_text_in_csv_is_a_formula_and_every_cell_can_be_read_again(
    rows: list[tuple[str, float]],
) -> None:
    text = Frame.of(("label", "value"), rows).to_csv()
    head, *cells = read(text)
    assert head == ["label", "value"]
    for (label, number), (shown, value) in zip(rows, cells, strict=True):
        assert not shown.startswith(FORMULA)
        assert shown.removeprefix("'") == label
        assert float(value) == number


def test_other_readers_of_csv_find_the_same_numbers(reader: Reader, tmp_path: Path) -> None:
    frame = reader.estimate("carrier").to_frame()
    file = tmp_path / "answer.csv"
    file.write_text(frame.to_csv(), newline="")
    for name in NUMBERS:
        assert pd.read_csv(file)[name].tolist() == pytest.approx(frame[name], rel=1e-14)
        assert pl.read_csv(file)[name].to_list() == frame[name]
        assert duckdb.read_csv(str(file)).pl()[name].to_list() == frame[name]


def test_without_arro3_there_is_still_csv_and_a_message_for_the_rest(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("arro3.core", "arro3.io"):
        monkeypatch.setitem(sys.modules, name, None)
    frame = reader.estimate("delay").to_frame()
    assert frame.to_csv().startswith("metric,")
    assert pd.DataFrame(frame.to_dict())["metric"].tolist() == ["delay"]
    with pytest.raises(ArrowMissingError, match=r"pip install 'dither\[tables\]'"):
        pl.DataFrame(frame)
    with pytest.raises(ArrowMissingError, match="Parquet needs arro3"):
        frame.to_parquet(tmp_path / "answer.parquet")


def test_a_table_shows_its_first_rows_without_control_characters() -> None:
    shown = repr(Frame.of(("label", "value"), [("a\x1b[2J", 0.5), *[("b", None)] * 20]))
    assert "a\\u001b[2J  0.5" in shown
    assert shown.endswith("... 21 rows")


def test_the_documentation_explains_every_column() -> None:
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    for name, column in COLUMNS.items():
        if not name.startswith(("a_", "b_")):
            assert f"| `{name}` | {column.kind.value} | {column.meaning} |" in text, name


def test_steps_of_minutes_are_minutes_apart(reader: Reader) -> None:
    frame = reader.series("delay", EPOCH / 1000, (EPOCH + HOUR) / 1000, step="5m").to_frame()
    starts = [round(1000 * moment.timestamp()) for moment in frame["window_start"]]
    assert np.diff(starts).tolist() == [5 * MINUTE] * (len(starts) - 1)
