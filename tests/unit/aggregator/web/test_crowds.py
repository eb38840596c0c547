"""Who may post a crowd to `dither serve`, how large it may be, and where it is counted."""

from pathlib import Path

import httpx
import pytest

from aggregator.config.settings import Access, Settings, Topics, load_settings
from aggregator.errors import SettingsError
from aggregator.features.reader import Reader
from aggregator.storage.store import Store
from aggregator.web import report_routes
from aggregator.web.application import application
from aggregator.web.http.tokens import hash_token
from producers.gateway.crowds import CROWD_TYPE, MAX_CROWD_BODY
from tests.support.reports.crowds import HIDDEN, crowd, key_file, mixed, sealed
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.broker import Broker
from tests.support.running.deployment import wait_until
from tests.support.running.served_application import served_application

TOKENS = {"device": "report", "analyst": "read admin", "relay": "relay"}


def test_only_a_relay_posts_crowds_and_they_may_be_large(store: Store, tmp_path: Path) -> None:
    """Mutants: the route with the scope of reports; the usual limit of a body, or none."""
    topic = (broker := Broker()).topic()
    settings = Settings(kafka=broker.config, topics=Topics(reports=topic, managed=False))
    settings.aggregate.past = "10000d"
    settings.gateway.crowd_keys = str(key_file(tmp_path))
    tokens = {name: f"{hash_token(name)} {scopes}" for name, scopes in TOKENS.items()}
    settings.access = Access(anonymous=["read", "report"], tokens=tokens)
    metrics = {"hidden": HIDDEN}
    gateway = report_routes.gateway(settings, metrics)
    app = application(Reader(store, metrics), settings, gateway=gateway)
    body = crowd(sealed(mixed(60, 40)))
    with served_application(app) as port:
        url = f"http://127.0.0.1:{port}"

        def post(content: bytes, token: str, path: str = "/v1/crowds") -> httpx.Response:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            headers["Content-Type"] = CROWD_TYPE
            return http_client.post(url + path, content=content, headers=headers)

        wait_until(lambda: not gateway._sender.obstacle, "Kafka answers")
        for token, status in (("", 401), ("device", 403), ("analyst", 403), ("relay", 202)):
            with row(token):
                answer = post(body, token)
                assert answer.status_code == status, answer.text
                assert ("--scope relay" in answer.text) == (status != 202)
        for size, path, status in (
            (MAX_CROWD_BODY, "/v1/crowds", 400),  # it is read: it has no label
            (MAX_CROWD_BODY + 1, "/v1/crowds", 413),
            (2 * settings.serve.max_request_bytes, "/v1/reports", 413),
        ):
            assert (
                post(bytes(size), "relay" if "crowds" in path else "", path).status_code == status
            )
        exported = http_client.get(f"{url}/metrics").text
        assert 'dither_crowd_reports_total{fate="accepted",metric="hidden"} 100.0' in exported
        [described] = http_client.get(f"{url}/openapi.json").json()["paths"]["/v1/crowds"].values()
        assert "relay" in described["description"]
        assert described["requestBody"]["content"].keys() == {CROWD_TYPE}
    assert len(broker.batches(topic)) == 1


def test_a_key_that_others_may_read_stops_the_start(tmp_path: Path) -> None:
    keys = key_file(tmp_path)
    keys.chmod(0o644)
    flags = {"gateway.crowd_keys": str(keys)}
    with pytest.raises(SettingsError, match="mode 0644: others may read or change it; `chmod 600"):
        report_routes.gateway(load_settings(flags=flags, environ={}), {})
    environ = {"DITHER_GATEWAY_CROWD_KEYS": "/run/secrets/keys"}
    assert load_settings(environ=environ).gateway.crowd_keys == "/run/secrets/keys"
    with pytest.raises(SettingsError, match="which names a file itself"):
        load_settings(environ={"DITHER_GATEWAY_CROWD_KEYS_FILE": str(keys)})
