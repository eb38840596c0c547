"""Populations from CSV files and from distributions."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators.metrics.categories import Vocabulary
from producers.populations.csv_files import detect_format
from producers.populations.population import Arrivals, Population
from producers.populations.simulated import simulate
from producers.populations.tables import read_population
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, LATE, PLACE, WORDS

METRICS = {"delay": DELAY, "carrier": CARRIER, "words": WORDS, "place": PLACE}
COLUMNS = {"delay": "minutes", "carrier": "line"}
TABLE = """\
day,clock,stamp,minutes,line
2013-01-01,10:00,1357034400,11,AA
2013-01-01,09:00,1357030800.5,NA,B6
2013-01-01,NA,,5,AA
2013-01-02,00:00:01,1357084801,-3.5,
2013-01-01,10:00,1357034400,,NA
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def read(path: Path, text: str | bytes, columns: dict[str, Any], **options: Any) -> Population:
    """Read a table from a text."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if "time" not in options:
        options["arrivals"] = Arrivals(1)
    return read_population(path, METRICS, columns, **options)


def test_rows_come_in_order_of_event_time_and_what_is_missing_is_counted(path: Path) -> None:
    times: list[tuple[Any, int]] = [(["day", "clock"], 0), ("stamp", 500)]
    for time, half in times:
        population = read_population(path, METRICS, COLUMNS, time=time)
        after = [half, 3_600_000, 3_600_000, 54_001_000]
        assert (population.time_ms - 1_357_030_800_000).tolist() == after
        assert str(population.columns["delay"].tolist()) == "[nan, 11.0, nan, -3.5]"
        assert population.columns["carrier"].tolist() == [1, 0, -1, -1]
        assert [population.count_missing(name) for name in COLUMNS] == [2, 2]
        assert population.skipped == 1
        assert population.seconds == (54_001_000 - half) / 1000
    arrivals = Arrivals(start_ms=1000, per_second=2)
    packed = path.with_suffix(".zip")
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(path, "folder/table.csv")
        archive.writestr("README", "nothing")
    population = read_population(packed, METRICS, COLUMNS, arrivals=arrivals)
    assert population.time_ms.tolist() == [1000, 1500, 2000, 2500, 3000]
    assert [chunk.time_ms.size for chunk in population.chunks(2)] == [2, 2, 1]
    with pytest.raises(ValueError, match="expected the same length"):
        Population(np.array([1, 2]), {"x": np.array([1.0])})
    with pytest.raises(ValueError, match="not ascending"):
        Population(np.array([2, 1]), {})


def test_strings_and_vectors_come_from_a_table_too(path: Path) -> None:
    columns = {"words": "line", "place": ("minutes", "stamp")}
    population = read_population(path, METRICS, columns, time=["day", "clock"])
    assert population.columns["words"].tolist() == ["B6", "AA", "", ""]
    assert population.columns["place"][:2, 1].tolist() == [1357030800.5, 1357034400]
    assert population.has_value("words").tolist() == [True, True, False, False]
    assert population.has_value("place").tolist() == [False, True, False, True]
    assert population.part(1, 3).columns["place"].shape == (2, 2)
    with pytest.raises(ValueError, match="1 columns for 'place': expected 2, one for each coord"):
        read_population(path, METRICS, {"place": "minutes"}, time="stamp")


def test_what_means_no_value_can_be_said_and_a_word_on_watch_is_one(path: Path) -> None:
    path.write_text("v\n NA \nnan\nsun\n", encoding="utf-8")
    domain = Vocabulary(categories="open", watch=["NA"])
    metrics = {"words": dataclasses.replace(WORDS, domain=domain)}
    population = read_population(path, metrics, {"words": "v"}, arrivals=Arrivals(1))
    assert population.columns["words"].tolist() == ["NA", "", "sun"]
    population = read(path, "v\n1\n12 ms\n", {"delay": "v"}, missing=["12 ms"])
    assert str(population.columns["delay"].tolist()) == "[1.0, nan]"


def test_what_is_wrong_with_a_table_is_named(path: Path) -> None:
    two = "t,v\n02/01/2013,1\n03/01/2013,2\n"
    cases: list[tuple[str | bytes, dict[str, str], dict[str, Any], str]] = [
        ("t,minuets\n1,2\n", {"delay": "minutes"}, {}, "'minutes': did you mean 'minuets'"),
        ("t,v\n1,2\n1,2,3\n", {"delay": "v"}, {}, "row 2: 3 cells, expected 2"),
        ("t,v\n1,2\n1,two\n", {"delay": "v"}, {}, "column 'v', row 2: 'two': expected a finite"),
        ("t,v\n1,AAA\n", {"carrier": "v"}, {}, "row 1: category 'AAA' is not one of 'carrier'"),
        ("t,v\nsoon,1\n", {"delay": "v"}, {}, "row 1: 'soon' is no event time: expected ISO"),
        ("t,v\n31 Jan 2013 10:00:00 CEST,1\n", {"delay": "v"}, {}, "CEST' is no event time"),
        ("t,v\n1,1\n", {"delay": "v"}, {"time": ()}, "expected one of the two"),
        (b"t,v\n1,\xff\x81\n", {"delay": "v"}, {}, "neither UTF-8, nor UTF-16, nor Windows-1252"),
        (two, {"delay": "v"}, {}, "fit '%d/%m/%Y' and '%m/%d/%Y': choose one"),
        ("v,t,v\n1,2,3\n", {"delay": "v"}, {}, "'v' 2 times: 'v' at position 1 and 'v' at posi"),
    ]
    for text, columns, options, said in cases:
        with row(said), pytest.raises(ValueError, match=said):
            read(path, text, columns, **{"time": "t", **options})
    for text, column in (
        ("v,w,v\n1,5,3\n", "w"),
        ("t; DELAY \n1;5\n", "delay"),
        ("V,v\n1,5\n", "v"),
    ):
        assert read(path, text, {"delay": column}).columns["delay"].tolist() == [5]


def test_encoding_and_delimiter_are_detected(path: Path) -> None:
    rows = [["when", "Größe"], ["1", "Zürich, HB; gare|x"], [], ["2", "AA"]]
    encodings = ("utf-8", "utf-8-sig", "utf-16", "cp1252")
    for encoding, delimiter in itertools.product(encodings, ",;\t|"):
        with path.open("w", encoding=encoding, newline="") as text:
            csv.writer(text, delimiter=delimiter).writerows(rows)
        with row(encoding, delimiter):
            population = read_population(path, METRICS, {"words": "Größe"}, time="when")
            assert population.columns["words"].tolist() == ["Zürich, HB; gare|x", "AA"]
            found = detect_format(path, ["Größe", "when"])
            assert found.delimiter == delimiter
            assert found.encoding == {"utf-8": "utf-8-sig"}.get(encoding, encoding)


NINE = "2013-01-31T09:00:00"


def test_times_are_read_in_the_format_and_zone_that_they_are_written_in(path: Path) -> None:
    for cells, options, first in (
        (["2013-01-31T10:00:00+01:00", "2013-01-31 09:00"], {}, NINE),
        (["1359622800000", "1359622800000"], {}, NINE),
        (["31/01/2013 09:00", "01/02/2013 10:00"], {}, NINE),
        (["1/31/2013 9:00 AM", "2/1/2013 9:00 PM"], {}, NINE),
        (["31.01.2013", "01.02.2013"], {}, "2013-01-31T00:00:00"),
        (["Thu 31 Jan 2013 10:00:00 +0100", "NA"], {"time_format": "%a %d %b %Y %X %z"}, NINE),
        (['"Thu, 31 Jan 2013 10:00:00 +0100"', "NA"], {}, NINE),
        (
            ["31 Jan 2013 10:00:00 +0100 (CET)", "1 Feb 2013 04:00:01"],
            {"time_zone": "Asia/Tokyo"},
            NINE,
        ),
        (["31.01.2013 09:00", "NA"], {"time_zone": "Europe/Berlin"}, "2013-01-31T08:00:00"),
        (["02/01/2013", "03/01/2013"], {"time_format": "%m/%d/%Y"}, "2013-02-01T00:00:00"),
    ):
        text = "t,v\n" + "".join(f"{cell},1\n" for cell in cells)
        with row(cells):
            population = read(path, text, {"delay": "v"}, time="t", **options)
            assert population.time_ms[0] == np.datetime64(first, "ms").astype(np.int64)
            if "Thu, " in text:
                assert "times: RFC 2822, as in Thu, 31 Jan" in population.notes[-1]


def test_simulated_values_follow_their_distribution() -> None:
    for distribution, mean, deviation in (
        ("uniform", 60.0, 240 / np.sqrt(12)),
        ("normal:17,5", 17.0, 5.0),
        ("normal", 60.0, 40.0),
        ("bernoulli:0.25", 0.0, 240 * np.sqrt(3) / 4),
    ):
        values = simulate(DELAY, 40_000, distribution, Arrivals(1), seed=3).columns["delay"]
        with row(distribution):
            assert -60 <= values.min() < values.max() <= 180
            assert abs(values.mean() - mean) < 5 * deviation / np.sqrt(40_000)
            assert abs(values.std() - deviation) < 0.03 * deviation
    drawn = simulate(CARRIER, 40_000, "zipf:1", Arrivals(1), seed=3).columns["carrier"]
    weights = 1 / np.arange(1.0, 10.0)
    found, expected = np.bincount(drawn, minlength=9) / 40_000, weights / weights.sum()
    assert (np.abs(found - expected) < 5 * np.sqrt(expected / 40_000)).all()


def test_a_distribution_that_is_none_is_explained() -> None:
    for metric, distribution, said in (
        (LATE, "gauss", "distribution 'gauss' for kind 'mean'"),
        (LATE, "normal:1", "'normal:1': expected normal:MEAN,DEVIATION"),
        (LATE, "normal:1,-2", "deviation -2.0"),
        (LATE, "normal:nan,1", "expected normal:MEAN,DEVIATION"),
        (LATE, "bernoulli:2", "probability 2.0"),
        (CARRIER, "zipf:-1", "exponent -1.0"),
    ):
        with row(distribution), pytest.raises(ValueError, match=said):
            simulate(metric, 10, distribution, Arrivals(1))
