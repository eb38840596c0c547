"""Debian's Prometheus with the deployment's rules."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped, unused-ignore]

from deploy.kafka.cluster import free_ports
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.processes import answering
from tests.support.running.servers import program

FOLDER = ROOT / "deploy" / "prometheus"
SCRAPE_SECONDS = 2
RATE_INTERVAL = "20s"
"""Grafana's value of ``$__rate_interval`` where the scrape interval is 5 s: four intervals."""


class Prometheus:
    """A running Prometheus.

    Parameters
    ----------
    url : str
    """

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=f"{url}/api/v1", timeout=30)

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the data of an answer."""
        answer = self.client.get(path, params=parameters)
        assert answer.status_code == 200, (parameters, answer.text)
        return answer.json()["data"]

    def at(self, moment: float, expr: str) -> list[dict[str, Any]]:
        """Return the series of a query for a moment: labels, and a value."""
        return [
            {"labels": one["metric"], "values": [float(one["value"][1])]}
            for one in self.get("/query", query=expr, time=moment)["result"]
        ]

    def now(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of a query for this moment."""
        return self.at(time.time(), expr)


@contextlib.contextmanager
def running(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run Prometheus with the deployment's configuration, on one Dither and a short interval."""
    binary = program("prometheus", "install Prometheus (Debian: prometheus)")
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    interval = f"{SCRAPE_SECONDS}s"
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    config["rule_files"] = [str(FOLDER / file) for file in config["rule_files"]]
    (dither,) = (job for job in config["scrape_configs"] if job["job_name"] == "dither")
    dither["static_configs"] = [{"targets": [target]}]
    config["scrape_configs"] = [dither]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        str(binary),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={address}",
    ]
    asked = f"http://{address}/-/ready"
    with answering(command, folder / "prometheus.log", lambda: http_client.status(asked) == 200):
        prometheus = Prometheus(f"http://{address}")
        with prometheus.client:
            yield prometheus
