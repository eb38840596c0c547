"""Reports of every mechanism that a browser has: `tests/vectors/mechanisms.json` says which bytes
the same random words give in Python and in JavaScript."""

from __future__ import annotations

import json

import numpy as np
import pytest

from estimators import LocalMetric, define
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords
from tests.support.rows import row

OPEN = {"projective_sketch": {"kind": "frequency", "categories": "open"}}


@pytest.mark.parametrize("file", ["mechanisms", "projective_sketch"])
def test_the_same_random_words_give_the_reports_of_the_vectors(file: str) -> None:
    for vector in json.loads((ROOT / "tests" / "vectors" / f"{file}.json").read_text()):
        metric = LocalMetric.require(
            define(**{"name": "asked", **OPEN.get(file, {}), **vector["definition"]})
        )
        for value, level, words, report in vector["cases"]:
            with row(vector["definition"], value, level):
                assert metric.fingerprint.hex() == vector["fingerprint"]
                prepared = PreparedWords(np.array([int(word, 16) for word in words], np.uint64))
                values = np.array([value], dtype=object) if isinstance(value, str) else [value]
                found = metric.randomize(values, [level], prepared)
                assert (metric.randomizer.encode(found).hex(), prepared.used) == (
                    report,
                    len(words),
                )
