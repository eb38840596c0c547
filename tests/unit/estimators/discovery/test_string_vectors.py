"""Strings become keys, bits and reports as the vectors say, which the browser's test reads, too."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric
from estimators.metrics.categories import CodedVocabulary
from estimators.metrics.loading import read_definition
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords

VECTORS = json.loads((ROOT / "tests" / "vectors" / "prefix_tree.json").read_text())
OPEN = {"kind": "frequency", "categories": "open", "discover": True}


@pytest.mark.parametrize("vector", VECTORS["codes"], ids=lambda vector: str(vector["code"])[:30])
def test_strings_have_the_keys_and_bits_of_their_vector(vector: dict[str, Any]) -> None:
    domain = read_definition("page", {**OPEN, **vector["code"], "levels": [1]}).domain
    assert isinstance(domain, CodedVocabulary)
    assert domain.string_code.digest == vector["digest"]
    rows = domain.to_unit(np.array([text for text, *_ in vector["strings"]], dtype=object))
    found = [[f"{key:016x}", f"{high:016x}{low:016x}"] for key, high, low in rows.tolist()]
    assert found == [expected for _, *expected in vector["strings"]]


@pytest.mark.parametrize("vector", VECTORS["reports"], ids=lambda v: str(v["definition"])[:30])
def test_the_same_random_words_give_the_reports_of_their_vector(vector: dict[str, Any]) -> None:
    metric = LocalMetric.require(read_definition("page", {**OPEN, **vector["definition"]}))
    assert metric.fingerprint.hex() == vector["fingerprint"]
    for text, level, words, expected in vector["cases"]:
        prepared = PreparedWords(np.array([int(word, 16) for word in words], dtype=np.uint64))
        report = metric.randomize([text], [level], prepared)
        assert metric.randomizer.encode(report).hex() == expected, (text, level)
        assert prepared.used == len(words)
