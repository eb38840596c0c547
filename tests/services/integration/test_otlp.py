"""A real OpenTelemetry Collector gets what `dither serve` sends, and passes it on."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from deploy.kafka.cluster import free_ports
from tests.services.integration.test_walk import export
from tests.support.events import service
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.go_programs import go_programs
from tests.support.running.otlp import attributes_of, in_prometheus, receiving
from tests.support.running.processes import answering

SOURCE = ROOT / "tests" / "support" / "collector"
BUILD_SECONDS = 560
CONFIG = """\
receivers:
  otlp:
    protocols:
      http:
        endpoint: {address}
exporters:
  otlp_http:
    endpoint: {target}
    encoding: json
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    metrics: {{receivers: [otlp], exporters: [otlp_http]}}
    traces: {{receivers: [otlp], exporters: [otlp_http]}}
"""


def built() -> Path:
    """Return the Collector's program; the test is skipped where it cannot be built."""
    (program,) = go_programs(SOURCE, ["otelcol"], "the OpenTelemetry Collector")
    return program


@contextlib.contextmanager
def collecting(program: Path, folder: Path, target: str) -> Iterator[str]:
    """Run a Collector that passes everything on to `target`; yield its address for OTLP."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = folder / "collector.yaml"
    config.write_text(CONFIG.format(address=address, target=target))
    command = [str(program), "--config", f"file:{config}"]
    asked = f"http://{address}/v1/metrics"
    with answering(command, folder / "collector.log", lambda: http_client.status(asked) == 405):
        yield f"http://{address}"


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
