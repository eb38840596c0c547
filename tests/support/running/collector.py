"""A real OpenTelemetry Collector, built from its Go modules once for each version of them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.go_programs import go_programs
from tests.support.running.processes import answering
from tests.support.running.prometheus import free_port

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
    address = f"127.0.0.1:{free_port()}"
    config = folder / "collector.yaml"
    config.write_text(CONFIG.format(address=address, target=target))
    command = [str(program), "--config", f"file:{config}"]
    asked = f"http://{address}/v1/metrics"
    with answering(command, folder / "collector.log", lambda: http_client.status(asked) == 405):
        yield f"http://{address}"
