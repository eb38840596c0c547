"""What a definition means is one text, whoever writes it: vectors for Python and the browser."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from estimators.metrics.loading import read_definition
from tests.support.paths import ROOT
from tests.support.rows import row

VECTORS = ROOT / "tests" / "vectors" / "definitions.json"


def test_a_definition_has_the_canonical_form_and_fingerprint_of_its_vector() -> None:
    for vector in json.loads(VECTORS.read_text()):
        with row(vector["table"]):
            metric = read_definition("m", vector["table"])
            assert metric.canonical == vector["canonical"]
            assert metric.canonical.isascii()
            assert hashlib.sha256(metric.canonical.encode()).hexdigest() == vector["fingerprint"]
            assert metric.fingerprint.hex() == vector["fingerprint"]
            assert metric.revision == int(vector["fingerprint"][:8], 16)
            unlike = dataclasses.replace(metric, levels=[*metric.levels, 64.0][-1:], pane="17s")
            assert unlike.fingerprint != metric.fingerprint
