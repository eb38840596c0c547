"""`dither serve` over TLS."""

import contextlib
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import uvicorn
import uvloop

from aggregator.cli.main import main
from aggregator.web.http.connection_limits import BUFFER_BYTES
from aggregator.web.http.small_posts import PostProtocol
from deploy.kafka.cluster import free_ports
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.processes import answering
from tests.support.running.served_application import served

pytestmark = pytest.mark.usefixtures("metrics_file")


class Files:
    """A certificate and its key on disk."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.authority = authority

    def issue(self, name: str) -> None:
        issued = self.authority.issue_cert("localhost", common_name=name)
        self.certificate.write_bytes(b"".join(b.bytes() for b in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path, trustme.CA())
    files.issue("first")
    return files


@contextlib.contextmanager
def serve(folder: Path, redis_url: str, files: Files) -> Iterator[tuple[Any, int]]:
    """Run `dither serve` with TLS until it is told to end."""
    (port,) = free_ports(1)
    settings = {
        "METRICS": folder / "metrics.toml",
        "REDIS_URL": redis_url,
        "SERVE_PORT": port,
        "SERVE_GATEWAY": "false",
        "PUBLISH_ENABLED": "false",
        "SERVE_TLS_CERTIFICATE": files.certificate,
        "SERVE_TLS_KEY": files.key,
    }
    environ = os.environ | {f"DITHER_{key}": str(value) for key, value in settings.items()}
    command = [sys.executable, "-m", "aggregator", "serve"]

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with answering(command, folder / "serve.log", listens, env=environ) as process:
        yield process, port
    assert process.returncode in (0, -signal.SIGTERM)


def shown_name(port: int, context: ssl.SSLContext) -> str:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        found = str(secure.getpeercert())
        assert secure.version() in ("TLSv1.2", "TLSv1.3")
        secure.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert secure.recv(1000).startswith(b"HTTP/1.1 200")
        assert secure.session is None or not secure.session.has_ticket, "it would mark the client"
    return str(re.findall(r"\('commonName', '(\w+)'\)", found)[0])


def test_serve_has_tls_and_renews_on_sighup(files: Files, redis_url: str, tmp_path: Path) -> None:
    context, old = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for each in (context, old):
        files.authority.configure_trust(each)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    log = tmp_path / "serve.log"
    with serve(tmp_path, redis_url, files) as (process, port):
        with httpx.Client(verify=context, base_url=f"https://localhost:{port}") as client:
            assert client.get("/healthz").json() == {"status": "alive"}
        with pytest.raises(httpx.HTTPError):
            http_client.get(f"http://localhost:{port}/healthz")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            http_client.get(f"https://localhost:{port}/healthz")
        with pytest.raises((ssl.SSLError, OSError)):
            shown_name(port, old)
        assert shown_name(port, context) == "first"
        told = log.read_text()
        assert told.count("serving") == 1
        assert f"https://127.0.0.1:{port}/" in told
        files.issue("second")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: shown_name(port, context) == "second", "the renewed certificate")
        files.issue("third")
        files.key.write_text("garbage")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "certificate not reloaded" in log.read_text(), "its refusal in the log")
        assert shown_name(port, context) == "second"


def test_a_certificate_that_cannot_be_used_is_told_at_the_start(
    files: Files,
    tmp_path: Path,
    redis_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key with a passphrase is refused rather than asked for."""
    from cryptography.hazmat.primitives import serialization as s

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DITHER_REDIS_URL", redis_url)
    other, locked = tmp_path / "other.key", tmp_path / "locked.key"
    other.write_bytes(files.authority.issue_cert("localhost").private_key_pem.bytes())
    plain, phrase = files.key.read_bytes(), s.BestAvailableEncryption(b"hunter2")
    key = s.load_pem_private_key(plain, None)
    locked.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, phrase))
    for certificate, path, words in (
        (files.certificate, tmp_path / "nothing", "DITHER_SERVE_TLS_KEY: serve.tls_key = "),
        (files.certificate, tmp_path / "nothing", "expected a PEM file that this user can read"),
        (files.certificate, other, "KEY_VALUES_MISMATCH"),
        (files.certificate, other, "the key of this certificate"),
        (tmp_path / "metrics.toml", files.key, "expected PEM files"),
        (files.certificate, locked, "tls_key is encrypted: expected a key without a passphrase"),
        (files.certificate, "", "serve.tls_key = ''"),
    ):
        with row(certificate, path, words):
            monkeypatch.setenv("DITHER_SERVE_TLS_CERTIFICATE", str(certificate))
            monkeypatch.setenv("DITHER_SERVE_TLS_KEY", str(path))
            with pytest.raises(SystemExit) as ended:
                main(["serve"])
            assert ended.value.code == 1
            assert words in capsys.readouterr().err


def test_an_answer_that_is_not_read_waits_in_small_buffers(files: Files) -> None:
    protocols, written = list[PostProtocol](), list[int]()

    class Noted(PostProtocol):
        def connection_made(self, transport: Any) -> None:
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
            super().connection_made(transport)
            protocols.append(self)

    async def pieces(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(500):
            await send({"type": "http.response.body", "body": bytes(16_384), "more_body": True})
            written.append(16_384)

    config = uvicorn.Config(
        pieces,
        port=0,
        lifespan="off",
        http=Noted,
        log_level="critical",
        timeout_graceful_shutdown=1,
        ssl_certfile=files.certificate,
        ssl_keyfile=files.key,
    )
    context = ssl.create_default_context()
    files.authority.configure_trust(context)
    with served(config, uvloop.run) as port, socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        plain.connect(("127.0.0.1", port))
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: any(one.flow.write_paused for one in protocols), "it is full")
            assert sum(written) <= 4 * BUFFER_BYTES
