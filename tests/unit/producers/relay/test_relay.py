"""A relay takes what it can use, and the analyst gets each report of a crowd once."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregator.config.settings import Settings
from aggregator.health_port import Page
from aggregator.reading import serialization
from aggregator.web.http.traffic import Traffic
from aggregator.web.relay_application import relay_application, relay_pages
from estimators import define
from producers.gateway.problems import Problem
from producers.gateway.rate_limits import UNKNOWN_CLIENT
from producers.gateway.receiving import Head
from producers.relay import forwarding, intake
from producers.relay.crowd_folder import CrowdFolder
from producers.relay.intake import CrowdRelay
from producers.sealing import CrowdLabel, encode_post
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.served_application import Answer, Raw, post, served_application
from tests.unit.producers.relay.crowds import (
    CLOSES_MS,
    KEY,
    LABEL,
    LATE,
    NEXT_LABEL,
    PANE_MS,
    REPORT_BYTES,
    files,
    forwarder_of,
    sealed,
    serving,
)

WHOLE_WAY = {"Origin": "https://elsewhere.example"}
"""A post with it takes the slow path, and is otherwise the same."""


class Served:
    """A relay behind its server, and its clock."""

    def __init__(self, path: Path, service_port: int, **limits: Any) -> None:
        self.now_ms, self.port, traffic, settings = CLOSES_MS - 1, 0, Traffic(), Settings()
        self.forwarder = forwarder_of(path, service_port)
        self.relay = CrowdRelay(
            {"late": LATE}, KEY, self.forwarder, clock=lambda: self.now_ms / 1000, **limits
        )
        settings.serve.trusted_proxies = ["127.0.0.1"]
        self.app = relay_application(self.relay, settings, traffic)
        self.pages = relay_pages(self.relay, traffic)

    def post(self, report: bytes, label: CrowdLabel = LABEL, **headers: str) -> Answer:
        return self.post_body(encode_post(label, report), **headers)

    def post_body(self, body: bytes, **headers: str) -> Answer:
        given = {"Content_Type": "application/octet-stream", **headers}
        with Raw(self.port) as raw:
            raw.send(post(body, "/v1/sealed", **given))
            return raw.answer()

    def close_crowd(self) -> list[bytes]:
        """Let 100 reports arrive, and their crowd close."""
        reports = sealed(100)
        assert {self.post(report).status for report in reports} == {202}
        self.now_ms = CLOSES_MS
        return reports

    @property
    def readiness(self) -> Page:
        return self.pages["/readyz"]()

    def metrics(self) -> dict[str, float]:
        lines = self.pages["/metrics"]().body.decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith("dither_relay"))
        return {name.removeprefix("dither_relay_"): float(value) for name, _, value in samples}


@contextlib.contextmanager
def served(path: Path, service_port: int = 1, **limits: Any) -> Iterator[Served]:
    server = Served(path, service_port, **limits)
    with served_application(server.app) as server.port:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "TURN_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "pause", lambda *_: 0.01)


def test_a_definition_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as relay:
        url = f"http://127.0.0.1:{relay.port}/v1/metrics/late"
        first = http_client.get(url)
        assert first.json()["revision"] == LATE.revision
        monkeypatch.setattr(serialization, "definition", None)
        assert http_client.get(url).content == first.content
        known = {"If-None-Match": first.headers["etag"]}
        assert http_client.get(url, headers=known).status_code == 304
        monkeypatch.undo()
        relay.relay.metrics = {
            "late": define(name="late", kind="mean", mechanism="laplace", range=(0, 1), levels=[2])
        }
        assert http_client.get(url).json()["levels"] == [2]


def test_posts_get_the_status_that_says_what_a_device_has_to_do(tmp_path: Path) -> None:
    """Each on the fast and on the slow path."""
    (report,), pane_ms = sealed(1), LABEL.pane_start_ms
    good = encode_post(LABEL, report)
    labels: dict[str, tuple[dict[str, Any], int]] = {
        "another key": ({"key_hash": bytes(32)}, 409),
        "another definition": ({"fingerprint": bytes(32)}, 409),
        "another metric": ({"metric": "early"}, 409),
        "no pane begins there": ({"pane_start_ms": pane_ms + 1}, 409),
        "a pane to come": ({"pane_start_ms": pane_ms + 3 * PANE_MS}, 409),
        "a crowd that has closed": ({"pane_start_ms": pane_ms - PANE_MS}, 410),
    }
    rows: dict[str, tuple[bytes, int, dict[str, str]]] = {
        name: (encode_post(dataclasses.replace(LABEL, **changes), report), status, {})
        for name, (changes, status) in labels.items()
    } | {
        "a good one": (good, 202, {}),
        "the same again": (good, 202, {}),
        "a byte too many": (encode_post(LABEL, report + b"x"), 400, {}),
        "other padding": (good[:-1] + b"x", 400, {}),
        "no post": (b"x", 400, {}),
        "too long": (bytes(2**17 + 1), 413, {}),
        "another type": (good, 415, {"Content_Type": "application/json"}),
        "compressed": (good, 415, {"Content_Encoding": "gzip"}),
    }
    with served(tmp_path) as server:
        for name, (data, status, headers) in rows.items():
            for way, further in (("fast", {}), ("slow", WHOLE_WAY)):
                with row(name, way):
                    answer = server.post_body(data, **headers, **further)
                    assert answer.status == status, answer.body
                    assert server.relay._open.keys() <= {LABEL}
                    assert not any((tmp_path / "closed").iterdir())
                    assert status == 202 or b'"remedy"' in answer.body
        metrics = server.metrics()
        assert metrics['reports_total{metric="late",outcome="taken"}'] == 4
        assert metrics['waiting_reports{metric="late"}'] == 4
        for code, count in ((409, 10), (410, 2), (400, 6)):
            assert metrics[f'refused_posts_total{{status="{code}"}}'] == count


def test_a_client_has_one_limit_for_all_labels(tmp_path: Path) -> None:
    with served(tmp_path, rate_limit="2/hour") as server:
        server.now_ms = NEXT_LABEL.pane_start_ms
        addresses = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"]
        statuses = [
            server.post(report, label, X_Forwarded_For=address).status
            for address in addresses
            for label, report in zip((LABEL, NEXT_LABEL), sealed(2), strict=True)
        ]
        assert statuses == [202, 202, 202, 202, 202, 202, 429, 429, 202, 202]
        refused = server.post(sealed(1)[0], X_Forwarded_For=addresses[0])
        assert (refused.headers["retry-after"], b"batch" in refused.body) == ("3600", False)


def test_a_crowd_is_posted_when_it_closes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The second crowd closes an hour later, with too few reports. No address is kept."""
    caplog.set_level(logging.DEBUG)
    reports, few, address = sealed(120), sealed(99), "203.0.113.77"
    with serving() as service, served(tmp_path, service.port) as server:
        for report in [*reports, reports[3]]:
            assert server.post(report, X_Forwarded_For=address).status == 202
        for report in [*few, *few[:50]]:
            assert server.post(report, NEXT_LABEL).status == 202
        assert server.post(reports[3][1:], X_Forwarded_For=address).status == 400
        written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert len(written) > 100 * REPORT_BYTES
        assert not service.bodies
        server.now_ms += 1
        wait_until(lambda: not files(tmp_path)[1:], "the service has it")
        assert server.post(reports[3]).status == 410
        assert sorted(service.reports) == sorted(reports) != service.reports
        assert service.tokens == {"Bearer dither_relay"}
        server.now_ms += PANE_MS
        wait_until(lambda: not files(tmp_path), "the other has closed")
        metrics = server.metrics()
        looked_at = server.relay._looked_at + 2 * intake.TICK_SECONDS
        server.now_ms += 100 * PANE_MS
        wait_until(lambda: server.relay._looked_at > looked_at, "it is later than late")
        server.now_ms = CLOSES_MS - 1  # a clock that is set back opens nothing again
        for label in (LABEL, NEXT_LABEL):
            assert server.post(reports[3], label).status == 410
    assert service.posts == 1
    counts = {name: count for name, count in metrics.items() if count and "_total" in name}
    assert counts == {
        'reports_total{metric="late",outcome="delivered"}': 120,
        'reports_total{metric="late",outcome="repeated"}': 51,
        'reports_total{metric="late",outcome="taken"}': 270,
        'reports_total{metric="late",outcome="too_few"}': 99,
        'refused_posts_total{status="400"}': 1,
        'refused_posts_total{status="410"}': 1,
        'crowds_total{metric="late",outcome="shuffled"}': 1,
        'crowds_total{metric="late",outcome="too_few"}': 1,
    }
    told = caplog.text.encode() + written + b"".join(service.bodies.values())
    assert address.encode() not in told
    assert bytes(map(int, address.split("."))) not in told


def test_a_part_is_posted_until_it_is_acknowledged_or_refused_for_good(tmp_path: Path) -> None:
    """Also after a restart, with the token that its file then has; 500: it has been taken."""
    with serving() as service:
        service.statuses = [401] * 10**6
        with served(tmp_path, service.port) as server:
            reports = server.close_crowd()
            wait_until(lambda: service.posts > 3, "the service has refused the token")
            assert b"401: so it is" in server.readiness.body
            assert server.metrics()['parts{metric="late"}'] == 1
            assert server.metrics()["overdue_parts"] == 0
            (foreign := tmp_path / "out/foreign").touch()
            assert b"out/foreign: not a file of a relay" in server.readiness.body
            foreign.unlink()
            server.now_ms += PANE_MS // 2 + 1
            assert server.metrics()["overdue_parts"] == 1
            assert b"1 parts of crowds will soon be too late" in server.readiness.body
            tmp_path.with_suffix(".token").write_text("dither_renewed")
            wait_until(lambda: "Bearer dither_renewed" in service.tokens, "the token is renewed")
            tmp_path.with_suffix(".token").unlink()
            wait_until(lambda: b".token" in server.readiness.body, "it is gone")
        service.statuses = [503, 500, 403, 500, 413, 202, 400]
        with served(tmp_path, service.port) as server:
            wait_until(lambda: not files(tmp_path), "it is acknowledged")
            wait_until(lambda: server.readiness == Page(200, b"ready\n"), "nothing is left to do")
            for report in sealed(100):
                server.post(report, NEXT_LABEL)
            server.now_ms += PANE_MS + 1
            wait_until(lambda: not files(tmp_path), "the next is refused")
            refused = 'reports_total{metric="late",outcome="refused"}'
            wait_until(lambda: server.metrics().get(refused) == 100, "they are counted")
    assert sorted(service.reports) == sorted(reports)
    assert len(service.bodies) == 1


def test_a_crowd_is_posted_once_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what follows the removal of a crowd's file is left to a restart."""
    monkeypatch.setattr(forwarding, "RETRY_SECONDS", 0.05)
    sync, failures = CrowdFolder.sync, [OSError(5, "Input/output error")] * 3

    def failing(folder: CrowdFolder, *names: str) -> None:
        if names == ("closing",) and failures:
            raise failures.pop()
        sync(folder, *names)

    monkeypatch.setattr(CrowdFolder, "sync", failing)
    with serving() as service, served(tmp_path, service.port) as server:
        reports = server.close_crowd()
        wait_until(lambda: b"not yet posted" in server.readiness.body, "it has failed")
        assert not service.posts
        wait_until(lambda: not files(tmp_path), "it is durable")
        assert sorted(service.reports) == sorted(reports)
        wait_until(lambda: server.readiness == Page(200, b"ready\n"), "nothing is wrong")


def test_posts_return_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it refuses does not count against a client's limit."""
    (report,) = sealed(1)
    with served(tmp_path, rate_limit="2/hour") as server:
        monkeypatch.setattr(intake, "FREE_BYTES", 2**62)
        wait_until(lambda: server.relay.obstacle != "", "the disk is full")
        assert server.readiness.status == 503
        for _ in range(2):
            answer = server.post(report)
            assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        monkeypatch.undo()
        wait_until(lambda: not server.relay.obstacle, "there is room again")
        (tmp_path / "open").rmdir()
        for _ in range(2):
            assert server.post(report).status == 503
        (tmp_path / "open").mkdir()
        wait_until(lambda: not server.relay.obstacle, "the disk takes reports again")
        assert server.post(report).status == 202


def test_a_slow_disk_keeps_no_report_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two reports comes while the first is written, just before their crowd ends.

    Mutant: the crowds that end are listed after what waited has been written.
    """
    for name in ("GROUP_SECONDS", "TICK_SECONDS"):
        monkeypatch.setattr(intake, name, 3_600)
    is_writing, may_write, fdatasync = threading.Event(), threading.Event(), os.fdatasync

    def slow(descriptor: int) -> None:
        is_writing.set()
        may_write.wait(30)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    server, answers = Served(tmp_path, 1), list[Problem | None]()

    async def end_crowd() -> None:
        async with server.relay as relay:
            for report, now_ms in zip(sealed(2), (CLOSES_MS - 1, CLOSES_MS), strict=True):
                body = encode_post(LABEL, report)
                head = Head("application/octet-stream", len(body), "")
                relay.post_whole(
                    head,
                    body,
                    UNKNOWN_CLIENT,
                    lambda _, problem: answers.append(problem),
                    is_secret=False,
                )
                server.now_ms = now_ms
                relay._close_due_crowds()
                is_writing.wait()
            may_write.set()

    asyncio.run(end_crowd())
    assert answers == [None, None]
    assert not any((tmp_path / "open").iterdir())
