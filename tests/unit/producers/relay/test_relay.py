"""A relay takes what it can use, and the analyst gets each report of a crowd once."""

from __future__ import annotations

import contextlib
import logging
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
from producers.relay import forwarding, intake
from producers.relay.crowd_folder import CrowdFolder
from producers.relay.forwarding import Forwarder
from producers.relay.intake import CrowdRelay
from producers.sealing import decode_crowd
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.served_application import Raw, post, served_application
from tests.unit.producers.relay.crowds import (
    CLOSES_MS,
    KEY,
    LABEL,
    LATE,
    NEXT_LABEL,
    PANE_MS,
    REPORT_BYTES,
    analyst,
    body,
    client_of,
    files,
    sealed,
)

SEALED_TYPE = "application/octet-stream"
WHOLE_WAY = {"Origin": "https://elsewhere.example"}
"""A post with it takes the slow path, and is otherwise the same."""


class Served:
    """A relay behind its server, and its clock."""

    def __init__(self, path: Path, analyst_port: int, **limits: Any) -> None:
        self.path, self.now_ms = path, CLOSES_MS - 1
        folder = CrowdFolder(path)
        client = client_of(path, analyst_port)
        self.relay = CrowdRelay(
            {"late": LATE},
            KEY,
            folder,
            Forwarder(client, folder.parts()),
            clock=lambda: self.now_ms / 1000,
            **limits,
        )
        traffic = Traffic()
        settings = Settings()
        settings.serve.trusted_proxies = ["127.0.0.1"]
        self.app = relay_application(self.relay, settings, traffic)
        self.pages = relay_pages(self.relay, traffic)
        self.port = 0

    def post(self, data: bytes, **headers: str) -> Any:
        given = {"Content_Type": SEALED_TYPE, **headers}
        with Raw(self.port) as raw:
            raw.send(post(data, "/v1/sealed", **given))
            return raw.answer()

    def metrics(self) -> dict[str, float]:
        lines = self.pages["/metrics"]().body.decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith("dither_relay"))
        return {name.removeprefix("dither_relay_"): float(value) for name, _, value in samples}


@contextlib.contextmanager
def served(path: Path, analyst_port: int = 1, **limits: Any) -> Iterator[Served]:
    server = Served(path, analyst_port, **limits)
    with served_application(server.app) as server.port:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "pause", lambda *_: 0.01)


def test_a_definition_is_encoded_once_however_often_it_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    (report,) = sealed(1)
    other_key = LABEL.__class__(bytes(32), *list(vars(LABEL).values())[1:])
    labels = {
        "another key": (other_key, 409),
        "another definition": (_with(fingerprint=bytes(32)), 409),
        "another metric": (_with(metric="early"), 409),
        "no pane begins there": (_with(pane_start_ms=LABEL.pane_start_ms + 1), 409),
        "a pane to come": (_with(pane_start_ms=LABEL.pane_start_ms + 3 * PANE_MS), 409),
        "a crowd that has closed": (_with(pane_start_ms=LABEL.pane_start_ms - PANE_MS), 410),
    }
    rows: dict[str, tuple[bytes, int, dict[str, str]]] = {
        **{name: (body(report, label), status, {}) for name, (label, status) in labels.items()},
        "a good one": (body(report), 202, {}),
        "the same again": (body(report), 202, {}),
        "a byte too many": (body(report + b"x"), 400, {}),
        "a byte too few": (body(report[:-1]), 400, {}),
        "other padding": (body(report)[:-1] + b"x", 400, {}),
        "no post": (b"x", 400, {}),
        "too long": (bytes(2**17 + 1), 413, {}),
        "another type": (body(report), 415, {"Content_Type": "application/json"}),
        "compressed": (body(report), 415, {"Content_Encoding": "gzip"}),
    }
    with served(tmp_path) as server:
        for name, (data, status, headers) in rows.items():
            for way, further in (("fast", {}), ("slow", WHOLE_WAY)):
                with row(name, way):
                    answer = server.post(data, **headers, **further)
                    assert answer.status == status, answer.body
                    assert {*server.relay._open, *server.relay._ending} <= {LABEL}
                    assert not any((tmp_path / "closed").iterdir())
                    assert status == 202 or b'"remedy"' in answer.body
        metrics = server.metrics()
        assert metrics['reports_total{metric="late",outcome="taken"}'] == 4
        assert metrics['waiting_reports{metric="late"}'] == 4
        assert metrics['refused_posts_total{reason="not_in_force"}'] == 10
        assert metrics['refused_posts_total{reason="closed"}'] == 2
        assert metrics['refused_posts_total{reason="malformed"}'] == 8


def _with(**fields: Any) -> Any:
    return type(LABEL)(**{**vars(LABEL), **fields})


def test_a_client_has_one_limit_for_all_labels(tmp_path: Path) -> None:
    with served(tmp_path, rate_limit="2/hour") as server:
        server.now_ms = NEXT_LABEL.pane_start_ms
        addresses = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"]
        statuses = [
            server.post(body(report, label), X_Forwarded_For=address).status
            for address in addresses
            for label, report in zip((LABEL, NEXT_LABEL), sealed(2), strict=True)
        ]
        assert statuses == [202, 202, 202, 202, 202, 202, 429, 429, 202, 202]


def test_a_crowd_is_posted_when_it_closes_and_others_leave_nothing(tmp_path: Path) -> None:
    """The second crowd closes an hour later, with too few reports."""
    reports, few = sealed(120), sealed(99)
    with analyst() as receiver, served(tmp_path, receiver.port) as server:
        for report in reports:
            assert server.post(body(report)).status == 202
        for report in [*few, *few[:50]]:
            assert server.post(body(report, NEXT_LABEL)).status == 202
        assert server.post(body(reports[3])).status == 202
        assert not receiver.bodies
        server.now_ms += 1
        wait_until(lambda: receiver.posts > 0 and not server.relay.forwarder.parts, "it has closed")
        assert server.post(body(reports[3])).status == 410
        assert sorted(receiver.reports) == sorted(reports)
        assert receiver.reports != reports
        assert receiver.tokens == {"Bearer dither_relay"}
        ((_, label, _),) = map(decode_crowd, receiver.bodies.values())
        assert label == LABEL
        server.now_ms += PANE_MS
        wait_until(lambda: server.relay.crowds["late", "too_few"] > 0, "the other has closed")
        assert not files(tmp_path)
        metrics = server.metrics()
        looked_at = server.relay._looked_at + 2 * intake.TICK_SECONDS
        server.now_ms += 100 * PANE_MS
        wait_until(lambda: server.relay._looked_at > looked_at, "it is later than late")
        server.now_ms = CLOSES_MS - 1  # a clock that is set back opens nothing again
        for label in (LABEL, NEXT_LABEL):
            assert server.post(body(reports[3], label)).status == 410
    assert receiver.posts == 1
    assert {name: count for name, count in metrics.items() if "reports" in name} == {
        'reports_total{metric="late",outcome="delivered"}': 120,
        'reports_total{metric="late",outcome="repeated"}': 51,
        'reports_total{metric="late",outcome="taken"}': 270,
        'reports_total{metric="late",outcome="too_few"}': 99,
    }
    assert metrics['crowds_total{metric="late",outcome="shuffled"}'] == 1
    assert metrics['crowds_total{metric="late",outcome="too_few"}'] == 1


def closed_crowd(server: Served) -> list[bytes]:
    reports = sealed(100)
    for report in reports:
        assert server.post(body(report)).status == 202
    server.now_ms = CLOSES_MS
    return reports


def test_a_part_is_posted_until_it_is_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after a restart, with the token that its file then has; 0 is a lost answer."""
    with analyst() as receiver:
        receiver.statuses = [401] * 10**6
        with served(tmp_path, receiver.port) as server:
            reports = closed_crowd(server)
            wait_until(lambda: receiver.posts > 3, "the analyst has refused the token")
            assert b"401: so it is" in server.pages["/readyz"]().body
            assert server.metrics()['parts{metric="late"}'] == 1
            assert server.metrics()["overdue_parts"] == 0
            server.now_ms += PANE_MS // 2 + 1
            assert server.metrics()["overdue_parts"] == 1
            assert server.metrics()['oldest_part_seconds{metric="late"}'] == PANE_MS // 2000 + 0.001
            assert b"1 parts of crowds will soon be too late" in server.pages["/readyz"]().body
            tmp_path.with_suffix(".token").write_text("dither_renewed")
            wait_until(lambda: "Bearer dither_renewed" in receiver.tokens, "the token is renewed")
            tmp_path.with_suffix(".token").unlink()
            wait_until(lambda: b".token" in server.pages["/readyz"]().body, "it is gone")
        receiver.statuses = [503, 0, 403, 500, 0, 413]
        with served(tmp_path, receiver.port) as server:
            wait_until(lambda: not server.relay.forwarder.parts, "it is acknowledged")
            assert server.pages["/readyz"]() == Page(200, b"ready\n")
        assert sorted(receiver.reports) == sorted(reports)
        assert len(receiver.bodies) == 1
        assert not files(tmp_path)


def test_a_crowd_is_posted_once_its_end_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: what follows the removal of a crowd's file is left to a restart."""
    monkeypatch.setattr(intake, "RETRY_SECONDS", 0.05)
    sync, failures = CrowdFolder.sync, [OSError(5, "Input/output error")] * 3

    def failing(folder: CrowdFolder, *names: str) -> None:
        if names == ("closing",) and failures:
            raise failures.pop()
        sync(folder, *names)

    monkeypatch.setattr(CrowdFolder, "sync", failing)
    with analyst() as receiver, served(tmp_path, receiver.port) as server:
        reports = closed_crowd(server)
        wait_until(lambda: b"not yet posted" in server.pages["/readyz"]().body, "it has failed")
        assert not receiver.posts
        wait_until(lambda: receiver.posts > 0 and not server.relay.forwarder.parts, "it is durable")
        assert sorted(receiver.reports) == sorted(reports)
        wait_until(lambda: server.pages["/readyz"]() == Page(200, b"ready\n"), "nothing is wrong")


def test_a_part_that_is_refused_for_good_holds_nothing_back(tmp_path: Path) -> None:
    with analyst() as receiver, served(tmp_path, receiver.port) as server:
        receiver.statuses = [400]
        closed_crowd(server)
        wait_until(lambda: receiver.posts > 0 and not server.relay.forwarder.parts, "it is refused")
        assert server.metrics()['reports_total{metric="late",outcome="refused"}'] == 100
        assert not files(tmp_path)


def test_no_address_is_in_files_and_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    address = "203.0.113.77"
    with analyst() as receiver, served(tmp_path, receiver.port) as server:
        for data in [*map(body, sealed(100)), b"x", body(sealed(1)[0], _with(metric="early"))]:
            server.post(data, X_Forwarded_For=address)
        written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert len(written) > 100 * REPORT_BYTES
        server.now_ms = CLOSES_MS
        wait_until(lambda: receiver.posts > 0 and not server.relay.forwarder.parts, "it has closed")
    told = caplog.text.encode() + written + b"".join(receiver.bodies.values())
    assert address.encode() not in told
    assert bytes(map(int, address.split("."))) not in told


def test_a_full_disk_is_told_and_the_posts_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (report,) = sealed(1)
    with served(tmp_path) as server:
        monkeypatch.setattr(intake, "FREE_BYTES", 2**62)
        wait_until(lambda: server.relay.obstacle != "", "the disk is full")
        assert server.pages["/readyz"]().status == 503
        answer = server.post(body(report))
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        monkeypatch.undo()
        wait_until(lambda: not server.relay.obstacle, "there is room again")
        server.relay._folder.path("open", "").rmdir()
        assert server.post(body(report)).status == 503
        server.relay._folder.path("open", "").mkdir()
        assert server.post(body(report)).status == 202
