"""A real OpenTelemetry Collector gets what `dither serve` sends, and passes it on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.services.integration.test_walk import export
from tests.support.events import service
from tests.support.running.collector import BUILD_SECONDS, built, collecting
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.otlp import attributes_of, in_prometheus, receiving

EXPORTS = 400
METRICS = """
[metrics.page]
kind = "frequency"
mechanism = "grr"
categories = ["home", "help"]
levels = [4]
pane = "1h"
"""


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 120)
def test_a_collector_gets_estimates_of_what_instruments_measured(
    defined: Callable[..., Deployment], tmp_path: Path
) -> None:
    program, deployment = built(), defined(METRICS)
    with (
        receiving() as receiver,
        collecting(program, tmp_path, receiver.url) as collector,
        service(deployment, *traced(collector), settings=["otlp.interval=300ms"]) as url,
    ):
        export(url, tmp_path / "queue", EXPORTS)
        deployment.wait_until_counted()
        reports = "dither_reports_total", frozenset({("metric", "page"), ("outcome", "accepted")})
        wait_until(
            lambda: (
                bool(receiver.received["/v1/metrics"])
                and in_prometheus(receiver.metrics()).get(reports) == EXPORTS
            ),
            "the Collector has passed on everything that was counted",
        )
        estimate = deployment.reader().estimate("page")
    found = in_prometheus(receiver.metrics())
    for place, category in enumerate(estimate.labels):
        labels = frozenset({("metric", "page"), ("category", category)})
        for name, numbers in (
            ("dither_estimate", estimate.shown),
            ("dither_estimate_lower", estimate.lower),
            ("dither_estimate_upper", estimate.upper),
        ):
            assert found[name, labels] == pytest.approx(np.atleast_1d(numbers)[place])
    (resource,) = receiver.received["/v1/metrics"][-1]["resourceMetrics"]
    assert attributes_of(resource["resource"])["service.name"] == "dither"
    wanted = {"GET /healthz", "GET /v1/metrics/{name}", "commit", "fetch", "count", "store"}
    assert wanted <= {span["name"] for span in receiver.spans()}
    assert not [span for span in receiver.spans() if "reports" in span["name"]]


def traced(collector: str) -> list[str]:
    return [f"--set=otlp.endpoint={collector}", "--set=otlp.traces=true"]
