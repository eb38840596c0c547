"""The report batch on the wire."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import LocalMetric, ReportError
from estimators.exact.randomness import SeededBits
from producers.wire.batch import attributes_of, encode_batch, parse_batch
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.paths import ROOT
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, LATE, METRICS


@given(
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32),
    count=st.integers(0, 300),
    time_ms=st.integers(0, 2**53),
    batch_id=st.binary(min_size=16, max_size=16),
)
@settings(deadline=None, max_examples=100)
def test_a_batch_decodes_to_what_was_reported(
    metric: LocalMetric, seed: int, count: int, time_ms: int, batch_id: bytes
) -> None:
    generator = np.random.default_rng(seed)
    level = generator.integers(0, len(metric.levels), count)
    values = generator.integers(0, len(metric.category_names) or 2, count)
    reports = metric.randomize(values, level, SeededBits(seed))

    batch = ReportBatch.FromString(encode_batch(metric, level, reports, time_ms, batch_id))

    assert (batch.metric, batch.revision) == (metric.name, metric.revision)
    assert (batch.batch_id, batch.time_ms, batch.round) == (batch_id, time_ms, 0)
    assert list(batch.levels) == level.tolist()
    metric.randomizer.check(batch.levels, batch.values)
    assert np.array_equal(metric.randomizer.decode(batch.values), reports)


def test_batch_ids_are_16_bytes_and_never_the_same() -> None:
    batches = [ReportBatch.FromString(encode_batch(LATE, [0], [1], 5)) for _ in range(100)]
    assert {len(batch.batch_id) for batch in batches} == {16}
    assert len({batch.batch_id for batch in batches}) == 100


def test_what_cannot_be_a_batch_is_refused() -> None:
    cases: list[tuple[LocalMetric, list[Any], list[Any], int, bytes | None, str]] = [
        (LATE, [0, 1], [1], 5, None, r"reports of shape \(1,\) with levels of shape \(2,\)"),
        (CARRIER, [0], [1], 5, None, r"expected levels of shape \(n,\)"),
        (LATE, [[0]], [[1]], 5, None, "levels of shape"),
        (LATE, [0], [1], -5, None, "time_ms = -5"),
        (LATE, [0], [1], 5, b"short", "batch_id of 5 bytes: expected 16"),
        (LATE, [256], [1], 5, None, "levels = 256: expected integers from 0 to 255"),
        (LATE, [0.5], [1], 5, None, "levels = 0.5: expected integers"),
        (LATE, [0], [300], 5, None, "reports = 300: expected integers from 0 to 255"),
        (DELAY, [0], [2**40], 5, None, "reports = 1099511627776: expected integers from -2147"),
        (LATE, [9], [1], 5, None, "level 9: expected 0 to 3"),
    ]
    for metric, level, reports, time_ms, batch_id, said in cases:
        with row(said), pytest.raises(ValueError, match=said):
            encode_batch(metric, level, reports, time_ms, batch_id)


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
