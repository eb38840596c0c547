"""What a body that cannot be counted is answered: what it is, and what to do about it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from producers.gateway.bodies import JSON, read_batch
from producers.gateway.problems import Problem
from producers.gateway.several import split
from tests.support.running.broker import LATE, METRICS

ALL = {metric.name: metric for metric in METRICS}
ZSTD = b"\x28\xb5\x2f\xfd rest"
GOOD = {"level": 1, "report": 1}


@pytest.mark.parametrize(
    ("body", "detail", "remedy"),
    [
        (b"", "an empty body: expected reports", "shows what a body"),
        (gzip.compress(b"{}"), "begins as gzip does", "header Content-Encoding: gzip"),
        (ZSTD, "begins as zstd does", "header Content-Encoding: zstd"),
    ],
    ids=["empty", "gzip", "zstd"],
)
@pytest.mark.parametrize(
    "read", [lambda body: read_batch(JSON, body, ALL), lambda body: split(JSON, body)]
)
def test_a_body_that_is_no_json_is_answered_with_what_it_may_be(
    read: Callable[[bytes], object], body: bytes, detail: str, remedy: str
) -> None:
    with pytest.raises(Problem) as refusal:
        read(body)
    assert detail in refusal.value.detail
    assert remedy in refusal.value.remedy


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ([], "a list of batches to /v1/reports/batches"),
        ({"metric": "late", "reports": [{"level": 1, "report": 17}]}, "never the value itself"),
        ({"metric": "late", "round": 1, "reports": [GOOD]}, "leave `round` out"),
        ({"metric": "late", "reports": [GOOD], "revision": LATE.revision + 1}, "definition to use"),
    ],
)
def test_a_remedy_is_of_what_was_wrong(given: Any, remedy: str) -> None:
    with pytest.raises(Problem) as refusal:
        read_batch(JSON, json.dumps(given).encode(), ALL)
    assert remedy in refusal.value.remedy


def test_a_list_without_batches_is_not_told_to_be_divided() -> None:
    with pytest.raises(Problem, match="0 batches: expected 1 to 1000") as refusal:
        split(JSON, b"[]")
    assert "several posts" not in refusal.value.remedy
