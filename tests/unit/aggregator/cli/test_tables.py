"""Commands that answer print tables as CSV and write them as Parquet: those of the reader."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aggregator import Reader
from aggregator.cli.main import cli
from aggregator.errors import DitherError
from tests.support.reports.counted import Counting

START, END = "2013-01-01", "2013-01-01T01:00"
SLICED = """
attributes = {country = ["DE", "FR"]}
[metrics]
late = {kind = "mean", mechanism = "windows", range = [0, 1], levels = [4], by = ["country"]}
"""


@pytest.fixture
def reader(
    counting: Counting, redis_url: str, metrics_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Reader:
    """Return a reader of the deployment that the commands find in the present folder."""
    delays = [counting.batch("delay", [minute] * 20, minute) for minute in range(10)]
    counting.count(0, *delays, counting.batch("carrier", [0] * 60 + [1] * 30, 1, 8))
    monkeypatch.chdir(metrics_file.parent)
    Path("dither.toml").write_text(
        f'[redis]\nurl = "{redis_url}"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    )
    return Reader()


def run(*words: str, code: int = 0) -> Result:
    found = CliRunner().invoke(cli, words)
    assert found.exit_code == code, found.output
    return found


def test_an_estimate_as_csv_is_the_table_of_the_reader(reader: Reader) -> None:
    printed = run("estimate", "carrier", "--from", START, "--to", END, "--csv")
    assert printed.stdout == reader.estimate("carrier", START, END).to_frame().to_csv()
    assert "waiting" in printed.stderr
    two = run("estimate", "carrier", "--top", "2", "--csv").stdout
    assert two == reader.estimate("carrier").top(2).to_frame().to_csv()  # type: ignore[attr-defined]


def test_a_table_can_be_written_as_parquet(reader: Reader) -> None:
    import polars as pl

    window = ("--from", START, "--to", END)
    run("estimate", "carrier", *window, "--parquet", "answer.parquet")
    expected = pl.DataFrame(reader.estimate("carrier", START, END).to_frame())
    assert pl.read_parquet("answer.parquet").equals(expected)
    piped = run("estimate", "carrier", *window, "--parquet", "-").stdout_bytes
    assert piped == Path("answer.parquet").read_bytes()
    run("metrics", "--parquet", "metrics.parquet")
    listed = {row["metric"]: row for row in json.loads(run("metrics", "--json").stdout)}
    found = pl.read_parquet("metrics.parquet")
    assert found["metric"].to_list() == [*listed]
    assert found["reports"].to_list() == [row["reports"] for row in listed.values()]
    delay = found.row(by_predicate=pl.col("metric") == "delay", named=True)
    assert (delay["reports"], delay["unit"], delay["refused"]) == (200, "minutes", 0)
    assert delay["event_time"].isoformat() == listed["delay"]["event_time"].replace("Z", "+00:00")


def test_slices_and_comparisons_are_tables(
    redis_url: str, metrics_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics_file.write_text(SLICED)
    monkeypatch.chdir(metrics_file.parent)
    monkeypatch.setenv("DITHER_REDIS_URL", redis_url)
    counted = run("slices", "late", "--csv").stdout
    assert counted == "metric,window_start,window_end,by_country,reports,coverage\n"
    by = run("estimate", "late", "--by", "country", "--csv").stdout
    assert by.startswith("metric,kind,unit,window_start,window_end,by_country,label,value,")
    head, row = run("compare", "late", "--where", "country=DE", "--csv").stdout.splitlines()
    assert head.startswith("comparison,of,unit,label,value,lower,upper,p_value,decided,a_metric")
    assert row.startswith(",difference,,,,,,,,late,country=DE,")
    assert run("compare", "late", "--by", "country", "--csv").stdout == f"{head}\n"
    assert run("comparisons", "--csv").stdout == f"{head}\n"


def test_one_form_is_printed_at_a_time(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    told = run("estimate", "delay", "--json", "--csv", code=2).stderr
    assert "--json, --csv, --parquet: expected one of them" in told
    told = run("estimate", "carrier", "--simplex", "--csv", code=2).stderr
    assert "--simplex, --below: not with --csv or --parquet" in told
    found = CliRunner().invoke(cli, ["estimate", "delay", "--parquet", "missing/answer.parquet"])
    assert isinstance(found.exception, FileNotFoundError)
    assert found.exception.filename == "missing/answer.parquet"
    monkeypatch.setitem(sys.modules, "arro3.io", None)
    found = CliRunner().invoke(cli, ["estimate", "delay", "--parquet", "answer.parquet"])
    assert isinstance(found.exception, DitherError)
    assert "pip install 'dither[tables]'" in str(found.exception)


def test_bounds_of_a_comparison_hold_for_all_categories_unless_pointwise(
    counting: Counting, reader: Reader
) -> None:
    counting.count(0, *(counting.batch("carrier", [0] * 300, minute, 9) for minute in (2, 6)))
    arms = ("--from", START, "--to", "2013-01-01T00:05", "--against-from", "2013-01-01T00:05")
    command = ("compare", "carrier", *arms, "--against-to", END, "--json")
    together, alone = (
        json.loads(run(*command, *options).stdout)["comparisons"][0]
        for options in ((), ("--pointwise",))
    )
    assert together["lower"][0] < alone["lower"][0] < alone["upper"][0] < together["upper"][0]
