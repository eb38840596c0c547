"""For which host names the server answers, and whom it believes about a client's address."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aggregator.config.settings import Access, Serve, Settings
from aggregator.features.reader import Reader
from aggregator.storage.store import Store
from aggregator.web.application import application
from aggregator.web.http import middleware
from aggregator.web.http.tokens import hash_token, new_token
from estimators import Metric
from producers.gateway.rate_limits import client_of
from tests.support.reports.counted import Client, serving
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.stub_gateway import StubGateway

ANYWHERE = "0.0.0.0"  # noqa: S104
PATHS = ("/v1/metrics", "/v1/status", "/metrics", "/", "/openapi.json", "/static/dither.js")


EXPECTED: dict[str, tuple[Serve, list[str], list[str]]] = {
    "on loopback": (
        Serve(),
        ["localhost", "LocalHost:8080", "a.localhost", "127.0.0.1:8080", "[::1]:80", "10.1.2.3"],
        ["evil.example", "evil.example:8080", "localhost.evil.example", "dither", "", "a b"],
    ),
    "elsewhere": (
        Serve(host=ANYWHERE),
        ["localhost", "serve:8080", "10.1.2.3:8080", "[fd00::1]:8080", socket.gethostname()],
        ["evil.example", "serve.evil.example", "127.0.0.1.evil.example", "10.1.2", ""],
    ),
    "on a name": (
        Serve(host="dither.internal"),
        ["dither.internal:8080", "Dither.Internal."],
        ["evil.internal", "dither-internal.example"],
    ),
    "named": (
        Serve(host=ANYWHERE, hosts=["dither.example", "*.lab.example"]),
        ["dither.example", "DITHER.example.:443", "a.lab.example", "localhost", "10.1.2.3"],
        ["evil.example", "lab.example", "a-lab.example", "serve", "dither.example:80@evil", ""],
    ),
    "any": (Serve(hosts=["*"]), ["evil.example", "serve"], [""]),
    "with a certificate, which evil.example does not have": (
        Serve(host=ANYWHERE, tls_certificate="crt.pem", tls_key="key.pem"),
        ["dither.example", "evil.example"],
        [""],
    ),
}


def test_only_expected_hosts_are_answered(store: Store, metrics: dict[str, Metric]) -> None:
    for name, (serve, answered, refused) in EXPECTED.items():
        client = Client(store, metrics, Settings(serve=serve))
        for host in answered:
            with row(name, host):
                assert client.get("/v1/metrics", headers={"Host": host}).status_code == 200
        for host in refused:
            with row(name, host):
                problem = client.problem(421, "/v1/metrics", headers={"Host": host})
                assert repr(host) in problem["detail"]
                assert "DITHER_SERVE_HOSTS" in problem["remedy"]


def test_a_page_that_was_led_here_sees_nothing_but_the_probes(client: Client) -> None:
    led = {"Host": "evil.example"}
    for path in PATHS:
        answer = client.get(path, headers=led)
        assert answer.status_code == 421, path
        assert "delay" not in answer.text
    body = {"policy": "uniform"}
    assert client.ask("PUT", "/v1/metrics/delay/weights", json=body, headers=led).status_code == 421
    assert client.get("/healthz", headers=led).json() == {"status": "alive"}
    assert client.get("/readyz", headers=led).status_code == 503, "nothing was counted yet"


def test_a_page_of_another_site_asks_nothing(store: Store, metrics: dict[str, Metric]) -> None:
    """But what devices fetch from any page, and reports, which have limits of their own."""
    listed = "https://app.example"
    client = Client(store, metrics, Settings(serve=Serve(cors_origins=[listed])))
    cross = {"Sec-Fetch-Site": "cross-site"}
    for path in ("delay/estimate", "delay/series", "page/discoveries"):
        for origin in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            problem = client.problem(403, f"/v1/metrics/{path}", headers=cross | origin)
            assert "cors_origins" in problem["remedy"]
    for path in ("compare?metric=delay", "comparisons", "alarms", "status", "events"):
        client.problem(403, f"/v1/{path}", headers=cross)
    client.problem(403, "/metrics", headers=cross)
    for path in ("/v1/metrics", "/v1/metrics/delay", "/healthz", "/", "/openapi.json"):
        assert client.get(path, headers=cross).status_code == 200, path
    path = "/v1/metrics/delay/estimate"
    for site, origin in (
        ("cross-site", {"Origin": listed}),
        ("same-site", {"Origin": "https://other.example"}),
        ("same-origin", {}),
        ("none", {}),
    ):
        headers = {"Sec-Fetch-Site": site, **origin}
        assert client.get(path, headers=headers).status_code == 200, site
    anybody = Client(store, metrics, Settings(serve=Serve(cors_origins=["*"])))
    headers = cross | {"Origin": "https://evil.example"}
    assert anybody.get(path, headers=headers).status_code == 200


# -- Proxies -------------------------------------------------------------------------------------


def told(proxies: list[str], peer: str, *forwarded: str, scheme: str = "", name: str = "") -> Any:
    """Return what a route is told of a client that comes so."""
    secret = new_token()
    access = Access(["report"], {name: f"{hash_token(secret)} report"} if name else {})

    def tell(request: Request) -> Response:
        return PlainTextResponse(f"{client_of(request.scope)} {request.url.scheme}")

    settings = Settings(serve=Serve(trusted_proxies=proxies), access=access)
    reader = Reader(Store(redis.Redis(), "reports"), {})  # it is asked for nothing
    gateway = StubGateway(Route("/v1/reports", tell, methods=["POST"]))
    app = application(reader, settings, gateway=gateway)  # type: ignore[arg-type]
    headers = [("X-Forwarded-For", value) for value in forwarded]
    headers += [("X-Forwarded-Proto", scheme)] if scheme else []
    headers += [("Authorization", f"Bearer {secret}")] if name else []

    async def ask() -> str:
        transport = httpx.ASGITransport(app, client=(peer, 40_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            return (await asking.post("/v1/reports", headers=headers)).text

    return asyncio.run(ask())


def test_by_default_nobody_is_believed_about_an_address_or_a_scheme() -> None:
    for peer in ("127.0.0.1", "::1", "10.0.3.7", "192.0.2.66"):
        with row(peer):
            shown = "::/64" if peer == "::1" else peer
            assert told([], peer, "192.0.2.1", scheme="https") == f"{shown} http"
            assert told(["10.9.0.0/16"], peer, "192.0.2.1", scheme="https") == f"{shown} http"


def test_a_proxy_that_is_named_is_believed_about_the_last_address_that_is_no_proxy() -> None:
    proxies = ["127.0.0.1", "10.0.3.0/24"]
    for peer, forwarded, client in (
        ("127.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.3.7", ["192.0.2.1"], "192.0.2.1"),
        ("::ffff:10.0.3.7", ["::ffff:192.0.2.1"], "192.0.2.1"),
        ("127.0.0.1", ["2001:db8::7"], "2001:db8::/64"),
        ("127.0.0.1", ["[2001:db8::7]:443"], "2001:db8::/64"),
        ("127.0.0.1", ["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        ("127.0.0.1", ["203.0.113.9", "192.0.2.1, 10.0.3.9"], "192.0.2.1"),
        ("127.0.0.1", ["token phones"], "unknown address"),
        ("127.0.0.1", [], "127.0.0.1"),
    ):
        with row(peer, *forwarded):
            assert told(proxies, peer, *forwarded, scheme="https") == f"{client} https"


def test_a_token_is_its_own_client_behind_any_proxy() -> None:
    assert told(["127.0.0.1"], "127.0.0.1", "192.0.2.1", name="phones") == "token phones http"


@pytest.mark.more
def test_the_server_itself_limits_a_client_whatever_it_forwards(
    metrics_file: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    nowhere = ("kafka.bootstrap.servers=127.0.0.1:9", "serve.gateway=true")
    flags = [word for each in nowhere for word in ("--set", each)]
    limited = ("--set", "gateway.rate_limit=3/hour")
    with serving(metrics_file, redis_url, *flags, *limited) as server:
        codes = [
            http_client.post(
                f"{server.url}/v1/reports",
                json={},
                headers={"X-Forwarded-For": f"192.0.2.{number}"},
            ).status_code
            for number in range(4)
        ]
    assert codes == [503, 503, 503, 429], "Kafka is away, and then the limit"


# -- Bodies --------------------------------------------------------------------------------------


def test_a_body_that_is_late_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.1)

    async def trickle(begun: bytes) -> AsyncIterator[bytes]:
        if begun:
            yield begun
        while True:
            await asyncio.sleep(0.02)
            yield b" "

    async def ask(begun: bytes) -> httpx.Response:
        transport = httpx.ASGITransport(client.app, raise_app_exceptions=False)
        async with (
            asyncio.timeout(60),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking,
        ):
            path, json_body = "/v1/metrics/delay/weights", {"Content-Type": "application/json"}
            return await asking.put(path, content=trickle(begun), headers=json_body)

    for begun in (b"", b'{"policy":'):
        with row(begun):
            answer = asyncio.run(ask(begun))
            assert answer.status_code == 408
            assert answer.headers["connection"] == "close"
            assert "not complete after 0.1 seconds" in answer.json()["detail"]
