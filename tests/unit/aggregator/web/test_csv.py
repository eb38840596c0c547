"""Over HTTP an answer is also a table in CSV: that of the reader."""

from __future__ import annotations

import httpx
import pytest

from aggregator import Reader
from tests.support.reports.counted import Client, Counting

WINDOW = {"from": "2013-01-01", "to": "2013-01-01T01:00Z"}


@pytest.fixture
def reader(counting: Counting) -> Reader:
    delays = [counting.batch("delay", [minute] * 20, minute) for minute in range(10)]
    counting.count(0, *delays, counting.batch("page", ["=1+1"] * 90, 1, 8))
    return Reader(counting.store, counting.metrics)


def table(client: Client, path: str, **params: str) -> httpx.Response:
    found = client.get(path, params={"format": "csv", **params})
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "text/csv; charset=utf-8"
    assert found.headers["x-content-type-options"] == "nosniff"
    return found


def test_an_estimate_and_a_series_are_tables_on_request(client: Client, reader: Reader) -> None:
    found = table(client, "/v1/metrics/delay/estimate", **WINDOW)
    assert found.text == reader.estimate("delay", *WINDOW.values()).to_frame().to_csv()
    assert found.headers["content-disposition"] == 'attachment; filename="delay-estimate.csv"'
    assert "value" in client.json("/v1/metrics/delay/estimate", format="json", **WINDOW)

    found = table(client, "/v1/metrics/delay/series", step="5m", **WINDOW)
    expected = reader.series("delay", *WINDOW.values(), step="5m").to_frame()
    assert found.text == expected.to_csv()
    assert found.headers["content-disposition"] == 'attachment; filename="delay-series.csv"'


def test_a_strangers_string_is_no_formula_in_a_spreadsheet(client: Client, reader: Reader) -> None:
    found = table(client, "/v1/metrics/page/estimate", category="=1+1")
    assert found.text.splitlines()[1].startswith("page,frequency,,,,'=1+1,")


def test_what_went_wrong_is_a_problem_and_no_table(client: Client, reader: Reader) -> None:
    found = client.problem(400, "/v1/metrics/delay/estimate?format=csv&window=x")
    assert "window" in found["detail"]
    found = client.problem(400, "/v1/metrics/delay/estimate?format=parquet")
    assert "csv" in found["detail"]
    found = client.problem(400, "/v1/metrics/delay/series?bins=32")
    assert "expected them for a distribution alone" in found["detail"]
    client.problem(404, "/v1/metrics/nothing/series?format=csv")
