"""What a relay that posts crowds may rely on, and what it cannot bring about."""

from __future__ import annotations

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

from estimators import define
from estimators.metrics.crowd import Crowd
from producers import Reporter
from producers.gateway import Gateway
from producers.gateway.bodies import JSON_TYPE, PROTOBUF_TYPE, Times
from producers.gateway.crowds import CROWD_TYPE, MAX_CROWD_BODY, read_keys
from producers.sealing import CrowdLabel, decode_crowd, key_hash
from producers.wire.batch import encode_batch
from producers.wire.report_batches_pb2 import ReportBatches
from tests.support.reports import crowds
from tests.support.reports.crowds import KEY, OTHER_KEY, key_file, label_of, mixed, public
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.broker import LATE, Broker, count
from tests.support.running.gateway_server import serving

DAY = 86_400_000
PANE = 19_700 * DAY
CROWD = {"minimum": 100, "wait": "12h"}
HIDDEN = define(
    name="hidden",
    kind="mean",
    mechanism="randomized_response",
    range=(0, 1),
    levels=[3],
    pane="1d",
    lateness="2d",
    crowd=CROWD,
)
ALL = {metric.name: metric for metric in (HIDDEN, LATE)}
INVALID = b"\x07"


def label(**changes: Any) -> CrowdLabel:
    return label_of(HIDDEN, PANE, **changes)


def sealed(values: bytes, under: CrowdLabel | None = None, private: str = KEY) -> list[bytes]:
    return crowds.sealed(values, under or label(), private)


def crowd(reports: list[bytes], under: CrowdLabel | None = None) -> bytes:
    return crowds.crowd(reports, under or label())


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
            headers = {"Content-Type": media}
            address = url.replace("/v1/reports", path)
            return http_client.post(address, content=body, headers=headers)

        yield gateway, post


def test_a_crowd_becomes_ordinary_batches_in_order_and_the_same_ones_each_time(
    broker: Broker, topic: str, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a random batch id; reports in the relay's order; the time of the pane's start."""
    monkeypatch.setattr("producers.gateway.crowds.MAX_BATCH_BYTES", 180)
    sent = mixed(zeros=110, ones=90)
    body = crowd(sealed(sent))
    with relaying(broker, topic, keys) as (gateway, post):
        for _ in range(2):
            answer = post(body)
            assert answer.status_code == 202, answer.text
            assert answer.json() == {
                "crowd_id": f"{1:032x}",
                "reports": 200,
                "unopened": 0,
                "invalid": 0,
            }
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
    direct = HIDDEN.zero()
    HIDDEN.accumulate(direct, [0] * 200, list(sent))
    assert (count(HIDDEN, batches) == direct).all()


def test_a_few_bad_reports_are_counted_and_void_no_others(
    broker: Broker, topic: str, keys: Path
) -> None:
    """However many they are: here more than half.

    Mutants: the check of a whole batch, without a look at each report; a bound on the bad ones.
    """
    good, bad = mixed(50, 40), INVALID * 92
    unopened = [
        *sealed(b"\0\1", label(pane_start_ms=PANE + DAY)),
        *sealed(b"\0\1", private=OTHER_KEY),
    ]
    changed = bytearray(sealed(b"\1")[0])
    changed[40] ^= 1
    body = crowd([*sealed(bad), *unopened, bytes(changed), os.urandom(49), *sealed(good)])
    with relaying(broker, topic, keys) as (gateway, post):
        answer = post(body)
        assert answer.status_code == 202, answer.text
        assert answer.json() | {"crowd_id": ""} == {
            "crowd_id": "",
            "reports": 90,
            "unopened": 6,
            "invalid": 92,
        }
        counted = {outcome: n for (_, outcome), n in gateway.crowds.counts.items()}
        assert counted == {"accepted": 90, "unopened": 6, "invalid": 92}
    assert b"".join(batch.values for batch in broker.batches(topic)) == bytes(sorted(good))


def test_what_is_no_crowd_is_refused_for_good(broker: Broker, topic: str, keys: Path) -> None:
    good = sealed(mixed(60, 40))
    whole = crowd(good)
    head = len(whole) - 100 * 49
    changed = dataclasses.replace(HIDDEN, crowd=Crowd(minimum=200, wait="12h"))
    refusals: dict[str, tuple[bytes, str]] = {
        "99 reports": (crowd(good[1:]), "99 reports: expected 100 or more"),
        "too many unopened": (
            crowd([*good[:89], *sealed(b"\1" * 11, private=OTHER_KEY)]),
            "89 of 100 reports open and are valid: expected 90",
        ),
        "too many invalid": (crowd([*good[:89], *sealed(INVALID * 11)]), "89 of 100 reports"),
        "both": (
            crowd([*good[:89], *sealed(INVALID * 6), *sealed(b"\1" * 5, private=OTHER_KEY)]),
            "89 of 100 reports",
        ),
        "the other key": (
            crowd(good, label(key_hash=key_hash(public(OTHER_KEY)))),
            "0 of 100 reports",
        ),
        "another pane": (crowd(good, label(pane_start_ms=PANE + DAY)), "0 of 100 reports"),
        "no pane": (crowd(good, label(pane_start_ms=PANE + 1)), "multiple of 86400000"),
        "another metric": (
            crowd(good, label(metric="late", fingerprint=LATE.fingerprint)),
            "no crowd",
        ),
        "wide reports": (crowd([bytes(50)] * 100), "sealed reports of 50 bytes: expected 49"),
        "cut": (whole[:-1], "expected equal lengths"),
        "cut in its label": (whole[:40], "label"),
        "empty": (b"", "label"),
        "claims 2^32 - 1": (whole[: head - 4] + b"\xff" * 4 + whole[head:], "4294967295 reports"),
    }
    delays: dict[str, tuple[bytes, str]] = {  # the server's own files may be behind
        "another key": (crowd(good, label(key_hash=bytes(32))), "key_hash"),
        "another definition": (
            crowd(good, label(fingerprint=changed.fingerprint)),
            "wrong_revision",
        ),
        "no metric": (crowd(good, label(metric="hiden")), "did you mean 'hidden'"),
    }
    with relaying(broker, topic, keys) as (gateway, post):
        for name, (body, told) in delays.items():
            with row(name):
                answer = post(body)
                assert answer.status_code == 503, answer.text
                assert told in answer.json()["detail"]
                assert answer.headers["retry-after"]
        assert not gateway.crowds.counts
        for name, (body, told) in refusals.items():
            with row(name):
                answer = post(body)
                assert answer.status_code == 400, answer.text
                assert told in answer.json()["detail"]
                assert "drop this crowd" in answer.json()["remedy"]
        assert {outcome for _, outcome in gateway.crowds.counts} == {"refused"}
        assert post(whole, media=JSON_TYPE).status_code == 415
        assert post(bytes(MAX_CROWD_BODY + 1)).status_code == 413
    last = label(pane_start_ms=(2**63 - 1) // DAY * DAY)
    with relaying(broker, topic, keys, times=Times(future=600, past=86_400)) as (_, post):
        assert "too_old" in post(whole).json()["detail"]
        assert "future" in post(crowd(good, last)).json()["detail"]
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


def test_a_post_without_its_body_keeps_no_other_waiting(
    broker: Broker, topic: str, keys: Path
) -> None:
    gateway = Gateway(ALL, broker.config, topic, crowd_keys=str(keys))
    with serving(gateway) as url:
        address, media = urllib.parse.urlsplit(url), {"Content-Type": CROWD_TYPE}
        slow = http.client.HTTPConnection(str(address.hostname), address.port)
        with contextlib.closing(slow):
            slow.request("POST", "/v1/crowds", iter([b"\0"]), media | {"Content-Length": "99"})
            time.sleep(0.3)
            crowds_url = url.replace("/v1/reports", "/v1/crowds")
            body = crowd(sealed(mixed(60, 40)))
            assert http_client.post(crowds_url, content=body, headers=media).status_code == 202


def test_a_server_without_a_usable_key_keeps_a_crowd_waiting(
    broker: Broker, topic: str, keys: Path
) -> None:
    body = crowd(sealed(mixed(60, 40)))
    with relaying(broker, topic, None) as (_, post):
        answer = post(body)
        assert answer.status_code == 503
        assert "gateway.crowd_keys" in answer.json()["detail"]
        assert answer.headers["retry-after"]
    with relaying(broker, topic, keys) as (_, post):
        keys.chmod(0o644)
        assert post(body).status_code == 503
        keys.chmod(0o640)
        assert post(body).status_code == 202
    for content, told in (("", "an empty file"), ("11" * 31, "64 hexadecimal digits")):
        keys.write_text(content)
        with row(content), pytest.raises(ValueError, match=told):
            read_keys(keys)


def test_a_crowds_reports_come_sealed_or_not_at_all(broker: Broker, topic: str, keys: Path) -> None:
    report = encode_batch(HIDDEN, [0], [1], PANE)
    as_json = b'{"metric": "hidden", "reports": [{"level": 0, "report": 1}]}'
    several = ReportBatches()
    several.batches.append(report)
    with relaying(broker, topic, keys) as (_, post):
        for media, body in ((PROTOBUF_TYPE, report), (JSON_TYPE, as_json)):
            answer = post(body, "/v1/reports", media)
            assert answer.status_code == 400
            assert "not_sealed: hidden has a crowd" in answer.json()["detail"]
            assert "relay=" in answer.json()["remedy"]
        for media, body in (
            (PROTOBUF_TYPE, several.SerializeToString()),
            (JSON_TYPE, b"[" + as_json + b"]"),
        ):
            [outcome] = post(body, "/v1/reports/batches", media).json()["batches"]
            assert (outcome["status"], outcome["detail"][:10]) == (400, "not_sealed")
    with pytest.raises(ValueError, match=r"^not_sealed: .*HttpReporter"):
        Reporter(HIDDEN, broker.config)
    assert not broker.batches(topic)
