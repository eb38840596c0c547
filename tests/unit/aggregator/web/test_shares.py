"""A share of users among some is asked by name: of a window, a series, slices and a comparison."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from aggregator.config.settings import Access, Settings
from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.publishing import events
from aggregator.reading.query import Query
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.store import Store
from estimators import load_metrics
from estimators.rounding import down, up
from producers.wire.reports_pb2 import Attribute
from tests.support.reports.counted import Client, Counting
from tests.support.reports.messages import DAY, EPOCH, batch

PATH = "/v1/metrics/checkout"
SHARE = "paid / visit.."
DEFINITIONS = """
[attributes]
version = ["old", "new"]

[metrics]
checkout = {kind = "frequency", mechanism = "grr", \
categories = ["none", "visit", "cart", "paid"], levels = [4], by = ["version"]}
funnel = {kind = "frequency", mechanism = "grr", categories = ["none", "visit", "cart", "paid"], \
shares = ["cart../visit..", "paid / visit..", "cart/cart+paid"], levels = [4], pane = "1d"}
plain = {kind = "frequency", mechanism = "grr", categories = ["none", "visit", "cart", "paid"], \
levels = [4], pane = "1d"}
"""
SHARES = ["cart.. / visit..", SHARE, "cart / cart + paid"]


class Served:
    """Metrics of a file, and who asks for their answers: over HTTP, and by the command line."""

    def __init__(self, store: Store, file: Path, definitions: str) -> None:
        file.write_text(definitions)
        self.metrics = load_metrics(file)
        self.count = Counting(store, self.metrics).count
        access = Access(anonymous=["read", "report", "admin"])
        self.client = Client(store, self.metrics, Settings(access=access))
        socket = store.client.connection_pool.connection_kwargs["path"]
        self.options = ["--metrics", str(file), "--kafka", "127.0.0.1:9"]
        self.options += ["--redis", f"unix://{socket}"]

    def estimate(self, *words: str) -> str:
        """Return what `dither estimate` prints."""
        return CliRunner().invoke(cli, ["estimate", *words, *self.options]).stdout


def test_a_share_is_answered_by_every_interface(store: Store, tmp_path: Path) -> None:
    served = Served(store, tmp_path / "metrics.toml", DEFINITIONS)
    metrics, client = served.metrics, served.client
    slices = [
        batch(
            metrics["checkout"],
            answers * 60,
            4.0,
            EPOCH,
            seed,
            attributes=[Attribute(name="version", value=version)],
        )
        for seed, (version, answers) in enumerate(
            {"old": [0, 1, 1, 1, 3], "new": [0, 1, 3, 3, 3]}.items(), start=1
        )
    ]
    served.count(0, *slices)
    answer = client.json(f"{PATH}/estimate", category="paid/visit..")
    assert answer["categories"] == [SHARE]
    assert answer["lower"][0] < 0.5 < answer["upper"][0]
    assert answer["influence"]["shift"] > 0
    assert json.loads(served.estimate("checkout", "--json", "--category", SHARE)) == answer
    assert f"{SHARE} " in served.estimate("checkout", "--category", SHARE)
    (point,) = client.json(f"{PATH}/series", category=SHARE, step="1h")["points"]
    assert point["value"] == answer["value"]
    assert client.json(f"{PATH}/estimate")["categories"] == ["none", "visit", "cart", "paid"]
    by = client.json(f"{PATH}/estimate", category=SHARE, by="version")["slices"]
    old, new = sorted(x["value"][0] for x in by)
    assert old < 0.4 < 0.6 < new
    window = {"where": "version=new", "against": "version=old"}
    (change,) = client.json("/v1/compare", metric="checkout", category=SHARE, **window)[
        "comparisons"
    ]
    assert (change["law"], change["categories"]) == ("union", [SHARE])
    assert change["lower"][0] < new - old < change["upper"][0]
    assert (
        "expected NAME.." in client.problem(400, f"{PATH}/estimate?category=paid/>=visit")["detail"]
    )
    unproved = f"category={SHARE}&step=1h&weights=uniform"
    for query in (unproved, f"{unproved}&by=version"):
        assert "expected other weights" in client.problem(400, f"{PATH}/series?{query}")["detail"]


def test_shares_of_a_definition_are_beside_the_categories(store: Store, tmp_path: Path) -> None:
    """By every interface, as if they were asked for by name: no category's bounds change."""
    served = Served(store, tmp_path / "metrics.toml", DEFINITIONS)
    metrics, client, answers = served.metrics, served.client, [0, 1, 1, 1, 3] * 60
    served.count(0, *(batch(metrics[name], answers, 4.0, EPOCH, 1) for name in metrics))
    answer = client.json("/v1/metrics/funnel/estimate")
    shares = answer.pop("shares_among")
    assert shares["shares"] == SHARES
    by_name = client.json("/v1/metrics/funnel/estimate", category=SHARES)
    assert "shares_among" not in by_name
    for key in ("value", "lower", "upper", "unbiased"):
        assert shares[key] == by_name[key]
    assert {**answer, "metric": "plain"} == client.json("/v1/metrics/plain/estimate")
    assert client.json("/v1/metrics/funnel")["shares"] == SHARES
    assert metrics["funnel"].revision == metrics["plain"].revision

    reader = Reader(store, metrics)
    estimate = reader.estimate("funnel")
    assert estimate.to_frame()["label"] == ["none", "visit", "cart", "paid"]
    assert estimate.shares is not None
    frame = estimate.shares.to_frame()
    assert (frame["label"], frame["lower"]) == (SHARES, shares["lower"])
    pane = reader.window("funnel", Query(start=EPOCH / 1000, end=EPOCH / 1000 + 1))
    event = json.loads(events.final_event(pane, Reader.answer(pane), 1, "/").data)
    assert event["shares_among"]["shares"] == SHARES
    assert event["categories"] == ["visit"]
    scraped = {
        (sample.name, sample.labels["share"]): sample.value
        for family in Exporter(reader, 1).collect()
        for sample in family.samples
        if sample.labels.get("metric") == "funnel" and "share" in sample.labels
    }
    assert scraped["dither_share_among_lower", SHARE] == shares["lower"][1]
    printed = served.estimate("funnel")
    assert "share among" in printed
    assert f"{SHARE} " in printed
    assert "shares_among" not in client.json("/v1/metrics/funnel/estimate", weights="uniform")
    assert "no shares among: --category" in served.estimate("funnel", "--weights", "uniform")


def test_shares_of_a_definition_have_a_change_and_its_error(store: Store, tmp_path: Path) -> None:
    served = Served(store, tmp_path / "metrics.toml", DEFINITIONS)
    funnel = served.metrics["funnel"]
    days = [(0, [1, 1, 1, 3] * 150), (1, [1, 3, 3, 3] * 150), *[(2.5, [0])] * CONFIRMING_BATCHES]
    reported = enumerate(days, start=1)
    served.count(
        0, *(batch(funnel, x, 4.0, EPOCH + int(day * DAY), seed) for seed, (day, x) in reported)
    )
    change, of_shares = served.client.json("/v1/metrics/funnel/change", period="24h")["comparisons"]
    assert (change["categories"], of_shares["categories"]) == ([*funnel.labels], SHARES)
    assert change["covers"] == of_shares["covers"] == "20 windows", "of 3 metrics, and of shares"
    at = SHARES.index(SHARE)
    assert 0.1 < of_shares["lower"][at] < 0.5 < of_shares["upper"][at] < 0.9
    assert of_shares["p_value"][at] < 0.05


AXES = """
[metrics]
crash = {kind = "frequency", mechanism = "grr", \
categories = { used_x = ["no", "yes"], crashed = ["no", "yes"] }, levels = [4]}
"""


def test_a_two_way_table_is_answered_by_every_interface(store: Store, tmp_path: Path) -> None:
    """Cells, margins, and shares of rows, with intervals; no cell gets wider by its margins."""
    served = Served(store, tmp_path / "metrics.toml", AXES)
    metrics, client = served.metrics, served.client
    answers = metrics["crash"].domain.rows([{"used_x": "yes", "crashed": "no"}])
    assert metrics["crash"].domain.to_unit(answers).tolist() == [2]
    served.count(0, batch(metrics["crash"], [0] * 500 + [1] * 100 + [2] * 200 + [3] * 200, 4.0))
    path = "/v1/metrics/crash"
    assert client.json(path)["axes"] == {"used_x": ["no", "yes"], "crashed": ["no", "yes"]}
    cells = client.json(f"{path}/estimate")
    margins = client.json(f"{path}/estimate", category=["used_x", "crashed"])
    rates = client.json(f"{path}/estimate", category="crashed=yes / used_x")
    shown = dict(zip(margins["categories"], margins["value"], strict=True))
    assert [*shown] == ["used_x=no", "used_x=yes", "crashed=no", "crashed=yes"]
    assert shown["crashed=yes"] == pytest.approx(cells["value"][1] + cells["value"][3], abs=1e-3)
    assert rates["lower"][0] < 100 / 600 < rates["upper"][0] < rates["lower"][1] < 1 / 2
    series = client.json(f"{path}/series", category="crashed=yes / used_x", step="1h")
    assert series["categories"] == rates["categories"]
    assert series["points"][0]["value"] == rates["value"]
    text = served.estimate("crash").split("\n\n")[1].splitlines()
    assert text[0].split() == ["used_x", "\\", "crashed", "no", "yes", "all"]
    assert [line.split()[0] for line in text[1:4]] == ["no", "yes", "all"]
    for row_text, index in ((text[1], 1), (text[2], 3)):
        assert f"in [{down(cells['lower'][index], 3)}, {up(cells['upper'][index], 3)}]" in row_text
    assert "95% for all cells together" in text[4]
    assert "used_x \\ crashed" in served.estimate("crash", "--category", "crashed / used_x")
    table = served.estimate("crash", "--csv").splitlines()
    assert table[0].endswith(",axis_used_x,axis_crashed")
    assert [line.rsplit(",", 2)[1:] for line in table[1:]] == [
        ["no", "no"], ["no", "yes"], ["yes", "no"], ["yes", "yes"],
    ]  # fmt: skip


def test_of_three_axes_any_two_are_a_table_with_margins(store: Store, tmp_path: Path) -> None:
    """By name, over the third; in the terminal and as a frame. A table that is large is refused."""
    file, socket = tmp_path / "metrics.toml", store.client.connection_pool.connection_kwargs["path"]
    more = [f"v{index}" for index in range(17)]
    axes = f'b = ["x", "y"], crashed = ["no", "yes"], many = {json.dumps(more)} }}'
    file.write_text(AXES.replace('crashed = ["no", "yes"] }', axes).replace("[4]", "[16]"))
    metrics = load_metrics(file)
    rows = [{"used_x": u, "b": b, "crashed": c, "many": "v0"} for u in ("no", "yes")
            for b in ("x", "y") for c in ("no", "yes")]  # fmt: skip
    values = metrics["crash"].domain.to_unit(metrics["crash"].domain.rows(rows)).tolist()
    reports = np.repeat(values, [10, 20, 30, 40, 50, 60, 70, 720]).tolist()
    Counting(store, metrics).count(0, batch(metrics["crash"], reports, 16.0))
    command = ["estimate", "crash", "--metrics", str(file), "--kafka", "127.0.0.1:9"]
    command += ["--redis", f"unix://{socket}"]
    assert "a two-way table: --category 'used_x, b'" in CliRunner().invoke(cli, command).stdout
    asked = [*command, "--category", "crashed, used_x"]
    text = CliRunner().invoke(cli, asked).stdout.split("\n\n")[1].splitlines()
    shown = [[line.split()[0], *re.findall(r"([\d.]+) in", line)] for line in text[:4]]
    assert [[name, *(f"{float(x):.2f}" for x in numbers)] for name, *numbers in shown] == [
        ["used_x"], ["no", "0.04", "0.06", "0.10"], ["yes", "0.12", "0.78", "0.90"],
        ["all", "0.16", "0.84"],
    ]  # fmt: skip
    assert text[4] == "95% for all cells together, and 95% for all margins together"
    assert text[5] == "shares of rows: --category 'crashed / used_x'"
    table = CliRunner().invoke(cli, [*asked, "--csv"]).stdout.splitlines()
    assert table[0].endswith(",axis_used_x,axis_b,axis_crashed,axis_many")
    assert [line.rsplit(",", 4)[1:] for line in table[1:]] == [
        ["no", "", "no", ""], ["yes", "", "no", ""], ["no", "", "yes", ""], ["yes", "", "yes", ""],
    ]  # fmt: skip
    refused = CliRunner().invoke(cli, [*command, "--category", "many, b"])
    assert "34 shares among of 'crash': expected at most 32 in a question" in refused.stderr
