"""Small posts take a short way through the server; every check of the whole way is on it, too."""

import asyncio
import contextlib
import gzip
import json
import random
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import uvicorn
from uvicorn.protocols.http import httptools_impl

from aggregator.config.settings import Settings, Topics
from aggregator.features.reader import Reader
from aggregator.storage.store import Store
from aggregator.web import report_routes
from aggregator.web.application import application
from aggregator.web.http import connection_limits
from aggregator.web.http.small_posts import PostProtocol
from aggregator.web.http.tokens import hash_token
from deploy.kafka.cluster import free_ports
from estimators import define
from producers.gateway import Gateway
from producers.gateway.bodies import PROTOBUF_TYPE
from producers.gateway.receiving import Hold
from producers.gateway.sender import Sender
from producers.wire.batch import encode_batch, new_batch_id
from producers.wire.report_batches_pb2 import ReportBatches
from tests.support.paths import ROOT
from tests.support.running.broker import METRICS, Broker
from tests.support.running.deployment import wait_until
from tests.support.running.served_application import Answer, Raw, post, served_application
from tests.support.running.servers import program

LATE = METRICS[0]
PAY = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1])
ALL = {metric.name: metric for metric in (*METRICS, PAY)}
TIME_MS = 1_700_000_000_000
WHOLE_WAY = {"Origin": "https://elsewhere.example"}
"""A post with it takes the whole way, and is otherwise the same."""


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


class Served:
    """A server, the batches that took its short way, and what is on its topic."""

    def __init__(self, port: int, broker: Broker, topic: str, gateway: Gateway) -> None:
        self.port, self.broker, self.topic, self.gateway = port, broker, topic, gateway
        self.short: list[bytes] = []
        post_whole = gateway.post_whole

        def counted(head: Any, body: bytes, *rest: Any, **more: Any) -> None:
            self.short.append(body)
            post_whole(head, body, *rest, **more)

        gateway.post_whole = counted  # type: ignore[method-assign]

    def keys(self) -> list[bytes]:
        return sorted(message.key for message in self.broker.read(self.topic))


@contextlib.contextmanager
def server(store: Store, broker: Broker, **sections: dict[str, Any]) -> Iterator[Served]:
    topic = broker.topic()
    settings = Settings(kafka=broker.config, topics=Topics(reports=topic, managed=False))
    settings.aggregate.past = "10000d"
    for section, values in sections.items():
        for name, value in values.items():
            setattr(getattr(settings, section), name, value)
    gateway = report_routes.gateway(settings, ALL)
    app = application(Reader(store, ALL), settings, gateway=gateway)
    with served_application(app) as port:
        served = Served(port, broker, topic, gateway)
        wait_until(lambda: not gateway._sender.obstacle, "Kafka answers")
        yield served


@pytest.fixture
def served(store: Store, broker: Broker) -> Iterator[Served]:
    with server(store, broker, gateway={"rate_limit": ""}) as found:
        yield found


def batch(key: bytes | None = None) -> bytes:
    return encode_batch(LATE, [1], [1], TIME_MS, key)


def ask(raw: Raw, sent: bytes) -> Answer:
    raw.send(sent)
    return raw.answer()


TOKEN = "dither_device"  # noqa: S105
DEVICE = {"Authorization": f"Bearer {TOKEN}"}
KNOWN = {"metric": "late", "batch_id": "0" * 32, "time": TIME_MS / 1000}
JSON = json.dumps({**KNOWN, "reports": [{"level": 1, "report": 1}]}).encode()
TRUE = encode_batch(PAY, [0], [7], TIME_MS)
CASES: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "a good one": (202, batch(bytes(16)), DEVICE),
    "the last of its connection": (202, batch(bytes(16)), {**DEVICE, "Connection": "close"}),
    "JSON": (202, JSON, {**DEVICE, "Content-Type": "application/json"}),
    "no token": (401, batch(), {}),
    "an unknown token": (401, batch(), {"Authorization": "Bearer dither_other"}),
    "a token for something else": (403, batch(), {"Authorization": "Bearer dither_reader"}),
    "another host": (421, batch(), {**DEVICE, "Host": "evil.example"}),
    "another type": (415, batch(), {**DEVICE, "Content-Type": "text/plain"}),
    "no batch": (400, b"\xff", DEVICE),
    "too large": (413, bytes(2000), DEVICE),
    "a true value without TLS": (403, TRUE, DEVICE),
}


def test_both_ways_answer_alike(store: Store, broker: Broker) -> None:
    tokens = {
        "device": f"{hash_token(TOKEN)} report",
        "reader": f"{hash_token('dither_reader')} read",
    }
    access = {"anonymous": [], "tokens": tokens}
    limits = {"rate_limit": "", "max_body": 1000}
    with server(store, broker, access=access, gateway=limits) as served:
        for name, (status, body, headers) in CASES.items():
            answers = []
            for way in ({}, WHOLE_WAY):
                with Raw(served.port) as raw:
                    answers.append(ask(raw, post(body, **headers, **way)))
            short, whole = answers
            assert (short.status, whole.status) == (status, status), name
            assert short.body == whole.body, name
            for answer in answers:
                del answer.headers["date"]
            assert short.headers == whole.headers, name
        assert len(served.short) == 5, "those that the middleware has nothing to say about"


def test_a_rate_holds_on_both_ways_together(store: Store, broker: Broker) -> None:
    with server(store, broker, gateway={"rate_limit": "3/hour"}) as served, Raw(served.port) as raw:
        found = []
        for way in ({}, WHOLE_WAY, {}, {}, WHOLE_WAY):
            answer = ask(raw, post(batch(), **way))
            found.append(answer.status)
        assert found == [202, 202, 202, 429, 429]
        assert int(answer.headers["retry-after"]) > 3000


def test_a_trusted_proxy_names_the_client_and_its_scheme(store: Store, broker: Broker) -> None:
    forwarded = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    limits = {"rate_limit": "1/hour"}
    with (
        server(store, broker, gateway=limits, serve={"trusted_proxies": ["127.0.0.1"]}) as served,
        Raw(served.port) as raw,
    ):
        other = {**forwarded, "X-Forwarded-For": "192.0.2.2"}
        plain = {"X-Forwarded-For": "192.0.2.3"}
        posts = [post(TRUE, **headers) for headers in (forwarded, forwarded, other, plain)]
        assert [ask(raw, sent).status for sent in posts] == [202, 429, 202, 403]
        assert len(served.short) == 4
    with server(store, broker) as served, Raw(served.port) as raw:
        assert ask(raw, post(TRUE, **forwarded)).status == 403, "anybody can say so"


@pytest.mark.more
def test_nginx_ends_tls_and_names_the_client(store: Store, broker: Broker, tmp_path: Path) -> None:
    nginx = program("nginx", "apt install nginx-light")
    authority, (port,) = trustme.CA(), free_ports(1)
    issued = authority.issue_cert("localhost")
    (tmp_path / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())
    (tmp_path / "tls.key").write_bytes(issued.private_key_pem.bytes())
    context = ssl.create_default_context()
    authority.configure_trust(context)
    config = (ROOT / "deploy/nginx/nginx.conf").read_text()
    limits, trusted = {"rate_limit": "1/hour"}, {"trusted_proxies": ["127.0.0.1"]}
    with server(store, broker, gateway=limits, serve=trusted) as served:
        for text, changed in (
            (" /tmp/", f" {tmp_path}/"),
            ("/etc/dither/tls/", f"{tmp_path}/"),
            ("serve:8080", f"127.0.0.1:{served.port}"),
            ("listen 8443", f"listen 127.0.0.1:{port}"),
        ):
            assert text in config
            config = config.replace(text, changed)
        (tmp_path / "nginx.conf").write_text(config)
        command = [str(nginx), "-p", str(tmp_path), "-c", "nginx.conf", "-g", "daemon off;"]
        with subprocess.Popen(command) as process:
            wait_until((tmp_path / "nginx.pid").is_file, "nginx runs")
            answers = []
            for address in ("127.0.0.1", "127.0.0.1", "127.0.0.2"):
                transport = httpx.HTTPTransport(verify=context, local_address=address)
                with httpx.Client(transport=transport) as client:
                    headers = {"Content-Type": PROTOBUF_TYPE, "X-Forwarded-For": "192.0.2.9"}
                    url = f"https://localhost:{port}/v1/reports"
                    answers.append(client.post(url, content=TRUE, headers=headers).status_code)
            assert answers == [202, 429, 202], "true values, so over TLS; of two clients"
            assert len(served.short) == 3
            process.terminate()


def test_posts_in_pieces_in_chunks_and_in_a_row_are_answered_in_their_order(served: Served) -> None:
    keys = [new_batch_id() for _ in range(8)]
    whole = [post(batch(key)) for key in keys]
    with Raw(served.port) as raw:
        raw.send(b"".join(whole[:5]))  # five in one piece
        for byte in whole[5]:
            raw.send(bytes([byte]))
        body = batch(keys[6])
        head = post(b"", Content_Length="", Transfer_Encoding="chunked")
        raw.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        head, body = whole[7].split(b"\r\n\r\n", 1)
        raw.send(head + b"\r\n\r\n")
        time.sleep(0.02)
        raw.send(body)
        found = [json.loads(raw.answer().body) for _ in keys]
    assert found == [{"batch_id": key.hex(), "reports": 1} for key in keys]
    assert served.keys() == sorted(keys)


def test_two_lengths_are_refused(served: Served) -> None:
    for headers in ({"Transfer_Encoding": "chunked"}, {"Content_Length": "5\r\nContent-Length: 6"}):
        with Raw(served.port) as raw:
            assert ask(raw, post(batch(), **headers)).status == 400
            assert raw.read() == b"", "and the connection ends"
    assert served.keys() == []


ALIVE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_what_is_no_request_is_refused_after_the_posts_before_it(served: Served) -> None:
    key = new_batch_id()
    chunked = post(b"", Content_Length="", Transfer_Encoding="chunked")
    for rest in (b"\xff\xff", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"):
        with Raw(served.port) as raw:
            answer = ask(raw, post(batch(key)) + rest)
            assert answer.status == 202
            assert answer.headers["connection"] == "close"
            assert raw.read() == b""
    with Raw(served.port) as raw:
        assert ask(raw, chunked + b"zz\r\n").status == 400
        assert raw.read() == b""
    with Raw(served.port) as raw:
        assert ask(raw, chunked.replace(b"localhost", b"evil.example")).status == 421
        raw.send(b"zz\r\n")
        assert raw.read() == b"", "it has its answer"


def test_the_body_of_an_upgrade_is_not_mistaken_for_a_request(served: Served) -> None:
    upgrade = {"Connection": "upgrade", "Upgrade": "h2c"}
    for sent in ([post(ALIVE, **upgrade)], [post(ALIVE, **upgrade)[: -len(ALIVE)], ALIVE]):
        with Raw(served.port) as raw:
            for part in sent:
                raw.send(part)
                time.sleep(0.02)
            assert raw.answer().status == 400
            assert raw.read() == b""
    upgraded = ALIVE.replace(b"\r\n\r\n", b"\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    with Raw(served.port) as raw:
        answer = ask(raw, upgraded)
        assert answer.status == 200
        assert answer.headers["connection"] == "close"


def test_waiting_requests_are_not_parsed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, cycle = list[int](), httptools_impl.RequestResponseCycle.__init__

    def counted(one: Any, *rest: Any, **more: Any) -> None:
        cycle(one, *rest, **more)
        waiting.append(len(more["on_response"].__self__.pipeline))

    monkeypatch.setattr(httptools_impl.RequestResponseCycle, "__init__", counted)
    count, key = 2000, new_batch_id()
    with Raw(served.port) as raw:
        sending = threading.Thread(target=raw.send, args=(ALIVE * count + post(batch(key)),))
        sending.start()
        assert [raw.answer().status for _ in range(count)] == [200] * count
        assert json.loads(raw.answer().body)["batch_id"] == key.hex()
        sending.join()
    assert max(waiting) <= connection_limits.PIECE_BYTES / len(ALIVE) + 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let heads and answers take less time."""
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(connection_limits, "UNREAD_SECONDS", 0.3)


@pytest.mark.usefixtures("impatient")
def test_who_takes_no_answer_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, ends = connection_limits.PunctualProtocol.connection_lost, threading.Event()

    def noted(protocol: Any, error: Exception | None) -> None:
        lost(protocol, error)
        ends.set()

    monkeypatch.setattr(connection_limits.PunctualProtocol, "connection_lost", noted)
    with Raw(served.port) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.send(ALIVE.replace(b"/healthz", b"/openapi.json") * 150)  # more than buffers take
        assert ends.wait(120)


BODY = bytes(1_000_000)
BUFFER_BYTES = 16_384


async def large(scope: Any, receive: Any, send: Any) -> None:
    """Answer with more than buffers take; it may begin later than a head may end."""
    await asyncio.sleep(0.6)
    headers = [(b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


def steady(time: Callable[[], float]) -> Iterator[float]:
    """Yield the times of a clock that a pause of this process moves by at most 0.1 seconds."""
    before = shown = time()
    while True:
        yield shown
        before, passed = (now := time()), now - before
        shown += min(passed, 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_client_that_reads_has_its_answer_and_may_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it asks nothing further, and the server waits for nothing but its reading."""
    monkeypatch.setattr(connection_limits, "UNREAD_SECONDS", 1.0)

    async def run(request: bytes, *, asks_again: bool) -> tuple[int, bytes]:
        config = uvicorn.Config(large, lifespan="off", http=PostProtocol, log_level="critical")
        server, loop = uvicorn.Server(config), asyncio.get_running_loop()
        loop.time = steady(loop.time).__next__  # type: ignore[method-assign]
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            client.setblocking(False)
            await loop.sock_connect(client, listening.getsockname())
            await loop.sock_sendall(client, request)
            read = 0
            while read < len(BODY) and (data := await loop.sock_recv(client, 25_000)):
                read += len(data)
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)  # longer than a head may take
            again = b""
            if asks_again:
                await loop.sock_sendall(client, ALIVE)
                again = await loop.sock_recv(client, 25_000)
            client.close()
            server.should_exit = True
            await serving
            return read, again

    read, again = asyncio.run(run(ALIVE, asks_again=True))
    assert read >= len(BODY)
    assert again
    monkeypatch.setattr(connection_limits, "IDLE_SECONDS", 0.3)
    for last in (ALIVE, ALIVE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
        read, _ = asyncio.run(run(last, asks_again=False))
        assert read >= len(BODY)


@pytest.mark.usefixtures("impatient")
def test_whoever_does_not_finish_a_head_is_hung_up_on(served: Served) -> None:
    with Raw(served.port) as silent:
        assert silent.read() == b""
    with Raw(served.port) as trickling:
        trickling.send(b"GET / HTTP/1.1\r\n")
        trickling.socket.settimeout(0.05)
        deadline = time.monotonic() + 60
        with contextlib.suppress(ConnectionError):
            while True:
                assert time.monotonic() < deadline
                trickling.send(b"A: b\r\n")
                with contextlib.suppress(TimeoutError):
                    assert trickling.socket.recv(100) == b""
                    break


def test_a_head_without_end_is_refused(served: Served) -> None:
    with Raw(served.port) as raw:
        assert ask(raw, post(batch(), X="a" * 100_000)).status == 431, "though it came whole"
    for begun in (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /" + b"a" * 100,
        post(b"", Content_Length="", Transfer_Encoding="chunked") + b"0\r\n",
        post(b"", Content_Length="", Transfer_Encoding="chunked") + b"1;",
    ):
        with Raw(served.port) as raw, contextlib.suppress(ConnectionError):
            raw.send(begun)
            sent = 0
            while sent < 50 * connection_limits.HEAD_BYTES:
                raw.send(b"a" * 4096 if begun.endswith((b"a", b";")) else b"a: " + b"b" * 4096)
                sent += 4096
            raise AssertionError("it is read without end")


def test_several_batches_are_acknowledged_each_for_itself(served: Served) -> None:
    keys = [new_batch_id() for _ in range(3)]
    good = [batch(key) for key in keys[:2]]
    with Raw(served.port) as raw:
        body = ReportBatches(batches=good).SerializeToString()
        answer = ask(raw, post(body, "/v1/reports/batches"))
        assert answer.status == 202
        taken = [{"status": 202, "batch_id": key.hex(), "reports": 1} for key in keys]
        assert json.loads(answer.body) == {"batches": taken[:2]}
        known = {**KNOWN, "batch_id": keys[2].hex(), "reports": [{"level": 1, "report": 1}]}
        pay = {"metric": "pay", "time": TIME_MS / 1000, "reports": [{"level": 0, "report": 7}]}
        body = json.dumps([known, {**known, "metric": "lat"}, pay]).encode()
        answer = ask(raw, post(body, "/v1/reports/batches", Content_Type="application/json"))
        assert answer.status == 207
        first, second, third = json.loads(answer.body)["batches"]
        assert first == taken[2]
        assert second["status"] == 400
        assert "'lat'" in second["detail"]
        assert "GET /v1/metrics" in second["remedy"]
        assert third["status"] == 403
        for body in (b"", b"\xff", ReportBatches(batches=[b""] * 1001).SerializeToString()):
            assert ask(raw, post(body, "/v1/reports/batches")).status == 400
        deep = post(b"[" * 100_000, "/v1/reports/batches", Content_Type="application/json")
        assert ask(raw, deep).status == 400
    assert served.keys() == sorted(keys)
    assert served.gateway._memory.reserved == 0


def test_each_batch_of_a_post_counts_as_a_post(store: Store, broker: Broker) -> None:
    with server(store, broker, gateway={"rate_limit": "5/hour"}) as served, Raw(served.port) as raw:
        body = ReportBatches(batches=[batch() for _ in range(5)]).SerializeToString()
        for status in (202, 429):
            assert ask(raw, post(body, "/v1/reports/batches")).status == status


def test_a_failed_batch_keeps_none_waiting(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = sorted(new_batch_id() for _ in range(3))
    send = Sender.send

    def fail_at_the_second(sender: Sender, batch: Any, *rest: Any) -> None:
        if batch.key == keys[1]:
            raise TypeError("a defect")
        send(sender, batch, *rest)

    monkeypatch.setattr(Sender, "send", fail_at_the_second)
    body = ReportBatches(batches=map(batch, keys)).SerializeToString()
    with Raw(served.port) as raw:
        answer = ask(raw, post(body, "/v1/reports/batches"))
    assert answer.status == 207
    assert [one["status"] for one in json.loads(answer.body)["batches"]] == [202, 500, 202]
    assert b"a defect" not in answer.body
    assert served.keys() == [keys[0], keys[2]]
    assert served.gateway._memory.reserved == 0


def test_what_a_compressed_body_may_become_is_reserved_first(store: Store, broker: Broker) -> None:
    limits = {"max_body": 50_000, "max_in_flight": 60_000}
    compressed = post(gzip.compress(batch()), Content_Encoding="gzip")
    with server(store, broker, gateway=limits) as served, Raw(served.port) as raw:
        others = Hold(served.gateway._memory)
        others.reserve(20_000)
        assert [ask(raw, sent).status for sent in (post(batch()), compressed)] == [202, 503]
        others.release()
        assert ask(raw, compressed).status == 202
        bomb = post(gzip.compress(bytes(20_000_000)), Content_Encoding="gzip")
        answer = ask(raw, bomb)
        assert answer.status == 413
        assert b"expands to more than 50000 bytes" in answer.body
        assert served.gateway._memory.reserved == 0


def test_a_server_that_ends_answers_the_posts_that_it_has(
    store: Store, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.gateway.sender.BUSY_SECONDS", 0.5)
    keys = sorted(new_batch_id() for _ in range(6))
    with contextlib.ExitStack() as connections:
        with server(store, broker) as served:
            raws = [connections.enter_context(Raw(served.port)) for _ in range(3)]
            for raw, first, second in zip(raws, keys[::2], keys[1::2], strict=True):
                raw.send(post(batch(first)) + post(batch(second)))
            wait_until(lambda: len(served.short) >= 3, "the posts are there")
        for raw in raws:
            assert [raw.answer().status for _ in range(2)] == [202, 202]
            assert raw.read() == b""
    assert served.keys() == keys


def test_whatever_is_sent_is_answered(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(7)  # 300 connections
    good = [post(batch()), post(gzip.compress(batch()), Content_Encoding="gzip")]
    for _ in range(300):
        data = bytearray(b"".join(rng.choices(good, k=rng.randint(1, 3))))
        for _ in range(rng.choice((0, 1, 3))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with Raw(served.port) as raw, contextlib.suppress(ConnectionError):
            cut = rng.randrange(len(data))
            raw.send(bytes(data[:cut]))
            if rng.random() < 0.5:
                raw.send(bytes(data[cut:]))
            if rng.random() < 0.3:
                with contextlib.suppress(OSError):  # the server has closed the connection already
                    raw.socket.shutdown(1)
            raw.socket.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                assert not raw.read().startswith(b"HTTP/1.1 5")
    with Raw(served.port) as raw:
        assert ask(raw, post(batch())).status == 202
    assert "Traceback" not in caplog.text
    wait_until(lambda: not served.gateway._memory.reserved, "the memory of all posts is given back")
