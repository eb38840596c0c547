"""What a relay that posts crowds may rely on, and what it cannot bring about."""

import contextlib
import dataclasses
import hashlib
import http.client
import os
import time
import tracemalloc
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from estimators.metrics.crowd import Crowd
from producers.gateway import Gateway
from producers.gateway.bodies import JSON_TYPE, PROTOBUF_TYPE, Times
from producers.gateway.crowds import CROWD_TYPE, MAX_CROWD_BODY, read_keys
from producers.sealing import decode_crowd, key_hash
from producers.wire.batch import encode_batch
from producers.wire.report_batches_pb2 import ReportBatches
from tests.support.reports.crowds import (
    DAY,
    HIDDEN,
    OTHER_KEY,
    PANE,
    crowd,
    key_file,
    mixed,
    public,
    sealed,
)
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.broker import LATE, Broker, count
from tests.support.running.gateway_server import serving

ALL = {metric.name: metric for metric in (HIDDEN, LATE)}
INVALID = b"\x07"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return key_file(tmp_path)


@contextlib.contextmanager
def relaying(
    broker: Broker, topic: str, keys: Path | None, **options: Any
) -> Iterator[tuple[Gateway, Callable[..., httpx.Response]]]:
    gateway = Gateway(ALL, broker.config, topic, crowd_keys=str(keys or ""), **options)
    with serving(gateway) as url:

        def post(body: Any, path: str = "/v1/crowds", media: str = CROWD_TYPE) -> httpx.Response:
            address = url.replace("/v1/reports", path)
            return http_client.post(address, content=body, headers={"Content-Type": media})

        yield gateway, post


def answered(crowd_id: int, reports: int, unopened: int = 0, invalid: int = 0) -> dict[str, Any]:
    counts = {"reports": reports, "unopened": unopened, "invalid": invalid}
    return {"crowd_id": f"{crowd_id:032x}", **counts}


def test_a_crowd_becomes_ordinary_batches_in_order_and_the_same_ones_each_time(
    broker: Broker, topic: str, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a random batch id; reports in the relay's order; the time of the pane's start."""
    monkeypatch.setattr("producers.gateway.crowds.MAX_BATCH_BYTES", 180)
    sent = mixed(zeros=110, ones=90)
    body = crowd(sealed(sent))
    with relaying(broker, topic, keys) as (gateway, post):
        for _ in range(2):
            assert post(body).json() == answered(1, reports=200)
        assert gateway.crowds.counts["hidden", "accepted"] == 400
    messages = broker.read(topic)
    by_key = {message.key: message.batch for message in messages}
    assert len(messages) == 2 * len(by_key) == 6, "of at most 90 reports each"
    ids = [
        hashlib.sha256(b"dither crowd part\0" + (1).to_bytes(16) + i.to_bytes(4)).digest()[:16]
        for i in range(3)
    ]
    assert by_key.keys() == {*ids}
    for message in messages:
        assert message.batch == by_key[message.key]
        assert message.batch.batch_id == message.key
        assert message.batch.time_ms == PANE + DAY - 1
    batches = [by_key[key] for key in ids]
    assert [len(batch.levels) for batch in batches] == [90, 90, 20]
    assert b"".join(batch.values for batch in batches) == bytes(sorted(sent))
    assert count(HIDDEN, batches).tolist() == [200, 90]


def test_bad_reports_are_counted_and_void_no_others(broker: Broker, topic: str, keys: Path) -> None:
    """However many they are: here more than half.

    Mutants: the check of a whole batch, without a look at each report; a bound on the bad ones.
    """
    good = mixed(50, 40)
    unopened = [*sealed(b"\0\1", pane_start_ms=PANE + DAY), *sealed(b"\0\1", OTHER_KEY)]
    body = crowd([*sealed(INVALID * 92), *unopened, *[os.urandom(49)] * 2, *sealed(good)])
    with relaying(broker, topic, keys) as (gateway, post):
        assert post(body).json() == answered(1, reports=90, unopened=6, invalid=92)
        counted = {outcome: n for (_, outcome), n in gateway.crowds.counts.items()}
        assert counted == {"accepted": 90, "unopened": 6, "invalid": 92}
    assert b"".join(batch.values for batch in broker.batches(topic)) == bytes(sorted(good))


def test_what_is_no_crowd_is_refused_for_good(broker: Broker, topic: str, keys: Path) -> None:
    good = sealed(mixed(60, 40))
    whole = crowd(good)
    head = len(whole) - 100 * 49
    changed = dataclasses.replace(HIDDEN, crowd=Crowd(minimum=200, wait="12h"))
    plain = {"metric": "late", "fingerprint": LATE.fingerprint}
    others = sealed(b"\1" * 11, OTHER_KEY)
    refusals: dict[str, tuple[bytes, str]] = {
        "99 reports": (crowd(good[1:]), "99 reports: expected 100 or more"),
        "too many unopened": (crowd([*good[:89], *others]), "89 of 100 reports open and are"),
        "too many invalid": (crowd([*good[:89], *sealed(INVALID * 11)]), "valid: expected 90"),
        "the other key": (crowd(good, key_hash=key_hash(public(OTHER_KEY))), "0 of 100 reports"),
        "another pane": (crowd(good, pane_start_ms=PANE + DAY), "0 of 100 reports"),
        "no pane": (crowd(good, pane_start_ms=PANE + 1), "multiple of 86400000"),
        "another metric": (crowd(good, **plain), "no crowd"),
        "wide reports": (crowd([bytes(50)] * 100), "sealed reports of 50 bytes: expected 49"),
        "cut": (whole[:-1], "expected equal lengths"),
        "cut in its label": (whole[:40], "label"),
        "empty": (b"", "label"),
        "claims 2^32 - 1": (whole[: head - 4] + b"\xff" * 4 + whole[head:], "4294967295 reports"),
    }
    delays: dict[str, tuple[bytes, str]] = {  # the server's own files may be behind
        "another key": (crowd(good, key_hash=bytes(32)), "key_hash"),
        "another definition": (crowd(good, fingerprint=changed.fingerprint), "wrong_revision"),
        "no metric": (crowd(good, metric="hiden"), "did you mean 'hidden'"),
    }
    with relaying(broker, topic, keys) as (gateway, post):
        for status, rows, said in (
            (503, delays, "post the same bytes again"),
            (400, refusals, "drop this crowd"),
        ):
            assert not gateway.crowds.counts
            for name, (body, told) in rows.items():
                with row(name):
                    answer = post(body)
                    assert answer.status_code == status, answer.text
                    assert told in answer.json()["detail"]
                    assert said in answer.json()["remedy"]
                    assert ("retry-after" in answer.headers) == (status == 503)
        assert {outcome for _, outcome in gateway.crowds.counts} == {"refused"}
        assert post(whole, media=JSON_TYPE).status_code == 415
        assert post(bytes(MAX_CROWD_BODY + 1)).status_code == 413
    with relaying(broker, topic, keys, times=Times(future=600, past=86_400)) as (_, post):
        assert "too_old" in post(whole).json()["detail"]
        last = crowd(good, pane_start_ms=(2**63 - 1) // DAY * DAY)
        assert "future" in post(last).json()["detail"]
    assert not broker.batches(topic)


def test_a_post_that_claims_many_reports_takes_no_memory() -> None:
    """Mutant: `decode_crowd` without a least size: each report of one byte is an object."""
    claimed = crowd([b"\0" * 49])[:-53]
    for reports in (2**32 - 1, 2**24, 2**23):
        body = claimed + reports.to_bytes(4) + bytes(2**24)
        tracemalloc.start()
        with row(reports), pytest.raises(ValueError, match="expected equal lengths of at least 48"):
            decode_crowd(body)
        assert tracemalloc.get_traced_memory()[1] < 2**16
        tracemalloc.stop()


def test_a_post_without_body_keeps_no_other_waiting(broker: Broker, topic: str, keys: Path) -> None:
    with relaying(broker, topic, keys) as (_, post):
        address = urllib.parse.urlsplit(str(post(b"").url))
        slow = http.client.HTTPConnection(str(address.hostname), address.port)
        with contextlib.closing(slow):
            headers = {"Content-Type": CROWD_TYPE, "Content-Length": "99"}
            slow.request("POST", "/v1/crowds", iter([b"\0"]), headers)
            time.sleep(0.3)
            assert post(crowd(sealed(mixed(60, 40)))).status_code == 202


def test_a_server_without_key_keeps_a_crowd_waiting(broker: Broker, topic: str, keys: Path) -> None:
    body = crowd(sealed(mixed(60, 40)))
    with relaying(broker, topic, None) as (_, post):
        assert "gateway.crowd_keys" in post(body).json()["detail"]
    with relaying(broker, topic, keys) as (_, post):
        for mode, status in ((0o644, 503), (0o640, 202)):
            keys.chmod(mode)
            assert post(body).status_code == status
    for content, told in (("", "an empty file"), ("11" * 31, "64 hexadecimal digits")):
        keys.write_text(content)
        with row(content), pytest.raises(ValueError, match=told):
            read_keys(keys)


def test_a_crowds_reports_come_sealed_or_not_at_all(broker: Broker, topic: str, keys: Path) -> None:
    report = encode_batch(HIDDEN, [0], [1], PANE)
    as_json = b'{"metric": "hidden", "reports": [{"level": 0, "report": 1}]}'
    several = ReportBatches(batches=[report]).SerializeToString()
    with relaying(broker, topic, keys) as (_, post):
        for media, body, bodies in (
            (PROTOBUF_TYPE, report, several),
            (JSON_TYPE, as_json, b"[" + as_json + b"]"),
        ):
            with row(media):
                answer = post(body, "/v1/reports", media)
                assert answer.status_code == 400
                assert "not_sealed: hidden has a crowd" in answer.json()["detail"]
                assert "relay=" in answer.json()["remedy"]
                [outcome] = post(bodies, "/v1/reports/batches", media).json()["batches"]
                assert (outcome["status"], outcome["detail"][:10]) == (400, "not_sealed")
    assert not broker.batches(topic)
