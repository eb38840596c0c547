"""A distribution from a CSV file: replayed, estimated, counted again and verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.support.running.deployment import Deployment

DEFINITION = """
[metrics.latency]
kind = "distribution"
range = [1, 10_000]
scale = "log"
unit = "ms"
levels = [2, 4]
pane = "1h"
"""
REPORTS = 6_000


def test_the_values_of_a_file_are_replayed_counted_again_and_verified(
    tmp_path: Path, deployment_of: Callable[[Path], Deployment]
) -> None:
    """Devices draw afresh each time: the truth is outside with a probability of 5% at most.

    In simulations of such bounds 1 of 1,500 runs missed.
    """
    values = np.random.default_rng(1).lognormal(5, 1, REPORTS).round(1)
    rows = [f"{60 * (i + 1)},{value}" for i, value in enumerate(values.tolist())]
    table = tmp_path / "latencies.csv"
    table.write_text("\n".join(["when,latency", *rows, "60,NA"]))
    file = tmp_path / "metrics.toml"
    file.write_text(DEFINITION)
    deployment = deployment_of(file)
    with deployment.worker():
        found = deployment.dither(
            "produce", "latency", "--csv", str(table), "--time-column", "when", "--json"
        )
        assert found.returncode == 0, found.stderr
        truth = json.loads(found.stdout)
        quantiles = np.quantile(values, [0.5, 0.9, 0.99], method="inverted_cdf")
        assert (truth["reports"], truth["missing"]) == (REPORTS, 1)
        assert list(truth["truth"].values()) == quantiles.tolist()
        deployment.wait_until_counted()
        shown = deployment.dither("estimate", "latency", "--below", "250", "--json")
        assert shown.returncode == 0, shown.stderr
        answer = json.loads(shown.stdout)
        assert answer["reports"] == REPORTS
        assert (np.array(answer["lower"]) <= quantiles).all()
        assert (np.array(answer["upper"]) >= quantiles).all()
    assert deployment.verify().verified
    again = deployment.dither("recount", "0", "--yes")
    assert again.returncode == 0, again.stderr
    with deployment.worker():
        deployment.wait_until_counted()
        same = json.loads(deployment.dither("estimate", "latency", "--json").stdout)
    assert same["value"] == answer["value"]
    assert deployment.dither("verify").returncode == 0
