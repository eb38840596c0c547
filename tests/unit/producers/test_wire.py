"""The report batch on the wire, bare and in the frame of a schema registry."""

import functools
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregator.reading import serialization
from estimators import ReportError, define
from estimators.exact.thresholds import flip_threshold, miss_threshold
from producers.wire.batch import (
    LARGEST_BYTES,
    attributes_of,
    encode_batch,
    parse_bare_batch,
    parse_batch,
)
from producers.wire.framing import LARGEST_ID, check_schema_id, frame, frame_size, unframed
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.metrics import mean_metric
from tests.support.paths import ROOT
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, LATE


def test_what_cannot_be_a_batch_is_refused() -> None:
    age = define(name="age", kind="maximum", range=(0, 1), levels=[1], rounds=3)
    cases: list[tuple[Any, ...]] = [
        (LATE, [0, 1], [1], r"reports of shape \(1,\) with levels of shape \(2,\)"),
        (CARRIER, [0], [1], r"expected levels of shape \(n,\)"),
        (LATE, [[0]], [[1]], "levels of shape"),
        (LATE, [0], [1], "time_ms = -5", -5),
        (LATE, [0], [1], "batch_id of 5 bytes: expected 16", 5, b"short"),
        (LATE, [256], [1], "levels = 256: expected integers from 0 to 255"),
        (LATE, [0], [300], "reports = 300: expected integers from 0 to 255"),
        (DELAY, [0], [2**40], "reports = 1099511627776: expected integers from -2147"),
        (LATE, [9], [1], "level 9: expected 0 to 3"),
        (age, [0], [1], "bad_round: round 0", 5, None, 0),
        (age, [0], [1], "bad_round: round 4", 5, None, 4),
    ]
    for metric, level, reports, said, *more in cases:
        with row(said), pytest.raises(ValueError, match=said):
            encode_batch(metric, level, reports, *(more or [5]))


def test_the_generated_code_is_that_of_the_schema(tmp_path: Path) -> None:
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT}"]
    line = [*protoc, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    line.append("producers/wire/reports.proto")
    made = subprocess.run(line, capture_output=True, text=True, check=False)
    if "No module named" in made.stderr:
        pytest.skip("grpcio-tools is not installed")
    assert made.returncode == 0, made.stderr
    for name in ("producers/wire/reports_pb2.py", "producers/wire/reports_pb2.pyi"):
        expected = (ROOT / name).read_text()
        assert (tmp_path / name).read_text() == expected, f"{name} differs: run `make proto`"


def test_many_or_long_attributes_are_refused_soon_and_in_few_words() -> None:
    long = (ReportBatch(attributes=[Attribute(name=letter * 3_000_000)]) for letter in "za")
    for attributes, told in (
        (b"\x42\x00" * 5_000_000, "5000000 attributes: expected 16 at most"),
        (b"".join(b.SerializeToString() for b in long), "of 3000000 bytes: expected 64 at most"),
    ):
        batch = parse_batch(attributes)
        began = time.process_time()
        with pytest.raises(ReportError, match=told) as refused:
            attributes_of(batch)
        assert time.process_time() - began < 1
        assert len(str(refused.value)) < 200


BATCHES = st.builds(
    ReportBatch,
    metric=st.text(max_size=20),
    revision=st.integers(0, 2**32 - 1),
    batch_id=st.binary(max_size=16),
    time_ms=st.integers(-(2**63), 2**63 - 1),
    levels=st.binary(max_size=5),
    values=st.binary(max_size=5),
    round=st.integers(0, 2**32 - 1),
    attributes=st.lists(st.builds(Attribute, name=st.text(max_size=3), value=st.text(max_size=3))),
)


@given(BATCHES)
def test_no_batch_begins_like_a_frame(batch: ReportBatch) -> None:
    bare = batch.SerializeToString()
    assert frame_size(bare) == 0
    assert unframed(bare) == bare


@given(BATCHES, st.integers(0, 2**32 - 1), st.booleans())
def test_a_framed_batch_is_the_batch(batch: ReportBatch, schema_id: int, is_long: bool) -> None:
    bare = batch.SerializeToString()
    framed = frame(schema_id, bare)
    if is_long:
        framed = framed[:5] + b"\2\0" + bare
    assert framed[1:5] == schema_id.to_bytes(4, "big")
    assert unframed(framed) == bare
    assert parse_batch(framed) == parse_batch(bare) == batch


@given(st.binary(max_size=40))
@example(b"")
@example(b"\0\0\0\1\2")
@example(b"\0\0\0\1\2\2")
def test_whatever_begins_like_a_frame_is_one_or_is_refused(rest: bytes) -> None:
    message = b"\0" + rest
    if message[5:].startswith((b"\0", b"\2\0")):
        bare = unframed(message)
        assert message in (message[:5] + b"\0" + bare, message[:5] + b"\2\0" + bare)
    else:
        with pytest.raises(ReportError, match=r"bad_frame: .* message indexes"):
            unframed(message)


def test_what_is_no_frame_or_too_much_is_refused() -> None:
    framed = frame(3, ReportBatch(metric="delay").SerializeToString())
    with pytest.raises(ReportError, match="malformed"):
        parse_batch(frame(3, framed))
    with pytest.raises(ReportError, match="malformed"):
        parse_bare_batch(framed)
    with pytest.raises(ReportError, match="too_large"):
        parse_batch(bytes(LARGEST_BYTES + 1))
    numbers: list[Any] = [0, -1, LARGEST_ID + 1, True, "3", None]
    for schema_id in numbers:
        with row(schema_id), pytest.raises(ValueError, match="dither schemas"):
            check_schema_id(schema_id)


PAGE = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
EXAMPLE = mean_metric("late", "randomized_response", (0, 1), [0.5, 1, 2])


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)\n```", PAGE, re.DOTALL)


@functools.cache
def _page_client() -> dict[str, Any]:
    """Return the functions of the client that the page prints."""
    (source,) = _blocks("python")
    functions: dict[str, Any] = {}
    exec(compile(source, "docs/wire.md", "exec"), functions)  # noqa: S102
    return functions


def _hexadecimal(row_name: str) -> list[int]:
    line = re.search(rf"^\| {row_name} \|(.*)", PAGE, re.MULTILINE)
    assert line is not None
    return [int(digits, 16) for digits in re.findall(r"`(?:0x)?([0-9a-f]+)`", line[1])]


def test_the_pages_example_is_what_its_client_and_the_reporter_send() -> None:
    client, (served, canonical, *_) = _page_client(), _blocks("json")
    definition = json.loads(served)
    assert definition.items() <= msgspec.to_builtins(serialization.definition(EXAMPLE)).items()
    assert canonical == EXAMPLE.canonical
    assert f"`{EXAMPLE.fingerprint.hex()}`" in PAGE
    assert f"`{EXAMPLE.revision:#x}`, {EXAMPLE.revision}." in PAGE
    words = zip(
        _hexadecimal("word for the rounding"), _hexadecimal("word for the coin"), strict=True
    )
    reports = [
        client["randomize"](definition, 1, level, iter(drawn).__next__)
        for level, drawn in zip([0, 2], words, strict=True)
    ]
    assert [*b"".join(reports)] == _hexadecimal("report") == [1, 0]
    assert _hexadecimal("threshold") == [
        flip_threshold(EXAMPLE.randomizer.epsilons[level]) for level in (0, 2)
    ]
    identity, time_ms = bytes.fromhex("6f1c7e9a3f0b4c889a530d7a5c2f4b11"), 1_769_860_800_000
    sent = client["batch"](definition, identity, time_ms, [0, 2], reports)
    block = PAGE.partition("a batch of 45 bytes:\n\n```\n")[2].partition("```")[0]
    assert "".join(re.findall(r"^[0-9a-f]+", block, re.MULTILINE)) == sent.hex()
    assert sent == encode_batch(EXAMPLE, [0, 2], [1, 0], time_ms, identity)
    assert len(sent) == 45


@given(
    st.sets(st.integers(1, 640_000), min_size=1, max_size=3),
    st.sampled_from([2, 3, 256, 257, 65_536, 65_537]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=20)
def test_the_pages_client_is_exact(units: set[int], categories: int, drawn: random.Random) -> None:
    client, levels = _page_client(), [unit / 10_000 for unit in sorted(units)]
    common: dict[str, Any] = {"name": "x", "levels": levels, "pane": "1h"}
    names = [str(i) for i in range(categories)] if categories < 300 else categories
    grr = define(**common, kind="frequency", mechanism="grr", categories=names)
    mean = define(**common, kind="mean", mechanism="randomized_response", range=(-3, 1e16))
    for metric, value, others in ((grr, str(categories - 1), categories - 1), (mean, 5, 1)):
        definition = msgspec.to_builtins(serialization.definition(metric))
        assert client["revision"](definition) == metric.revision
        for level, epsilon in enumerate(metric.randomizer.epsilons):
            assert client["threshold"](levels[level], others) == miss_threshold(epsilon, 1, others)
            report = client["randomize"](definition, value, level, lambda: drawn.getrandbits(64))
            metric.randomizer.check_values(bytes([level]), report)
            assert len(report) == metric.randomizer.width


FIRST_DECODERS = """
import dataclasses, sys, threading
from typing import List, Optional
from producers.wire.decoding import decode_json

sys.setswitchinterval(1e-6)
for _ in range(100):
    fields = [(f"f{i}", "Optional[List[int]]", None) for i in range(12)]
    kind = dataclasses.make_dataclass("Kind", fields)
    kind.__module__ = "__main__"
    ready = threading.Barrier(6)
    def decode():
        ready.wait()
        assert decode_json('{"f1": [1, 2]}', kind).f1 == [1, 2]
    threads = [threading.Thread(target=decode) for _ in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_threads_that_decode_a_class_for_the_first_time_do_not_crash() -> None:
    subprocess.run([sys.executable, "-c", FIRST_DECODERS], check=True, timeout=60)
