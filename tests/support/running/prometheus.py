"""Debian's Prometheus with the deployment's rules, asked as Grafana asks it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped, unused-ignore]

from aggregator.local.deployment import free_port as free_port
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.servers import program

FOLDER = ROOT / "deploy" / "prometheus"
SCRAPE_SECONDS = 2
RATE_INTERVAL = "20s"
"""What Grafana makes of ``$__rate_interval`` where a scrape is 5 s: four of them."""
LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")


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

    def until(self, end: float, expr: str, scrapes: int = 8) -> list[dict[str, Any]]:
        """Return the series of a query over the last scrapes up to `end`: labels, and values."""
        seconds = scrapes * SCRAPE_SECONDS
        found = self.get(
            "/query_range", query=expr, start=end - seconds, end=end, step=SCRAPE_SECONDS
        )
        return [
            {"labels": one["metric"], "values": [float(value) for _, value in one["values"]]}
            for one in found["result"]
        ]

    def label_values(self, query: str) -> list[str]:
        """Return the values of a dashboard's variable."""
        asked = LABEL_VALUES.fullmatch(query)
        assert asked is not None, query
        return list(self.get(f"/label/{asked['label']}/values", **{"match[]": asked["series"]}))


def resolved(query: str, variables: Mapping[str, str]) -> str:
    """Return a query with its variables filled in."""
    known = {"__rate_interval": RATE_INTERVAL, **variables}
    return re.sub(r"\$(\w+)", lambda found: known[found[1]], query)


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
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    prometheus = Prometheus(f"http://{address}")

    def is_ready() -> bool:
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        with contextlib.suppress(httpx.TransportError):
            return http_client.get(f"http://{address}/-/ready").status_code == 200
        return False

    try:
        wait_until(is_ready, "Prometheus is ready")
        yield prometheus
    finally:
        prometheus.client.close()
        process.terminate()
        process.wait(30)
