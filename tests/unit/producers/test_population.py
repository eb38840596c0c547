"""Populations from CSV files and from distributions."""

from __future__ import annotations

import csv
import dataclasses
import zipfile
from pathlib import Path

import numpy as np
import pytest

from estimators import define
from estimators.metrics.categories import Vocabulary
from producers.populations.csv_files import detect_format
from producers.populations.population import Arrivals, Population
from producers.populations.simulated import simulate
from producers.populations.tables import read_population
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
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


@pytest.mark.parametrize("time", [["day", "clock"], "stamp"])
def test_rows_come_in_order_of_event_time_and_what_is_missing_is_counted(
    table: Path, time: str | list[str]
) -> None:
    population = read_population(table, METRICS, COLUMNS, time=time)
    half = 500 if time == "stamp" else 0
    assert (population.time_ms - 1_357_030_800_000).tolist() == [
        half,
        3_600_000,
        3_600_000,
        54_001_000,
    ]
    assert str(population.columns["delay"].tolist()) == "[nan, 11.0, nan, -3.5]"
    assert population.columns["carrier"].tolist() == [1, 0, -1, -1]
    assert (population.count_missing("delay"), population.count_missing("carrier")) == (2, 2)
    assert population.skipped == 1
    assert population.seconds == (54_001_000 - half) / 1000


def test_a_zip_with_one_table_is_read_like_the_table(table: Path, tmp_path: Path) -> None:
    packed = tmp_path / "table.csv.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(table, "folder/table.csv")
        archive.writestr("README", "nothing")
    plain, zipped = (read_population(p, METRICS, COLUMNS, time="stamp") for p in (table, packed))
    assert np.array_equal(plain.time_ms, zipped.time_ms)
    assert np.array_equal(plain.columns["carrier"], zipped.columns["carrier"])

    with zipfile.ZipFile(packed, "a") as archive:
        archive.write(table, "second.csv")
    with pytest.raises(ValueError, match="expected one CSV file in the zip, found"):
        read_population(packed, METRICS, COLUMNS, time="stamp")


def test_a_table_without_times_gets_evenly_spaced_ones(table: Path) -> None:
    arrivals = Arrivals(start_ms=1000, per_second=2)
    population = read_population(table, METRICS, COLUMNS, arrivals=arrivals)
    assert population.time_ms.tolist() == [1000, 1500, 2000, 2500, 3000]


def test_strings_and_vectors_come_from_a_table_too(table: Path) -> None:
    columns = {"words": "line", "place": ("minutes", "stamp")}
    population = read_population(table, METRICS, columns, time=["day", "clock"])
    assert population.columns["words"].tolist() == ["B6", "AA", "", ""]
    assert population.columns["place"][:2, 1].tolist() == [1357030800.5, 1357034400]
    assert population.has_value("words").tolist() == [True, True, False, False]
    assert population.has_value("place").tolist() == [False, True, False, True]
    assert population.part(1, 3).columns["place"].shape == (2, 2)
    with pytest.raises(ValueError, match="1 columns for 'place': expected 2, one for each coord"):
        read_population(table, METRICS, {"place": "minutes"}, time="stamp")


def test_a_word_that_tables_use_for_nothing_counts_if_it_is_on_watch(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("v\n NA \nnan\nsun\n", encoding="utf-8")
    domain = Vocabulary(categories="open", watch=["NA"])
    metrics = {"words": dataclasses.replace(WORDS, domain=domain)}
    population = read_population(path, metrics, {"words": "v"}, arrivals=Arrivals(1))
    assert population.columns["words"].tolist() == ["NA", "", "sun"]


def test_a_byte_order_mark_blank_lines_and_quotes_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('\ufeffline,note\r\nAA,"a, b"\r\n\r\nB6,"c"\r\n', encoding="utf-8")
    population = read_population(path, METRICS, {"carrier": "line"}, arrivals=Arrivals(1))
    assert population.columns["carrier"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "columns", "time", "said"),
    [
        ("t,minuets\n1,2\n", {"delay": "minutes"}, "t", "'minutes': did you mean 'minuets'"),
        ("", {"delay": "minutes"}, "t", "no column 'minutes': there are none"),
        ("t,v\n1,2\n1,2,3\n", {"delay": "v"}, "t", "row 2: 3 cells, expected 2"),
        ("t,v\n1,2\n1,two\n", {"delay": "v"}, "t", "column 'v', row 2: 'two': expected a finite"),
        ("t,v\n1,inf\n", {"delay": "v"}, "t", "column 'v', row 1: 'inf': expected a finite"),
        (
            "t,v\n1,AAA\n",
            {"carrier": "v"},
            "t",
            "row 1: category 'AAA' is not one of 'carrier'",
        ),
        ("t,v\nsoon,1\n", {"delay": "v"}, "t", "row 1: 'soon' is no event time: expected ISO"),
        ("t,v\n-5,1\n", {"delay": "v"}, "t", "'-5' is no event time"),
        ("t,v\n1,1\n", {"delay": "v"}, (), "expected one of the two"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    tmp_path: Path, text: str, columns: dict[str, str], time: str, said: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        read_population(path, METRICS, columns, time=time)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"t,v\n1,\xff\x81\n")
    with pytest.raises(ValueError, match="neither UTF-8, nor UTF-16, nor Windows-1252"):
        read_population(path, METRICS, {"delay": "v"}, time="t")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_encoding_and_delimiter_are_detected(tmp_path: Path, encoding: str, delimiter: str) -> None:
    path = tmp_path / "t.csv"
    rows = [["when", "Größe"], ["1", "Zürich, HB; gare|x"], ["2", "AA"]]
    with path.open("w", encoding=encoding, newline="") as text:
        csv.writer(text, delimiter=delimiter).writerows(rows)
    columns = {"words": "Größe"}
    population = read_population(path, METRICS, columns, time="when")
    assert population.columns["words"].tolist() == ["Zürich, HB; gare|x", "AA"]
    found = detect_format(path, ["Größe", "when"])
    assert found.delimiter == delimiter
    assert found.encoding == {"utf-8": "utf-8-sig"}.get(encoding, encoding)


NINE = "2013-01-31T09:00:00"


@pytest.mark.parametrize(
    ("cells", "options", "first"),
    [
        (["2013-01-31T10:00:00+01:00", "2013-01-31 09:00"], {}, "2013-01-31T09:00:00"),
        (["1359622800000", "1359622800000"], {}, "2013-01-31T09:00:00"),
        (["31/01/2013 09:00", "01/02/2013 10:00"], {}, "2013-01-31T09:00:00"),
        (["1/31/2013 9:00 AM", "2/1/2013 9:00 PM"], {}, "2013-01-31T09:00:00"),
        (["31.01.2013", "01.02.2013"], {}, "2013-01-31T00:00:00"),
        (["Thu 31 Jan 2013 10:00:00 +0100", "NA"], {"time_format": "%a %d %b %Y %X %z"}, NINE),
        (["31 Jan 2013 04:00 EST", "1 Feb 2013 04:00:01 GMT"], {}, NINE),
        (
            ["31 Jan 2013 10:00:00 +0100 (CET)", "1 Feb 2013 04:00:01"],
            {"time_zone": "Asia/Tokyo"},
            "2013-01-31T09:00:00",
        ),
        (
            ["31.01.2013 09:00", "NA"],
            {"time_zone": "Europe/Berlin"},
            "2013-01-31T08:00:00",
        ),
        (["02/01/2013", "03/01/2013"], {"time_format": "%m/%d/%Y"}, "2013-02-01T00:00:00"),
    ],
)
def test_times_are_read_in_the_format_and_zone_that_they_are_written_in(
    tmp_path: Path, cells: list[str], options: dict[str, str], first: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t,v\n" + "".join(f"{cell},1\n" for cell in cells), encoding="utf-8")
    population = read_population(path, METRICS, {"delay": "v"}, time="t", **options)  # type: ignore[arg-type]
    assert population.time_ms[0] == np.datetime64(first, "ms").astype(np.int64)


def test_a_date_of_mail_in_a_zone_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('t,v\n"31 Jan 2013 10:00:00 CEST",1\n', encoding="utf-8")
    with pytest.raises(ValueError, match="CEST' is no event time: expected ISO 8601"):
        read_population(path, METRICS, {"delay": "v"}, time="t")


def test_a_date_of_mail_is_read_with_its_day_of_the_week(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('t,v\n"Thu, 31 Jan 2013 10:00:00 +0100",1\n', encoding="utf-8")
    population = read_population(path, METRICS, {"delay": "v"}, time="t")
    assert population.time_ms[0] == np.datetime64(NINE, "ms").astype(np.int64)
    assert "times: RFC 2822, as in Thu, 31 Jan" in population.notes[-1]


def test_a_column_is_found_whose_name_differs_in_case_and_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("When; DELAY ;other\n1;5;x\n", encoding="utf-8")
    population = read_population(path, METRICS, {"delay": "delay"}, time="when")
    assert population.columns["delay"].tolist() == [5]
    assert list(population.notes) == [
        "file: UTF-8, separated by semicolons",
        "column: ' DELAY ' for 'delay'",
        "column: 'When' for 'when'",
        "times: ISO 8601 or seconds since the epoch; times without a zone are in UTC",
    ]
    path.write_text("Delay,delay\n1,5\n", encoding="utf-8")
    population = read_population(path, METRICS, {"delay": "delay"}, arrivals=Arrivals(1))
    assert population.columns["delay"].tolist() == [5], "the one that is written so"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("v,w,v", "'v' 2 times: 'v' at position 1 and 'v' at position 3: expected one; rename"),
        ("V,v ,w", "'v' 2 times: 'V' at position 1 and 'v ' at position 2"),
    ],
)
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, header: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n1,2,3\n", encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        read_population(path, METRICS, {"delay": "v"}, arrivals=Arrivals(1))
    population = read_population(path, METRICS, {"delay": "w"}, arrivals=Arrivals(1))
    assert population.columns["delay"].size == 1, "of another column it does not matter"


def test_values_out_of_a_metrics_domain_are_counted() -> None:
    metrics = {
        "far": define(
            name="far",
            kind="vector_mean",
            mechanism="hemisphere",
            levels=[1],
            dimension=2,
            radius=5,
        ),
        "late": define(name="late", kind="mean", mechanism="laplace", levels=[1], range=(0, 9)),
    }
    vectors = np.array([[3.0, 4.0], [3.0, 4.1], [np.nan, 9.0], [0.0, 0.0]])
    numbers = np.array([-0.1, 9.1, np.nan, 9.0])
    population = Population(np.arange(4), {"far": vectors, "late": numbers})
    assert [population.count_clipped(metric) for metric in metrics.values()] == [1, 2]


def test_a_time_that_may_be_two_things_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t,v\n02/01/2013,1\n03/01/2013,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"fit '%d/%m/%Y' and '%m/%d/%Y': choose one"):
        read_population(path, METRICS, {"delay": "v"}, time="t")
    with pytest.raises(ValueError, match="time zone 'Berlin': expected an IANA name"):
        read_population(path, METRICS, {"delay": "v"}, time="t", time_zone="Berlin")


def test_a_cell_can_be_said_to_mean_no_value(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("v,line\n1,AA\n12 ms,-\n3,B6\n", encoding="utf-8")
    population = read_population(
        path,
        METRICS,
        {"delay": "v", "carrier": "line"},
        arrivals=Arrivals(1),
        missing=["12 ms", "-"],
    )
    assert str(population.columns["delay"].tolist()) == "[1.0, nan, 3.0]"
    assert population.columns["carrier"].tolist() == [0, -1, 1]


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_population(tmp_path / "none.csv", METRICS, COLUMNS, time="stamp")


def test_columns_must_belong_together_and_times_ascend() -> None:
    with pytest.raises(ValueError, match="expected the same length"):
        Population(np.array([1, 2]), {"x": np.array([1.0])})
    with pytest.raises(ValueError, match="not ascending"):
        Population(np.array([2, 1]), {})


def test_chunks_are_the_population_in_pieces_and_starting_moves_it() -> None:
    population = Population(np.arange(5) + 1, {"x": np.arange(5.0)})
    assert [chunk.columns["x"].tolist() for chunk in population.chunks(2)] == [[0, 1], [2, 3], [4]]
    assert population.starting(100).time_ms.tolist() == [100, 101, 102, 103, 104]


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        ("uniform", 60.0, 240 / np.sqrt(12)),
        ("normal:17,5", 17.0, 5.0),
        ("normal", 60.0, 40.0),
        ("bernoulli:0.25", 0.0, 240 * np.sqrt(3) / 4),
    ],
)
def test_simulated_means_follow_their_distribution(
    distribution: str, mean: float, deviation: float
) -> None:
    values = simulate(DELAY, 40_000, distribution, Arrivals(1), seed=3).columns["delay"]
    assert values.min() >= -60
    assert values.max() <= 180
    assert abs(values.mean() - mean) < 5 * deviation / np.sqrt(40_000)
    assert abs(values.std() - deviation) < 0.03 * deviation


def test_simulated_categories_follow_their_distribution() -> None:
    for distribution, weights in (("uniform", np.ones(9)), ("zipf:1", 1 / np.arange(1.0, 10.0))):
        drawn = simulate(CARRIER, 40_000, distribution, Arrivals(1), seed=3).columns["carrier"]
        found, expected = np.bincount(drawn, minlength=9) / 40_000, weights / weights.sum()
        assert (np.abs(found - expected) < 5 * np.sqrt(expected / 40_000)).all()


def test_simulated_strings_begin_with_those_on_watch() -> None:
    drawn = simulate(WORDS, 40_000, "zipf:1", Arrivals(1), seed=3).columns["words"]
    harmonic = (1 / np.arange(1.0, 1001.0)).sum()
    for rank, text in enumerate(("sun", "snow", "word 1"), 1):
        expected = 1 / rank / harmonic
        assert abs((drawn == text).mean() - expected) < 5 * np.sqrt(expected / 40_000)
    assert set(drawn) <= {"sun", "snow", *(f"word {i}" for i in range(1, 999))}


@pytest.mark.parametrize(
    ("distribution", "said"),
    [
        ("gauss", "distribution 'gauss' for kind 'mean'"),
        ("normal:1", "'normal:1': expected normal:MEAN,DEVIATION"),
        ("normal:1,x", "expected normal:MEAN,DEVIATION"),
        ("normal:1,-2", "deviation -2.0"),
        ("normal:nan,1", "expected normal:MEAN,DEVIATION"),
        ("bernoulli:2", "probability 2.0"),
        ("zipf:1", "distribution 'zipf' for kind 'mean'"),
    ],
)
def test_a_distribution_that_is_none_is_explained(distribution: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(LATE, 10, distribution, Arrivals(1))


def test_a_zipf_exponent_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"exponent -1.0"):
        simulate(CARRIER, 10, "zipf:-1", Arrivals(1))
