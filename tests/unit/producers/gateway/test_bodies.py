"""Bodies of posts, compressed or not: what is refused says what it is, and what to do about it."""

import dataclasses
import gzip
import json
import random
import sys
import time
import tracemalloc
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from producers.gateway.bodies import JSON_TYPE, PROTOBUF_TYPE, Times, read_batch
from producers.gateway.post_answers import split
from producers.gateway.problems import Problem
from producers.gateway.receiving import expand
from producers.wire.batch import encode_batch, new_batch_id
from producers.wire.report_batches_pb2 import ReportBatches
from producers.wire.reports_pb2 import ReportBatch
from tests.support.rows import row
from tests.support.running.broker import LATE, METRICS, PLACE

SMALL = dataclasses.replace(LATE, name="small", max_batch_reports=2)
ALL = {metric.name: metric for metric in (*METRICS, SMALL)}
ONE = encode_batch(LATE, [1], [1], 1_700_000_000_000)
GOOD = {"level": 1, "report": 1}
MANY = {f"a{number}": "" for number in range(17)}


def refusal(media_type: str, body: bytes) -> Problem:
    with pytest.raises(Problem) as refused:
        read_batch(media_type, body, ALL)
    assert refused.value.status == 400
    return refused.value


def changed(**fields: Any) -> bytes:
    batch = ReportBatch.FromString(ONE)
    for name, value in fields.items():
        setattr(batch, name, value)
    return batch.SerializeToString()


def test_a_serialized_batch_that_nobody_could_count_is_refused_and_says_why() -> None:
    for body, said, remedy in (
        (b"\xff\xff", "malformed: not a ReportBatch", "docs/gateway.md"),
        (changed(revision=7), f"revision 00000007 of late: expected {LATE.revision:08x}", "to use"),
        (changed(levels=b"", values=b""), "empty: a batch without reports", "docs/gateway.md"),
        (changed(batch_id=b"x" * 15), "bad_batch_id: 15 bytes: expected 16", "draw 16 random"),
        (changed(round=1), "bad_round: round 1", "leave `round` out"),
        (changed(levels=b"\4"), "bad_level: level 4: expected 0 to 3", "docs/gateway.md"),
        (changed(values=b"\2"), "bad_value: report 2: expected 0 or 1", "never the value itself"),
        (changed(values=b"\1\1"), "bad_length: 2 bytes of values for 1 reports", ""),
        (ONE + b"\x42\x00\x42\x00", "bad_attributes: ['', '']: expected names in order", ""),
        (changed(time_ms=-1), "time_ms = -1: expected milliseconds since the epoch", ""),
        (changed(time_ms=253_402_300_800_000), "before the year 10000", ""),
        (encode_batch(SMALL, [1] * 3, [1] * 3, 5), "small allows 2", "several batches"),
    ):
        with row(said):
            found = refusal(PROTOBUF_TYPE, body)
            assert said in found.detail
            assert remedy in found.remedy
    last = changed(time_ms=253_402_300_799_999)
    assert read_batch(PROTOBUF_TYPE, last, ALL).payload == last


def test_json_that_cannot_be_counted_is_refused_and_says_why() -> None:
    late = {"metric": "late", "reports": [GOOD]}
    for given, said in (
        ([], "a list: expected one batch of reports"),
        (late | {"size": 1}, "unknown field `size`"),
        (late | {"metric": "lat"}, "metric 'lat': did you mean 'late'?"),
        (late | {"reports": []}, "empty: a batch without reports"),
        (late | {"revision": 7}, f"expected {LATE.revision}"),
        (late | {"batch_id": "7"}, "batch_id = '7': expected 32"),
        *((late | {"batch_id": start.ljust(32, "0")}, "expected 32") for start in ("0x1c", "f_1c")),
        (late | {"time": "now"}, "time = 'now': expected ISO 8601"),
        (late | {"time": "2026-01-31"}, "with a time zone"),
        (late | {"round": 1}, "bad_round: round 1"),
        (late | {"attributes": {"os": "x" * 65}}, "of 64 bytes at"),
        (late | {"attributes": MANY}, "17 attributes: expected 16"),
        (late | {"metric": "small", "reports": [GOOD] * 3}, "3 reports in one batch"),
        (late | {"metric": "carrier"}, "expected a list of 2 integers for rappor"),
    ):
        with row(given):
            assert said in refusal(JSON_TYPE, json.dumps(given).encode()).detail
    for reports, said in (
        ([{"report": 1}], "reports[0]: expected one of level and"),
        ([GOOD | {"epsilon": 1}], "expected one of level and"),
        ([GOOD, {"level": 4, "report": 1}], "reports[1].level = 4"),
        ([{"level": -1, "report": 1}], "expected 0 to 3"),
        ([{"epsilon": 0.7, "report": 1}], "one of [0.5, 1, 2, 4]"),
        ([{"level": 1, "report": 2}], "report 2: expected 0 or 1"),
        ([{"level": 1, "report": 2**70}], "integers from 0 to 255"),
        ([GOOD, {"level": 1, "report": [1]}], "reports[1].report is a list of 1 integers"),
    ):
        with row(reports):
            found = refusal(JSON_TYPE, json.dumps(late | {"reports": reports}).encode())
            assert said in found.detail


def test_times_that_workers_would_refuse_are_refused() -> None:
    """Nobody can fill the dead letters, or a quiet partition, with posts of another time."""
    now, near = time.time(), Times(future=600, past=86_400)
    for after, told in (
        (700, r"future: .* of 20.*Z, .* s in the future: expected at most 600 \(aggregate.future"),
        (-90_000, r"too_old: .* s in the past: expected at most 86,400 \(aggregate.past\)"),
    ):
        body = json.dumps({"metric": "late", "reports": [GOOD], "time": now + after}).encode()
        for media_type, sent in (
            (JSON_TYPE, body),
            (PROTOBUF_TYPE, changed(time_ms=int(now + after) * 1000)),
        ):
            with pytest.raises(Problem, match=told) as refused:
                read_batch(media_type, sent, ALL, near)
            assert "clock" in refused.value.remedy
    for time_ms in (int(now + 300) * 1000, int(now - 80_000) * 1000, 0):
        assert read_batch(PROTOBUF_TYPE, changed(time_ms=time_ms), ALL, near).reports == 1


def test_json_says_the_same_for_every_shape_of_report() -> None:
    sliced = dataclasses.replace(
        LATE, by=["version", "country"], attributes={"version": ["1"], "country": ["DE", "FR"]}
    )
    own = {"version": "1", "country": "Liechtenstein", "city": "Vaduz"}
    key = uuid.uuid4()
    for metric in (*METRICS, PLACE, sliced):
        values: Any = [[0.0, 1.0], [3.0, 2.0]] if metric is PLACE else [0, 1]
        level = metric.level_of([1, 4])
        reports = metric.randomize(values, level)
        told = own if metric is sliced else {}
        given = {
            "metric": metric.name,
            "revision": metric.revision,
            "batch_id": str(key),
            "time": "2023-11-14T23:13:20+01:00",
            "attributes": told,
            "reports": [
                {"level": int(level[0]), "report": reports[0].tolist()},
                {"epsilon": metric.levels[level[1]], "report": reports[1].tolist()},
            ],
        }
        found = read_batch(JSON_TYPE, json.dumps(given).encode(), {metric.name: metric})
        at = 1_700_000_000_000
        assert found.payload == encode_batch(metric, level, reports, at, key.bytes, attributes=told)
        assert (found.key, found.reports, found.metric) == (key.bytes, 2, metric)
    pairs = [(each.name, each.value) for each in ReportBatch.FromString(found.payload).attributes]
    assert pairs == [("country", "other"), ("version", "1")]


def test_a_serialized_batch_keeps_what_its_definition_has_and_loses_the_rest() -> None:
    """Attributes stay although the gateway knows nothing of them: workers may."""
    body = encode_batch(LATE, [1], [1], 5)
    batch = ReportBatch.FromString(body)
    batch.attributes.add(name="country", value="DE")
    for sent in (body, batch.SerializeToString()):
        found = read_batch(PROTOBUF_TYPE, sent + b"\x7a\x05alice", ALL)  # field 15
        assert found.payload == sent


def test_json_has_levels_or_epsilons_and_is_given_an_id_and_kafkas_time() -> None:
    found = []
    for first in ({"level": 2, "report": 1}, {"epsilon": 2, "report": 1}):
        late = {"metric": "late", "reports": [first, {"epsilon": 0.5, "report": 0}]}
        found.append(read_batch(JSON_TYPE, json.dumps(late).encode(), ALL))
    batches = [ReportBatch.FromString(each.payload) for each in found]
    assert {(batch.levels, batch.values) for batch in batches} == {(b"\2\0", b"\1\0")}
    assert len({batch.batch_id for batch in batches}) == 2
    assert [batch.batch_id for batch in batches] == [each.key for each in found]
    assert {(len(batch.batch_id), batch.time_ms) for batch in batches} == {(16, 0)}


def test_a_true_value_is_refused_with_what_to_do_instead() -> None:
    for given in (
        {"metric": "late", "value": 1, "epsilon": 1},
        {"metric": "late", "reports": [{"level": 1, "value": 1}]},
    ):
        found = refusal(JSON_TYPE, json.dumps(given).encode())
        assert "a true value" in found.detail
        assert "randomize it on the device" in found.remedy


def test_a_body_that_is_no_json_is_answered_with_what_it_may_be() -> None:
    for body, detail, remedy in (
        (b"", "an empty body: expected reports", "shows what a body"),
        (gzip.compress(b"{}"), "begins as gzip does", "header Content-Encoding: gzip"),
        (b"\x28\xb5\x2f\xfd rest", "begins as zstd does", "header Content-Encoding: zstd"),
        (b'{"metric": "\xff"}', "not JSON", "shows what a body"),
    ):
        with row(body):
            found = refusal(JSON_TYPE, body)
            assert detail in found.detail
            assert remedy in found.remedy
            with pytest.raises(Problem, match=r"list of batches|JSON|empty") as refused:
                split(JSON_TYPE, body)
            assert remedy in refused.value.remedy
    assert refusal(JSON_TYPE, b"[" * 10_000)


def test_several_batches_are_divided_as_they_are() -> None:
    bodies = [encode_batch(LATE, [1], [1], 5, new_batch_id()) for _ in range(1000)]
    assert split(PROTOBUF_TYPE, ReportBatches(batches=bodies).SerializeToString()) == bodies
    assert split(JSON_TYPE, b'[{"metric": "late"}, 7]') == [b'{"metric": "late"}', b"7"]
    for media_type, body, said, remedy in (
        (JSON_TYPE, b"[]", "0 batches: expected 1 to 1000", "post nothing"),
        (PROTOBUF_TYPE, b"\x0a\x00" * 1001, "1001 batches", "several posts"),
        (PROTOBUF_TYPE, b"\xff", "not a ReportBatches", ""),
        (JSON_TYPE, b"[" * 10_000, "not JSON: maximum recursion depth", ""),
    ):
        with row(said), pytest.raises(Problem, match=said) as refused:
            split(media_type, body)
        assert remedy in refused.value.remedy


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
MOST = 240_000


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_body_comes_back_up_to_its_bound_and_a_bomb_takes_little_memory(encoding: str) -> None:
    rng, compress = random.Random(1), COMPRESS[encoding]
    for size in (0, 1, 1000, MOST):
        body = rng.randbytes(size // 2) + bytes(size - size // 2)
        assert expand(encoding, compress(body), MOST) == body
    for size in (MOST + 1, 20_000_000):
        bomb = compress(bytes(size))
        tracemalloc.start()
        with pytest.raises(Problem, match="expands to more than 240000 bytes") as refused:
            expand(encoding, bomb, MOST)
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST
        tracemalloc.stop()
        assert refused.value.status == 413


@pytest.mark.parametrize("encoding", COMPRESS)
def test_what_is_cut_off_damaged_or_followed_by_something_is_refused(encoding: str) -> None:
    whole = COMPRESS[encoding](b"reports" * 100)
    for size in range(len(whole)):
        with pytest.raises(Problem, match="not in") as refused:
            expand(encoding, whole[:size], MOST)
        assert refused.value.status == 400
    for rest in (b"\0", whole):
        with pytest.raises(Problem, match="bytes follow its end"):
            expand(encoding, whole + rest, MOST)


def test_a_frame_with_a_large_window_is_refused() -> None:
    def framed(window_log: int) -> bytes:
        options = {int(zstd.CompressionParameter.window_log): window_log}
        compressor = zstd.ZstdCompressor(options=options)
        return compressor.compress(b"reports") + compressor.flush()

    assert expand("zstd", framed(23), MOST) == b"reports"
    with pytest.raises(Problem, match="too much memory"):
        expand("zstd", framed(24), MOST)
