"""A share of users among some is asked by name: of a window, a series, slices and a comparison."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from aggregator.cli.main import cli
from aggregator.config.settings import Access, Settings
from aggregator.storage.store import Store
from estimators import load_metrics
from producers.wire.reports_pb2 import Attribute
from tests.support.reports.counted import Client, Counting
from tests.support.reports.messages import EPOCH, batch

PATH = "/v1/metrics/checkout"
SHARE = "paid / visit.."
DEFINITIONS = """
[attributes]
version = ["old", "new"]

[metrics.checkout]
kind = "frequency"
mechanism = "grr"
categories = ["none", "visit", "cart", "paid"]
levels = [4]
by = ["version"]
"""


def test_a_share_is_answered_by_every_interface(store: Store, tmp_path: Path) -> None:
    file, socket = tmp_path / "metrics.toml", store.client.connection_pool.connection_kwargs["path"]
    file.write_text(DEFINITIONS)
    metrics = load_metrics(file)
    counting = Counting(store, metrics)
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
    counting.count(0, *slices)
    client = Client(store, metrics, Settings(access=Access(anonymous=["read", "report", "admin"])))
    answer = client.json(f"{PATH}/estimate", category="paid/visit..")
    assert answer["categories"] == [SHARE]
    assert answer["lower"][0] < 0.5 < answer["upper"][0]
    assert answer["influence"]["shift"] > 0
    command = ["estimate", "checkout", "--json", "--metrics", str(file), "--kafka", "127.0.0.1:9"]
    command += ["--redis", f"unix://{socket}", "--category", SHARE]
    assert json.loads(CliRunner().invoke(cli, command).stdout) == answer
    command.remove("--json")
    assert f"{SHARE} " in CliRunner().invoke(cli, command).stdout
    series = client.json(f"{PATH}/series", category=SHARE, step="1h")
    (point,) = series["points"]
    assert point["value"] == answer["value"]
    whole = client.json(f"{PATH}/estimate")
    assert whole["categories"] == ["none", "visit", "cart", "paid"]
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
        problem = client.problem(400, f"{PATH}/series?{query}")
        assert "expected other weights" in problem["detail"]
