"""Answers tell which reports they leave out: refused ones, and those of other definitions."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import estimators
from aggregator.cli.main import cli
from estimators import Metric, SearchMetric, load_metrics
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.counted import Counting, connected
from tests.support.reports.messages import ARRIVAL, batch

METRICS = """
[metrics.delay]
kind = "mean"
mechanism = "randomized_response"
range = [0, 10]
levels = [1]
"""
RANDOMIZED = 'mechanism = "randomized_response"'
SEARCH = METRICS.replace('"mean"', '"maximum"').replace(RANDOMIZED, "rounds = 3")
TRUSTED = METRICS.replace(RANDOMIZED, 'trust = "central"')


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def define(text: str) -> Metric:
    """Write the metrics file; return its metric."""
    Path("metrics.toml").write_text(text)
    return load_metrics("metrics.toml")["delay"]


def count(redis_url: str, metric: Metric, *batches: ReportBatch) -> None:
    """Count batches into the store, after those that are there."""
    with connected(redis_url) as store:
        Counting(store, {"delay": metric}).count(0, *batches)


def run(redis_url: str, *arguments: str) -> Result:
    nowhere = ("--kafka", "127.0.0.1:1", "--redis", redis_url)
    result = CliRunner().invoke(cli, [*arguments, *nowhere])
    assert result.exit_code == 0, result.output
    return result


def test_refused_reports_are_told_with_their_reasons_and_where_to_look(redis_url: str) -> None:
    metric = define(METRICS)
    empty = run(redis_url, "metrics", "--json")
    assert (json.loads(empty.stdout)[0]["reports"], "nothing of topic" in empty.stderr) == (None, 1)
    fine = batch(metric, [1, 2, 3], seed=1)
    ahead = batch(metric, [1] * 20, time_ms=ARRIVAL + 3_600_000, seed=2)
    foreign = batch(metric, [4], seed=3, metric="delays")
    count(redis_url, metric, fine, ahead, foreign, batch(metric, [4] * 5, seed=4, revision=7))
    line = (
        "refused    25 reports of delay (20 future, 5 wrong_revision): "
        "`dither deadletters list --metric delay`"
    )
    unknown = "name a metric that the workers' definitions do not have (1 unknown_metric)"
    assert line in run(redis_url, "estimate", "delay").stdout
    told = run(redis_url, "estimate", "delay", "--json")
    assert json.loads(told.stdout)["reports"] == 3
    assert line in told.stderr
    listed = run(redis_url, "metrics").stdout
    assert line in listed
    assert unknown in listed
    head, row = listed.splitlines()[:2]
    assert row[head.index("refused") :].split()[0] == "25"
    told = run(redis_url, "metrics", "--json")
    assert json.loads(told.stdout)[0]["refused"] == {"future": 20, "wrong_revision": 5}
    assert unknown in told.stderr


def answers(metric: Metric, values: list[int], seed: int) -> ReportBatch:
    """Return a batch with answers to the metric, or to its first round."""
    if not isinstance(metric, SearchMetric):
        return batch(metric, values, seed=seed)
    bits = estimators.define(
        name="delay", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[1]
    )
    return batch(bits, values, seed=seed, revision=metric.revision, round=1)


@pytest.mark.parametrize(
    ("old", "new"),
    [(METRICS, METRICS.replace("10]", "20]")), (TRUSTED, METRICS), (METRICS, SEARCH)],
    ids=["another range", "trusted before", "searched from now on"],
)
def test_reports_of_another_definition_are_told_apart(redis_url: str, old: str, new: str) -> None:
    before = define(old)
    count(redis_url, before, answers(before, [0, 1], seed=1))
    assert "earlier" not in run(redis_url, "estimate", "delay").stdout
    now = define(new)
    line = (
        "earlier    2 reports were counted under another definition of delay: they stay in Redis "
        "and are not part of this answer"
    )
    count(redis_url, now, answers(now, [0, 1, 1], seed=2))
    assert line in run(redis_url, "estimate", "delay").stdout
    assert line in run(redis_url, "estimate", "delay", "--json").stderr
    assert line in run(redis_url, "metrics").stdout
    (row,) = json.loads(run(redis_url, "metrics", "--json").stdout)
    assert row["earlier"] == 2
