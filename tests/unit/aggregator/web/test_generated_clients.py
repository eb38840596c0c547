"""Clients that generators make from the OpenAPI document ask and report to a running server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.local.embedded import EmbeddedBroker
from aggregator.web.http.access import hashed, new_token
from tests.support.reports.counted import Counting, Server, serving
from tests.support.reports.messages import EPOCH
from tests.support.running import http_client
from tests.support.running.servers import installed_in_ci, missing, program

pytestmark = [pytest.mark.more, installed_in_ci]

PYTHON_GENERATOR = "openapi-python-client==0.29.1"
NODE_PACKAGES = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3")
INSTALL_SECONDS = 600
SECRET = new_token()

IN_PYTHON = """
import asyncio, datetime, sys
from dither_client import AuthenticatedClient
from dither_client.api.default import (
    estimate, list_metrics, post_reports, readyz, series, set_weights, show_metric, show_status)
from dither_client.models import (
    Answer, Definition, JsonBatch, JsonReport, ProblemDetails, Weights, WeightsPolicy)

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=60)
with client:
    assert {one.name for one in list_metrics.sync(client=client).metrics} >= {"delay", "carrier"}
    delay = show_metric.sync("delay", client=client)
    assert isinstance(delay, Definition) and delay.levels == [0.5, 1] and delay.unit == "minutes"
    refused = estimate.sync_detailed("nothing", client=client)
    assert refused.status_code == 404 and isinstance(refused.parsed, ProblemDetails)
    found = estimate.sync("delay", client=client)
    assert isinstance(found, Answer) and found.lower < found.value < found.upper, found
    assert found.updated.tzinfo and found.levels[1].reports == found.reports
    start = datetime.datetime.fromtimestamp(float(sys.argv[3]), datetime.timezone.utc)
    end = start + datetime.timedelta(minutes=5)
    assert 0 < estimate.sync("delay", client=client, from_=start, to=end).reports < found.reports
    points = series.sync("delay", client=client, step="1m", from_=start).points
    assert len(points) == 30 and points[0].reports > 0
    assert show_status.sync(client=client).metrics["delay"].outcomes["accepted"] > 0
    body = JsonBatch(metric="delay", revision=delay.revision,
                     reports=[JsonReport(report=1, level=0), JsonReport(report=0, epsilon=1.0)])
    assert post_reports.sync(client=client, body=body).reports == 2
    lie = JsonBatch(metric="delay", reports=[JsonReport(report=7, level=0)])
    assert isinstance(post_reports.sync(client=client, body=lie), ProblemDetails)
    uniform = set_weights.sync("delay", client=client, body=Weights(policy=WeightsPolicy.UNIFORM))
    assert estimate.sync("delay", client=client).policy == "uniform", uniform
with AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=60) as client:
    assert asyncio.run(readyz.asyncio_detailed(client=client)).status_code == 200
print("done")
"""

IN_TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { components, paths } from "./dither.js";

const [url, token] = process.argv.slice(2);
const client = createClient<paths, "application/json" | "application/problem+json">({
  baseUrl: url, headers: { Authorization: `Bearer ${token}` },
});
function check(is: boolean, what: unknown): void {
  if (!is) throw new Error(JSON.stringify(what));
}
const path = { name: "delay" };
const found = await client.GET("/v1/metrics/{name}/estimate", {
  params: { path, query: { beta: 0.1, weights: "uniform" } },
});
if (!found.data || !("value" in found.data)) throw new Error(JSON.stringify(found.error));
const value: number | (number | null)[] | null | undefined = found.data.value;
check(typeof value === "number" && value > 0 && found.data.beta === 0.1, found.data);
const unknown = await client.GET("/v1/metrics/{name}/estimate", {
  params: { path: { name: "nothing" } },
});
const problem: components["schemas"]["ProblemDetails"] | undefined = unknown.error;
check(problem?.status === 404, unknown);
const posted = await client.POST("/v1/reports", {
  body: { metric: "delay", reports: [{ report: 1, level: 0 }] },
});
check(posted.data?.reports === 1, posted);
console.log("done");
"""

WRONG_TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./dither.js";
const client = createClient<paths>();
await client.GET("/v1/metrics/{name}/estimate", {
  params: { path: { name: "delay" }, query: { weights: "heavy" } },
});
"""


def run(*command: str | Path | float, cwd: Path) -> str:
    """Return what a command wrote; fail with all of it if the command failed."""
    ran = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def install(what: str, *command: str | Path, cwd: Path) -> None:
    """Install tools of a test in a folder of its own; skip the test where they cannot be had."""
    try:
        run(*command, cwd=cwd)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        missing(what, f"{' '.join(map(str, command))} failed: {error}"[:2000])


@pytest.fixture
def server(
    metrics_file: Path, redis_url: str, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    counting.some(30)
    monkeypatch.setenv("DITHER_ACCESS_TOKENS_TESTS", f"{hashed(SECRET)} read report admin")
    with EmbeddedBroker() as broker:
        broker.create_topic("dither.reports")
        flags = {
            "access.anonymous": "",
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topics.managed": "false",
            "serve.gateway": "true",
        }
        words = [word for key, value in flags.items() for word in ("--set", f"{key}={value}")]
        with serving(metrics_file, redis_url, *words) as running:
            yield running


@pytest.fixture
def document(server: Server, tmp_path: Path) -> Path:
    """Save the document that the server answers."""
    file = tmp_path / "openapi.json"
    file.write_text(http_client.get(f"{server.url}/openapi.json").text)
    return file


def test_a_client_of_openapi_python_client(server: Server, document: Path) -> None:
    folder = document.parent
    uv, tools = Path(sys.executable).with_name("uv"), folder / "tools" / "bin"
    install("a virtual environment", uv, "venv", "-q", "-p", sys.executable, "tools", cwd=folder)
    wanted = (uv, "pip", "install", "-q", "-p", tools / "python", PYTHON_GENERATOR)
    install(PYTHON_GENERATOR, *wanted, cwd=folder)
    options = folder / "options.yml"
    options.write_text(json.dumps({"post_hooks": []}))
    said = run(
        *(tools / "openapi-python-client", "generate", "--path", document, "--meta", "none"),
        *("--config", options, "--output-path", "dither_client"),
        cwd=folder,
    )
    # Both posts may also be protobuf, which such a client does not send: JSON says the same.
    assert said.count("WARNING") == 2, said
    assert said.count("Unsupported content type application/x-protobuf") == 2
    assert "Unable to process" not in said
    (folder / "use.py").write_text(IN_PYTHON)
    assert run(tools / "python", "use.py", server.url, SECRET, EPOCH / 1000, cwd=folder) == "done\n"


def test_a_client_of_openapi_typescript(server: Server, document: Path) -> None:
    folder = document.parent
    npm, node = program("npm", "install Node.js"), program("node", "install Node.js")
    (folder / "package.json").write_text('{"type": "module", "private": true}')
    install("openapi-typescript", npm, "install", "--no-audit", *NODE_PACKAGES, cwd=folder)
    installed = folder / "node_modules" / ".bin"
    run(installed / "openapi-typescript", document, "-o", "dither.ts", cwd=folder)
    (folder / "use.ts").write_text(IN_TYPESCRIPT)
    (folder / "wrong.ts").write_text(WRONG_TYPESCRIPT)
    (folder / "node.d.ts").write_text("declare const process: { argv: string[] };\n")
    options = (
        "--strict --target es2022 --module nodenext --skipLibCheck --lib es2022,dom,dom.iterable"
    )
    compiler = [installed / "tsc", *options.split()]
    run(*compiler, "use.ts", "node.d.ts", cwd=folder)
    assert run(node, "use.js", server.url, SECRET, cwd=folder) == "done\n"
    with pytest.raises(AssertionError, match="heavy"):
        run(*compiler, "--noEmit", "wrong.ts", cwd=folder)
