"""A real OpenTelemetry Collector, built from its Go modules once for each version of them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.go_programs import go_programs
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
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen([program, "--config", f"file:{config}"], stdout=log, stderr=log)

    def is_ready() -> bool:
        assert process.poll() is None, (folder / "collector.log").read_text()
        with contextlib.suppress(httpx.TransportError):
            return http_client.get(f"http://{address}/v1/metrics").status_code == 405
        return False

    try:
        wait_until(is_ready, "the Collector is ready")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)
