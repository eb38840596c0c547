"""Reports of every mechanism that a browser has: `tests/vectors/mechanisms.json` says which bytes
the same random words give in Python and in JavaScript."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, define
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords

VECTORS = json.loads((ROOT / "tests" / "vectors" / "mechanisms.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: one["definition"]["mechanism"])
def test_the_same_random_words_give_the_reports_of_the_vectors(vector: dict[str, Any]) -> None:
    metric = LocalMetric.require(define(name="asked", **vector["definition"]))
    assert metric.fingerprint.hex() == vector["fingerprint"]
    for value, level, words, report in vector["cases"]:
        prepared = PreparedWords(np.array([int(word, 16) for word in words], dtype=np.uint64))
        values = np.array([value], dtype=object) if isinstance(value, str) else [value]
        found = metric.randomize(values, [level], prepared)
        assert (metric.randomizer.encode(found).hex(), prepared.used) == (report, len(words))
