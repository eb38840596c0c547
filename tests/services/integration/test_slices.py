"""From devices that say something of themselves to sums of slices in Redis."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from aggregator.state.slice_tables import decode_rows
from estimators import LocalMetric
from producers import Reporter
from producers.gateway import Gateway
from producers.wire.batch import encode_batch
from tests.support.reports.messages import EPOCH
from tests.support.running.deployment import Deployment
from tests.support.running.gateway_server import serving

METRICS = """
[attributes]
country = ["DE", "FR"]
version = ["1", "2", "3"]

[metrics.late]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [1, 4]
pane = "1h"
by = ["country", "version"]

[metrics.carrier]
kind = "frequency"
mechanism = "rappor"
categories = ["AA", "B6", "DL"]
levels = [1]
by = ["country"]

"""
SECONDS = EPOCH / 1000


def slices(deployment: Deployment, name: str) -> dict[str, int]:
    """Return the reports of each slice of a metric that Redis has, over all partitions."""
    metric = deployment.metrics[name]
    assert isinstance(metric, LocalMetric)
    assert metric.slicing is not None
    found: defaultdict[str, int] = defaultdict(int)
    client: Any = deployment.store.client
    for key in client.scan_iter(match=f"{{dither:{deployment.topic}:*}}:slices:{name}@*"):
        codes, rows = decode_rows(client.get(key), metric.zero().size)
        for code, row in zip(codes.tolist(), rows, strict=True):
            values = metric.slicing.slice(code).values()
            found[" ".join(str(value) for value in values)] += int(metric.counts(row).sum())
    return dict(found)


def test_what_devices_gateways_and_tables_say_of_themselves_is_summed_by_slice(
    defined: Callable[..., Deployment], tmp_path: Path
) -> None:
    deployment = defined(METRICS)
    late = deployment.metrics["late"]
    config = {"bootstrap.servers": deployment.kafka.bootstrap_servers}
    own = {"country": "DE", "version": "12", "city": "Bonn"}
    with contextlib.ExitStack() as stack:
        for name, value in (("late", 1.0), ("carrier", "AA")):
            options: dict[str, Any] = {"topic": deployment.topic, "attributes": own}
            with Reporter(deployment.metrics[name], config, **options) as reporter:
                for second in range(40):
                    moment = SECONDS + 60 * second
                    reporter.report([value] * 3, epsilon=1, time=moment)
                    said = {"country": "FR", "version": str(second % 3 + 1)}
                    reporter.report([value], epsilon=1, time=moment, attributes=said)
                    reporter.report([value], epsilon=1, time=moment, attributes={})
        gateway = Gateway(deployment.metrics, config, deployment.topic)
        url = stack.enter_context(serving(gateway))
        client = stack.enter_context(httpx.Client())
        body = {"metric": "late", "time": SECONDS, "reports": [{"level": 0, "report": 1}] * 2}
        for said in ({"country": "LI"}, {"version": "2"}, {"city": "Bonn"}):
            assert client.post(url, json={**body, "attributes": said}).status_code == 202
        batch = encode_batch(late, [1], [1], EPOCH, attributes={"country": "DE", "version": "3"})
        headers = {"Content-Type": "application/x-protobuf"}
        assert client.post(url, content=batch, headers=headers).status_code == 202
    deployment.count()
    from_devices = {"DE other": 120, "FR 1": 14, "FR 2": 13, "FR 3": 13, "None None": 42}
    from_posts = {"other None": 2, "None 2": 2, "DE 3": 1}
    assert slices(deployment, "late") == from_devices | from_posts
    assert slices(deployment, "carrier") == {"DE": 120, "FR": 40, "None": 40}

    countries = ["DE", "FR", "", "Iceland"] * 50
    rows = [f"{i % 2},{country},{i % 4}" for i, country in enumerate(countries)]
    file = tmp_path / "table.csv"
    file.write_text("\n".join(["late,country,os", *rows]))
    of_rows = ("late", "--csv", str(file), "--attribute", "version=os", "--json")
    done = deployment.dither("produce", *of_rows)
    assert done.returncode == 0, done.stderr
    for name in ("country", "version"):
        assert f"attribute: '{name}'; 50 of 200 values are not declared" in done.stderr
    simulated = deployment.dither("produce", "carrier", "--simulate", "uniform", "--devices", "90")
    assert simulated.returncode == 0, simulated.stderr
    before = slices(deployment, "carrier")
    deployment.count()
    found = slices(deployment, "late")
    from_rows = {"DE other": 50, "FR 1": 50, "None 2": 50, "other 3": 50}
    assert {name: found[name] - from_devices.get(name, 0) for name in from_rows} == (
        from_rows | {"None 2": 52}
    )
    drawn = {name: count - before[name] for name, count in slices(deployment, "carrier").items()}
    assert (drawn["None"], sum(drawn.values())) == (0, 90)
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
