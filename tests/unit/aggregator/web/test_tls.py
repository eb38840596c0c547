"""`dither serve` over TLS, and with clients that take their time."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from pathlib import Path

import httpx
import pytest
import trustme

from aggregator.cli.main import main
from aggregator.local.deployment import free_port
from aggregator.web.http import connection_limits
from tests.support.running import http_client
from tests.support.running.deployment import wait_until

IDLE_SECONDS = 6
"""httpx keeps a connection for 5 seconds."""

METRICS = """
[metrics.delay]
kind = "mean"
mechanism = "randomized_response"
range = [-60, 180]
levels = [1]
pane = "10m"
"""


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


@pytest.fixture
def serve(
    tmp_path: Path, redis_url: str, files: Files
) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], int]]]:
    """Start `dither serve` with TLS."""
    started: list[subprocess.Popen[bytes]] = []
    (tmp_path / "metrics.toml").write_text(METRICS)

    def start() -> tuple[subprocess.Popen[bytes], int]:
        port = free_port()
        settings = {
            "METRICS": tmp_path / "metrics.toml",
            "REDIS_URL": redis_url,
            "SERVE_PORT": port,
            "SERVE_GATEWAY": "false",
            "PUBLISH_ENABLED": "false",
            "SERVE_TLS_CERTIFICATE": files.certificate,
            "SERVE_TLS_KEY": files.key,
        }
        environ = {f"DITHER_{key}": str(value) for key, value in settings.items()}
        with (tmp_path / "serve.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "aggregator", "serve"],
                env={**os.environ, **environ},
                stdout=log,
                stderr=log,
            )
        started.append(process)

        def listens() -> bool:
            assert process.poll() is None, (tmp_path / "serve.log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, "the server listens")
        return process, port

    yield start
    for process in started:
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)


def shown_name(port: int, context: ssl.SSLContext) -> str:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        found = str(secure.getpeercert())
        assert secure.version() in ("TLSv1.2", "TLSv1.3")

    return str(re.findall(r"\('commonName', '(\w+)'\)", found)[0])


def test_serve_speaks_tls_alone_and_reads_a_renewed_certificate_on_sighup(
    serve: Callable[..., tuple[subprocess.Popen[bytes], int]], files: Files, tmp_path: Path
) -> None:
    process, port = serve()
    context = ssl.create_default_context()
    files.authority.configure_trust(context)
    with httpx.Client(verify=context, base_url=f"https://localhost:{port}") as client:
        assert client.get("/healthz").json() == {"status": "alive"}
    with pytest.raises(httpx.HTTPError):
        http_client.get(f"http://localhost:{port}/healthz")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        http_client.get(f"https://localhost:{port}/healthz")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    files.authority.configure_trust(old)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        shown_name(port, old)

    assert shown_name(port, context) == "first"
    told = (tmp_path / "serve.log").read_text()
    assert told.count("serving") == 1
    assert f"https://127.0.0.1:{port}/" in told
    files.issue("second")
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: shown_name(port, context) == "second", "the renewed certificate")
    files.key.write_text("garbage")
    process.send_signal(signal.SIGHUP)
    log = tmp_path / "serve.log"
    wait_until(lambda: "certificate not reloaded" in log.read_text(), "its refusal in the log")
    assert shown_name(port, context) == "second"


def failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, **tls: object
) -> str:
    for key, value in tls.items():
        monkeypatch.setenv(f"DITHER_SERVE_TLS_{key.upper()}", str(value))
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    assert ended.value.code == 1
    return capsys.readouterr().err


@pytest.fixture
def at_home(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with definitions, beside a Redis."""
    (tmp_path / "metrics.toml").write_text(METRICS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DITHER_REDIS_URL", redis_url)


@pytest.mark.usefixtures("at_home")
def test_a_certificate_that_cannot_be_used_is_told_at_the_start(
    files: Files,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = {"certificate": files.certificate, "key": files.key}
    told = failure(capsys, monkeypatch, **{**good, "key": tmp_path / "nothing"})
    assert "DITHER_SERVE_TLS_KEY: serve.tls_key = " in told
    assert "expected a PEM file that this user can read" in told
    other = Files(tmp_path / "..", files.authority)
    other.certificate, other.key = tmp_path / "other.crt", tmp_path / "other.key"
    other.issue("other")
    told = failure(capsys, monkeypatch, **{**good, "key": other.key})
    assert "KEY_VALUES_MISMATCH" in told
    assert "the key of this certificate" in told
    assert "expected PEM files" in failure(
        capsys, monkeypatch, **{**good, "certificate": tmp_path / "metrics.toml"}
    )
    monkeypatch.delenv("DITHER_SERVE_TLS_KEY")
    monkeypatch.setenv("DITHER_SERVE_TLS_CERTIFICATE", str(files.certificate))
    with pytest.raises(SystemExit):
        main(["serve"])
    assert "serve.tls_key = ''" in capsys.readouterr().err


@pytest.mark.usefixtures("at_home")
def test_a_key_with_a_passphrase_is_refused_rather_than_asked_for(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cryptography.hazmat.primitives import serialization as s

    plain = s.load_pem_private_key(files.key.read_bytes(), None)
    locked = s.BestAvailableEncryption(b"hunter2")
    files.key.write_bytes(plain.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, locked))
    told = failure(capsys, monkeypatch, certificate=files.certificate, key=files.key)
    assert "tls_key is encrypted: expected a key without a passphrase" in told


def test_a_connection_may_idle_for_longer_than_clients_let_it(
    serve: Callable[..., tuple[subprocess.Popen[bytes], int]], files: Files
) -> None:
    _, port = serve()
    trusted = ssl.create_default_context()
    files.authority.configure_trust(trusted)
    connection = HTTPSConnection("localhost", port, context=trusted, timeout=30)
    connection.connect()
    connection.auto_open = 0  # an error, if this one was closed
    for pause in (0, IDLE_SECONDS):
        time.sleep(pause)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status":"alive"}'
    connection.close()


def test_whoever_does_not_finish_a_request_is_hung_up_on(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    import uvicorn

    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.3)

    async def app(scope: object, receive: object, send: Callable[..., object]) -> None:
        await asyncio.sleep(0.6)  # an answer may take longer than a head
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[misc]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[misc]

    async def run() -> tuple[bytes, bytes]:
        config = uvicorn.Config(
            app,
            port=0,
            lifespan="off",
            http=connection_limits.PunctualProtocol,
            log_level="critical",
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        silent = await asyncio.open_connection("127.0.0.1", port)
        trickling = await asyncio.open_connection("127.0.0.1", port)
        good = await asyncio.open_connection("127.0.0.1", port)
        good[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        trickling[1].write(b"GET / HTTP/1.1\r\n")

        async def trickle() -> None:
            while not trickling[1].is_closing():
                trickling[1].write(b"A: b\r\n")
                await asyncio.sleep(0.05)

        trickler = asyncio.create_task(trickle())
        answer = await good[0].readline()
        assert await asyncio.wait_for(silent[0].read(), 10) == b""
        with_trickle = await asyncio.wait_for(_rest(trickling[0]), 10)
        trickler.cancel()
        for _, writer in (silent, trickling, good):
            writer.close()
        server.should_exit = True
        await serving
        return answer, with_trickle

    async def _rest(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read()
        except ConnectionError:
            return b""

    answer, rest = asyncio.run(run())
    assert answer == b"HTTP/1.1 204 No Content\r\n"
    assert rest == b""
