"""A client that a generator makes from the OpenAPI document asks and reports to a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.web.http.tokens import hash_token, new_token
from tests.support.reports.counted import Counting, Server, serving_a_gateway
from tests.support.reports.messages import EPOCH
from tests.support.running import http_client
from tests.support.running.servers import installed_in_ci, missing

PYTHON_GENERATOR = "openapi-python-client==0.29.1"
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


def run(*command: str | Path | float, cwd: Path) -> str:
    """Return what a command wrote; fail with all of it if the command failed."""
    ran = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture
def server(
    metrics_file: Path, redis_url: str, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    counting.some(30)
    monkeypatch.setenv("DITHER_ACCESS_TOKENS_TESTS", f"{hash_token(SECRET)} read report admin")
    with serving_a_gateway(metrics_file, redis_url, access_anonymous="") as running:
        yield running


@pytest.mark.more
@installed_in_ci
def test_a_client_of_openapi_python_client(server: Server, tmp_path: Path) -> None:
    document, options = tmp_path / "openapi.json", tmp_path / "options.yml"
    document.write_text(http_client.get(f"{server.url}/openapi.json").text)
    options.write_text(json.dumps({"post_hooks": []}))
    uv, tools = Path(sys.executable).with_name("uv"), tmp_path / "tools" / "bin"
    try:
        run(uv, "venv", "-q", "-p", sys.executable, "tools", cwd=tmp_path)
        run(uv, "pip", "install", "-q", "-p", tools / "python", PYTHON_GENERATOR, cwd=tmp_path)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        missing(PYTHON_GENERATOR, f"it cannot be installed: {error}"[:2000])
    said = run(
        *(tools / "openapi-python-client", "generate", "--path", document, "--meta", "none"),
        *("--config", options, "--output-path", "dither_client"),
        cwd=tmp_path,
    )
    # Both posts may also be protobuf, which such a client does not send: JSON says the same.
    assert said.count("WARNING") == 2, said
    assert said.count("Unsupported content type application/x-protobuf") == 2
    assert "Unable to process" not in said
    (tmp_path / "use.py").write_text(IN_PYTHON)
    words = (server.url, SECRET, EPOCH / 1000)
    assert run(tools / "python", "use.py", *words, cwd=tmp_path) == "done\n"
