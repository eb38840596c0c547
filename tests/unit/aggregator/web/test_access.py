"""Who may do what: tokens, their scopes, and what goes without."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from aggregator.cli.main import cli
from aggregator.config.settings import Access, Serve, Settings, load_settings
from aggregator.errors import SettingsError
from aggregator.features.reader import Reader
from aggregator.storage.store import Store
from aggregator.web.application import application
from aggregator.web.http.tokens import hash_token, new_token
from estimators import Metric
from tests.support.reports.counted import Client
from tests.support.rows import row
from tests.support.running.stub_gateway import StubGateway

TOKENS = {name: new_token() for name in ("reader", "device", "operator", "everything")}
SCOPES = {
    "reader": "read",
    "device": "report",
    "operator": "admin",
    "everything": "read report admin",
}


def access(*anonymous: str) -> Access:
    lines = {name: f"{hash_token(token)} {SCOPES[name]}" for name, token in TOKENS.items()}
    return Access(anonymous=list(anonymous), tokens=lines)


def with_access(store: Store, metrics: dict[str, Metric], *anonymous: str) -> Client:
    return Client(store, metrics, Settings(access=access(*anonymous)))


@pytest.fixture
def closed(store: Store, metrics: dict[str, Metric]) -> Client:
    return with_access(store, metrics)


def bearing(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


READ = ["/v1/metrics/delay/estimate", "/v1/metrics/delay/series", "/v1/status", "/metrics"]
DEFINITIONS = ["/v1/metrics", "/v1/metrics/delay"]
OPEN = ["/healthz", "/openapi.json", "/asyncapi.json", "/"]


def test_without_a_token_health_and_documents_are_open_and_nothing_else(closed: Client) -> None:
    for path in (*READ, *DEFINITIONS, "/v1/events"):
        with row(path):
            problem = closed.problem(401, path)
            assert "a token with scope read" in problem["detail"]
            assert "dither tokens new" in problem["remedy"]
            assert closed.get(path).headers["www-authenticate"] == 'Bearer realm="dither"'
            assert closed.ask("HEAD", path).status_code == 401
    assert {path: closed.get(path).status_code for path in OPEN} == dict.fromkeys(OPEN, 200)


def test_a_scope_admits_to_what_it_is_for_and_to_nothing_else(closed: Client) -> None:
    for path in READ:
        assert closed.get(path, headers=bearing("reader")).status_code == 200
        everything = closed.get(path, headers=bearing("everything"))
        assert everything.status_code == 200
        assert everything.headers["dither-scopes"] == "admin read report"
        for other in ("device", "operator"):
            answer = closed.get(path, headers=bearing(other))
            assert answer.status_code == 403
            challenge = answer.headers["www-authenticate"]
            assert 'error="insufficient_scope", scope="read"' in challenge
            assert f"token '{other}' has scopes" in answer.json()["detail"]
    for path in DEFINITIONS:
        for name in ("reader", "device"):
            assert closed.get(path, headers=bearing(name)).status_code == 200
    weights = "/v1/metrics/delay/weights"
    body = {"policy": "uniform"}
    assert closed.ask("PUT", weights, json=body, headers=bearing("reader")).status_code == 403
    assert closed.ask("PUT", weights, json=body).status_code == 401
    assert closed.ask("PUT", weights, json=body, headers=bearing("operator")).status_code == 200


def test_an_unknown_token_is_always_refused(store: Store, metrics: dict[str, Metric]) -> None:
    client, known = with_access(store, metrics, "read"), TOKENS["reader"]
    alike: dict[str, str] = {}  # whose hash begins, or ends, as the known one's
    for token in (f"dither_{number}" for number in range(5_000)):
        alike |= {hash_token(token)[:9]: token, hash_token(token)[-2:]: token}
    near = alike[hash_token(known)[:9]], alike[hash_token(known)[-2:]]
    for token in ("nonsense", "", "dither_", known[:-1], known.swapcase(), "ü", *near):
        with row(token):
            headers = {"Authorization": f"Bearer {token}".encode("latin-1")}
            client.problem(401, "/v1/metrics", headers=headers)
            answer = client.get("/v1/metrics", headers=headers)
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]
            assert client.get("/healthz", headers=headers).status_code == 200


def test_bearer_in_any_case_and_no_other_scheme(store: Store, metrics: dict[str, Metric]) -> None:
    client = with_access(store, metrics, "report")
    for scheme in ("bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {TOKENS['reader']}"}
        assert client.get("/metrics", headers=headers).status_code == 200
    proxied = {"Authorization": "Basic dXNlcjpwYXNz"}
    assert client.get("/v1/metrics", headers=proxied).status_code == 200
    assert client.get("/metrics", headers=proxied).status_code == 401


def test_by_default_all_may_read_and_report_only(store: Store, metrics: dict[str, Metric]) -> None:
    client = Client(store, metrics, Settings())
    for path in (*READ, *DEFINITIONS):
        assert client.get(path).status_code == 200
    body = {"policy": "uniform"}
    assert client.ask("PUT", "/v1/metrics/delay/weights", json=body).status_code == 401


def with_route(client: Client, path: str, text: str, method: str) -> None:
    """Give an application a gateway with one route."""
    gateway = StubGateway(Route(path, lambda _: PlainTextResponse(text), methods=[method]))
    reader = Reader(client.store, {})
    client.app = application(reader, client.settings, gateway=gateway)  # type: ignore[arg-type]


def test_what_devices_report_needs_a_scope(store: Store, metrics: dict[str, Metric]) -> None:
    client = with_access(store, metrics, "read")
    for path in ("/v1/reports", "/v1/reports/batches"):
        with_route(client, path, "taken", "POST")
        assert client.ask("POST", path).status_code == 401
        assert client.ask("POST", path, headers=bearing("reader")).status_code == 403
        assert client.ask("POST", path, headers=bearing("device")).text == "taken"
        assert path in client.json("/openapi.json")["paths"]


def test_a_route_without_scopes_is_closed(store: Store, metrics: dict[str, Metric]) -> None:
    client = with_access(store, metrics, "read", "report")
    with_route(client, "/v1/new", "secret", "GET")
    assert client.get("/v1/new").status_code == 401
    assert client.get("/v1/new", headers=bearing("operator")).text == "secret"


# -- Making tokens -------------------------------------------------------------------------------


def new(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["tokens", "new", *arguments])


def test_printed_tokens_are_valid(store: Store, metrics: dict[str, Metric], tmp_path: Path) -> None:
    told = new("grafana", "--scope", "read")
    assert told.exit_code == 0
    token = told.output.split()[0]
    assert re.fullmatch(r"dither_[\w-]{43}", token)
    line = told.output[told.output.index("[access.tokens]") :]
    assert token not in line
    file = tmp_path / "dither.toml"
    file.write_text(f"[access]\nanonymous = []\n{line}")
    settings = load_settings(str(file), environ={})
    assert tomllib.loads(line)["access"]["tokens"].keys() == {"grafana"}
    client = Client(store, metrics, settings)
    assert client.get("/metrics").status_code == 401
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/metrics", headers=headers).status_code == 200


def test_tokens_are_never_the_same_and_can_be_had_as_json() -> None:
    flags = ("--scope", "read", "--scope", "admin", "--json")
    made = [json.loads(new("a", *flags).output) for _ in range(2)]
    assert made[0]["token"] != made[1]["token"]
    for one in made:
        assert one["setting"] == f"{hash_token(one['token'])} read admin"


def test_an_access_that_cannot_be_used_is_an_error() -> None:
    as_printed = "as `dither tokens new` prints it"
    for key, value, told in (
        ("access.tokens.ci", "secret", as_printed),
        ("access.tokens.ci", hash_token("x"), as_printed),
        ("access.tokens.ci", f"{hash_token('x')} write", as_printed),
        ("access.tokens.ci", 7, as_printed),
        ("access.anonymous", "read rite", "scopes: "),
        ("access.anonymus", "read", "'anonymous'"),
    ):
        with row(key, value), pytest.raises(SettingsError, match=re.escape(told)):
            load_settings(flags={key: value}, environ={})


# -- Other origins -------------------------------------------------------------------------------

ORIGIN = "https://app.example"


def test_pages_of_named_origins_may_ask(store: Store, metrics: dict[str, Metric]) -> None:
    settings = Settings(access=access(), serve=Serve(cors_origins=[ORIGIN]))
    client = Client(store, metrics, settings)
    preflight = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    allowed = client.ask("OPTIONS", "/v1/metrics/delay/weights", headers=preflight)
    assert allowed.status_code == 200, "a browser sends no token with it"
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    refused = client.get("/v1/metrics", headers={"Origin": ORIGIN})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    assert "ETag" in refused.headers["access-control-expose-headers"]
    other = client.get("/v1/metrics", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers


def test_by_default_no_other_origin_may_ask(client: Client) -> None:
    answer = client.get("/v1/metrics", headers={"Origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]
