"""Definitions suggested from a CSV file can be loaded and fit its values."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import DistributionEstimate, LocalMetric, Metric, SeededBits, define, load_metrics
from estimators.rounding import interval
from producers.populations.suggestions.expected_widths import simulated_estimate
from producers.populations.suggestions.suggestion import MAX_LISTED_CATEGORIES, suggest
from tests.support.rows import row

BEGIN = 1_356_998_400


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


def test_numbers_become_a_mean_over_rounded_quantiles(tmp_path: Path) -> None:
    some = [f"{i / 3 - 2:.2f},{BEGIN + i}" for i in range(31)]
    file = table(tmp_path, "Delay (min),when", f"NA,{BEGIN}", f"8,{BEGIN + 120_000}", *some)
    found = suggest(file, "Delay (min)", unit="minutes", time=["when"], users_per_day=1e5)
    metric = defined(tmp_path, found.text)
    assert (metric.name, metric.kind, metric.unit) == ("delay_min", "mean", "minutes")
    assert metric.range is not None
    assert list(metric.range) == [-2, 8]
    assert metric.pane == "5m", "120,000 s are 2,000 minutes: 400 panes of 5 minutes"
    found = suggest(table(tmp_path, "late", *"0110100010", "0.5"), "late", value_range=(0, 1))
    assert defined(tmp_path, found.text).options == {}


@pytest.mark.parametrize(
    ("cells", "options", "name"),
    [
        ("0 1 1 0", {}, "late"),
        ("0 1 1 0", {"value_range": (0, 1)}, "late"),
        ("False True TRUE NA", {}, "late"),
        ("no yes yes no", {}, "late"),
        ("f t t", {}, "late"),
        ("1 2.5 900 -3", {"above": 2.5}, "late_above_2_5"),
    ],
)
def test_yes_and_no_and_numbers_above_a_limit_become_a_share(
    tmp_path: Path, cells: str, options: dict[str, Any], name: str
) -> None:
    found = suggest(table(tmp_path, "late", *cells.split()), "late", **options)
    metric = defined(tmp_path, found.text)
    assert (metric.name, metric.kind, metric.options) == (name, "mean", {"values": "two"})
    assert metric.range == [0, 1]
    assert metric.title == ("late above 2.5" if "above" in options else "")
    assert found.name == name


def test_versions_are_strings_and_thousands_are_numbers(tmp_path: Path) -> None:
    for versions in ("1.2.3 1.10.0 1.2", "v1.2.3 v2.0.0-rc.1", "10.1.256.1 10.1.256.2"):
        with row(versions):
            file = table(tmp_path, "v", *versions.split())
            with pytest.raises(ValueError, match="different strings"):
                suggest(file, "v")
            with pytest.raises(ValueError, match="cells are no numbers"):
                suggest(file, "v", kind="mean")
    with pytest.raises(ValueError, match=r"2 of 2 cells are no numbers: '1\.234\.567'"):
        suggest(table(tmp_path, "v", "1.234.567", "12.345.678"), "v")


def test_whoever_has_codes_says_whether_they_are_numbers(tmp_path: Path) -> None:
    codes = table(tmp_path, "zip", *(f"{number:05}" for number in range(480, 540)))
    with pytest.raises(
        ValueError, match="60 cells begin with 0, such as '00480': are they numbers"
    ):
        suggest(codes, "zip")
    assert defined(tmp_path, suggest(codes, "zip", kind="mean").text).kind == "mean"
    listed = defined(tmp_path, suggest(codes, "zip", list_categories=True).text)
    assert listed.labels[0] == "00480"


def sliced(folder: Path) -> Path:
    """Return latencies of two countries with many rows, one with few, and one without a name."""
    cells = zip(itertools.cycle(long_tails()[1:]), ["US", "DE", "US", "US"] * 5_000, strict=False)
    rows = [f"{latency},{country}" for latency, country in cells]
    few = [*["140,NA"] * 5, *["140,VA"] * 4, "140,", "140,other"]
    return table(folder, "Latency (ms),Land", *rows, *few)


def test_the_widths_of_all_and_of_each_slice_are_those_of_the_metric(tmp_path: Path) -> None:
    found = suggest(sliced(tmp_path), "Latency (ms)", by=["Land"], users_per_day=500)
    metric = LocalMetric.require(defined(tmp_path, found.text))
    assert metric.title == metric.heading == "Latency (ms)"
    assert (list(metric.by), metric.attributes) == (["land"], {"land": ["DE", "NA", "US"]})
    assert found.attributes == {"land": "Land"}
    start = next(i for i, note in enumerate(found.notes) if note.startswith("widths:"))
    rows = [re.split(" {2,}", line.strip()) for line in found.notes[start + 2 :]]
    names = ["all rows", f"a pane of {metric.pane}"]
    assert "VA" not in found.text
    names += [f"{metric.pane} of land=US"]
    names += [f"land={country}" for country in ("US", "DE", "NA", "other", "none")]
    assert [cells[0] for cells in rows[:-1]] == names
    assert [cells[1] for cells in rows[:-1]] == [
        "20,011",
        "125",
        "94",
        "15,000",
        "5,000",
        "5",
        "5",
        "1",
    ]
    assert rows[5][2] == "too few: 100 are needed"
    values = [float(cell) for cell in itertools.islice(itertools.cycle(long_tails()[1:]), 20_000)]
    us = [value for i, value in enumerate(values) if i % 4 != 1]
    expected = simulated_estimate(metric, us, 15_000, beta=0.05 / 2, quantiles=[0.5, 0.95])
    assert isinstance(expected, DistributionEstimate)
    bounds = [interval(row)[1:] for row in expected.quantiles[:, 1:].tolist()]
    assert [re.findall(r"\[(.*), (.*)\]", cell)[0] for cell in rows[3][2:]] == bounds
    assert rows[1][3].endswith("(!)")
    assert not rows[0][2].endswith("(!)")
    assert "--above" in rows[-1][0]


@pytest.mark.parametrize("every", [2, 3])
def test_a_cycle_of_rows_does_not_mislead(every: int) -> None:
    """Every m-th row alone would say that all, or none, of them are 1."""
    late = LocalMetric.require(define(name="late", kind="mean", range=(0, 1), levels=[8]))
    values = np.resize([0.0, *[1.0] * (every - 1)], 4_000 * every)
    found = simulated_estimate(late, values, 4_000)
    assert found.lower < 1 - 1 / every < found.upper


def test_expected_widths_are_those_of_reports(tmp_path: Path) -> None:
    """Of a mean, of a category and of a string, with equal shares of the levels."""
    values = np.resize([0.0, 1.0, 1.0, 1.0], 60_000)
    metric = define(name="m", kind="mean", mechanism="auto", range=(0, 1), levels=[0.5, 4])
    expected = simulated_estimate(metric, values, 60_000)
    level = np.arange(60_000) % 2
    statistic = metric.zero()
    order = np.random.default_rng(1).permutation(60_000)
    metric.accumulate(statistic, level, metric.randomize(values[order], level, SeededBits(2)))
    found = metric.estimate(statistic)
    assert expected.upper - expected.lower == pytest.approx(found.upper - found.lower, rel=0.02)
    assert expected.reports == found.reports
    wait = define(name="w", kind="distribution", range=(1, 1000), scale="log", levels=[1, 4])
    many = simulated_estimate(wait, [float(text) for text in long_tails()[1:]], 400_000)
    assert isinstance(many, DistributionEstimate)
    assert not many.crossed
    assert many.quantiles[0, 2] > 130
    assert many.quantiles[0, 3] < 150
    for options, words in (({"is_open": True}, "a"), ({"list_categories": True}, "a")):
        file = table(tmp_path, "c", *("a", "b", "a", "NA") * 200)
        notes = suggest(file, "c", missing=["NA"], **options).notes  # type: ignore[arg-type]
        (head,) = (note for note in notes if "share of" in note)
        assert head.endswith(f"share of '{words}'")
        low, high = map(float, re.findall(r"\[(.*), (.*)\]", notes[-1])[0])
        assert low < 2 / 3 < high


def latencies() -> list[str]:
    """Return 4,000 numbers below 500, mostly far below, and one outlier."""
    body = [f"{500 * (i / 4000) ** 3:.1f}" for i in range(4000)]
    return ["latency", *body[:70], "2105", *body[70:]]


def test_an_outlier_does_not_widen_the_range_and_what_each_costs_is_told(tmp_path: Path) -> None:
    file = table(tmp_path, *latencies())
    found = suggest(file, "latency")
    metric = defined(tmp_path, found.text)
    assert metric.range is not None
    assert max(metric.range) <= 550
    assert "2105" not in found.text, "no value of the file is in the definition"
    rows = [line.split() for line in found.notes if line.startswith("  ") and "%  " in line]
    widths = {float(row[1]): float(row[4]) for row in rows}
    assert widths[max(widths)] > 3 * widths[max(metric.range)]


def long_tails() -> list[str]:
    """Return 2,001 numbers above 0, a few of them a hundred times the median."""
    return ["latency", *(f"{140 * 10 ** (4 * (i / 1000 - 1) ** 3):.2f}" for i in range(2001))]


def test_numbers_with_long_tails_become_a_distribution(tmp_path: Path) -> None:
    file = table(tmp_path, *long_tails())
    found = suggest(file, "latency", unit="ms")
    metric = defined(tmp_path, found.text)
    assert (metric.kind, metric.mechanism, metric.unit) == ("distribution", "dyadic_hadamard", "ms")
    assert 'scale = "log"' in found.text
    low, high = json.loads(found.text.split("range = ")[1].splitlines()[0])
    assert (low, high) == (0.01, 2_000_000), "rounded to 1, 2 or 5 times a power of ten"
    assert 'kind = "mean"' in suggest(file, "latency", kind="mean").text
    assert 'kind = "mean"' in suggest(file, "latency", value_range=(130, 150)).text, "without tails"


def test_a_cell_that_is_no_number_is_named_with_its_row(tmp_path: Path) -> None:
    rows = latencies()
    rows[77] = "12 ms"
    file = table(tmp_path, *rows)
    with pytest.raises(ValueError, match=r"1 of 4,001 cells are no numbers: '12 ms' \(row 77\)"):
        suggest(file, "latency")
    assert 'kind = "mean"' in suggest(file, "latency", missing=["12 ms"]).text
    forms = ("{},5", "{} ms", "{}%", "1.{:03d},0", "${}.40", "-€ {}", "({})", "<{}", "{}:30")
    units = (
        "{} sq ft",
        "{}h 1.37m",
        "PT{}M5S",
        "0 days 0:{}",
        "R$ {}",
        "\u200e{} ms",
        "\uff10{}\uff0e5",
    )
    for form in (
        *forms,
        *units,
        "{}.5 ug/m3",
        "ca. {},5 t a year",
        "approx. {}",
        "\u0663{}\u066b1 ms",
    ):
        rows = ['"' + form.format(i) + '"' for i in range(1_500)]
        with row(form), pytest.raises(ValueError, match="1,500 of 1,500 cells are no numbers"):
            suggest(table(tmp_path, "v", *rows), "v")
    for words in (["-"] * 4_000, [f"word {i}" for i in range(4_000)]):
        with pytest.raises(ValueError, match=r"4,000 of 5,500 cells are no numbers: '(-|word 0)'"):
            suggest(table(tmp_path, "v", *map(str, range(1_500)), *words), "v")


def test_strings_become_categories_only_if_somebody_says_so(tmp_path: Path) -> None:
    hidden = "a\x7f\u200b\U000e0001"
    file = table(
        tmp_path, "c", 'B"6', "Zürich", "", 'B"6', "back\\slash", "NA", hidden, "Zu\u0308rich"
    )
    with pytest.raises(ValueError, match=r"--list-categories lists all of them.*string$"):
        suggest(file, "c")
    metric = defined(
        tmp_path, suggest(file, "c", name="carrier", levels=[1, 3], list_categories=True).text
    )
    assert metric.category_names == ('B"6', "NA", "Zu\u0308rich", "Zürich", hidden, "back\\slash")
    assert tuple(metric.levels) == (1, 3)
    with pytest.raises(ValueError, match="5 strings are none of the 1 categories"):
        suggest(file, "c", categories=['B"6'])
    named = suggest(file, "c", categories=["x", 'B"6'], missing=metric.category_names[1:])
    assert defined(tmp_path, named.text).category_names == ("x", 'B"6')
    opened = suggest(file, "c", is_open=True)
    assert "Zürich" not in opened.text
    file = table(tmp_path, "c", "e\u0301", "e\u200b", "\xe9", "e")
    assert "strings: 2 differ from others in case, spaces, their Unicode form" in "".join(
        suggest(file, "c", is_open=True).notes
    )


def test_columns_become_axes_whose_other_values_are_listed_only_on_demand(tmp_path: Path) -> None:
    """No before yes, numbers by size; a row has a value if all of its cells have one."""
    rows = ["TRUE,9,DE", "false,10,FR", "false,NA,NA", "NA,9,DE", "TRUE,none,DE"]
    file = table(tmp_path, "used,Age (y),land", *rows)
    found = suggest(file, ["used", "Age (y)"], list_categories=True, missing=["none"])
    metric = defined(tmp_path, found.text)
    assert metric.categories == {"used": ["false", "TRUE"], "age_y": ["9", "10", "NA"]}
    assert (metric.name, found.columns) == ("used_age_y", ["used", "Age (y)"])
    assert "rows: 5; 3 read, 2 without a value ('NA 9' 1, 'TRUE none' 1)" in found.notes
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("Age (y)", {}, r"columns 'used', 'Age \(y\)': '9' and others .* --list-categories"),
        ("land", {"list_categories": True, "missing": ["FR", "NA"]}, "two values or more of axis"),
        ("land", {"kind": "mean"}, "several columns are the axes of a frequency"),
        ("land", {"above": 3}, "several columns are the axes of a frequency"),
        ("absent", {}, "no column 'absent'"),
    ]
    for column, options, expected in cases:
        with row(expected), pytest.raises(ValueError, match=expected):
            suggest(file, ["used", column], **options)
    file = table(tmp_path, "a,b", *(f"{i},{i}" for i in range(32)), "1,a=b")
    with pytest.raises(ValueError, match="have 1,056 combinations of values: expected at most 1,0"):
        suggest(file, ["a", "b"], list_categories=True)
    with pytest.raises(ValueError, match=r"without , = / .* found 'a=b'"):
        suggest(file, ["a", "b"], list_categories=True, missing=["31"])


def test_a_pane_has_the_reports_that_a_step_of_the_history_needs(tmp_path: Path) -> None:
    rows = [f"{i % 60},{BEGIN + 60 * i}" for i in range(3_000)]  # one a minute: 60 an hour
    file, times = table(tmp_path, "delay,when", *rows), ["when"]
    cases = [(times, None, "6h"), (times, 24_000, "15m"), (times, 2_400, "1h"), (times, 3, "4w")]
    for time, users, pane in [*cases, ([], None, "1m"), ([], 500, "6h")]:
        found = suggest(file, "delay", time=time, users_per_day=users)
        assert defined(tmp_path, found.text).pane == pane, users


def test_many_strings_become_an_open_vocabulary_that_names_none(tmp_path: Path) -> None:
    names = [f"N{i}" for i in range(MAX_LISTED_CATEGORIES + 1)]
    file = table(tmp_path, "tail", *names, "N7", "N7", "N3")
    found = suggest(file, "tail")
    assert "categories: open, because there are 1,001 different strings" in found.notes[2]
    metric = defined(tmp_path, found.text)
    assert (metric.categories, metric.mechanism) == ("open", "projective_sketch")
    assert "N7" not in found.text
    streets = (f"{house} {chr(97 + house % 26)}{chr(97 + house % 7)} St" for house in range(1_500))
    addresses = suggest(table(tmp_path, "home", *streets), "home")
    assert defined(tmp_path, addresses.text).categories == "open"
    with pytest.raises(ValueError, match="expected at most 1,000 to list them"):
        suggest(table(tmp_path, "tail", *names), "tail", list_categories=True)
    hours = (f"N{hour % 9},{BEGIN + hour * 3600}" for hour in range(2000))
    timed = suggest(table(tmp_path, "tail,time", *hours), "tail", is_open=True, time=["time"])
    assert 0 < defined(tmp_path, timed.text).options["rows"] < 1024


def test_what_cannot_be_suggested_is_explained(tmp_path: Path) -> None:
    file = table(tmp_path, "number,text,empty,twice,Twice,yes", "1,x,,1,1,no", "2,y,,1,1,yes")
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("missing", {}, "no column 'missing'"),
        ("TWICE", {}, "'TWICE' 2 times: 'twice' at position 4 and 'Twice' at position 5"),
        ("empty", {}, "column 'empty' has no value"),
        ("text", {}, "--open accepts any string. Or write 1 for yes and 0"),
        ("number", {"above": 1, "kind": "mean"}, "^above 1: a share of kind mean"),
        ("text", {"above": 1}, "2 of 2 cells are no numbers: 'x'"),
        ("yes", {"by": ["number"] * 2, "name": "No"}, r"^No\.name = 'No'"),
        ("number", {"value_range": (5, 1)}, r"^number\.range = \(5, 1\): expected two finite"),
        ("text", {"value_range": (0, 9)}, "2 of 2 cells are no numbers: 'x'"),
        ("number", {"value_range": (0, 9), "is_open": True}, "a range is of numbers"),
        ("number", {}, "fewer than 20 different numbers: a range around them would reveal some"),
        ("number", {"levels": [0], "value_range": (0, 9)}, r"^number\.levels = \[0\]: expected"),
    ]
    for column, options, message in cases:
        with row(message), pytest.raises(ValueError, match=message):
            suggest(file, column, **options)
    with pytest.raises(ValueError, match=r"fewer than 20 .*--missing 99\.0 leaves it out"):
        suggest(table(tmp_path, "v", *"010101", "99"), "v")
    ranges: list[Any] = [{}, {"value_range": (0, 24)}]
    for value, options in itertools.product(("-1.7e308", "1e38", "-9999"), ranges):
        file = table(tmp_path, "v", *map(str, range(25)), value, value)
        found = suggest(file, "v", **options)
        assert f"--missing {float(value)!r} leaves it out" in "".join(found.notes)
        assert defined(tmp_path, found.text).range == [0, 24]
    assert "column: 'v' for 'V'" in suggest(file, "V", missing=["-9999"]).notes
    long = table(tmp_path, "v", "1" * 9**6 + "x", *map(str, range(2_000)))
    with pytest.raises(ValueError, match="1 of 2,001 cells are no numbers"):
        suggest(long, "v")
    file = table(tmp_path, "v;w", *(f"{n},5;x" for n in range(25)), "-9999;x")
    notes = suggest(file, "v", decimal=",", missing=["-9999.0"]).notes
    assert "far:" not in "".join(notes)
