import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from estimators import DefinitionError, define, load_metrics
from estimators.durations import milliseconds
from estimators.metrics.loading import read_definition
from tests.support.paths import ROOT
from tests.support.rows import row

GOOD = """
[metrics.dep_delay]
kind = "mean"
mechanism = "laplace"
range = [-60, 180]
levels = [0.25, 0.5, 1, 2, 4]
options = { grid = 256 }
pane = "1h"
unit = "minutes"

[metrics.carrier]
kind = "frequency"
mechanism = "rappor"
categories = ["UA", "B6", "EV"]
levels = [1.0]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "metrics.toml"
    path.write_text(text)
    return path


def test_metrics_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    metrics = load_metrics(written(tmp_path, f"\ufeff{GOOD}"))
    assert list(metrics) == ["dep_delay", "carrier"]
    assert metrics["dep_delay"].options == {"grid": 256}
    assert metrics["carrier"].category_names == ("UA", "B6", "EV")


MISTAKES = [
    ("mechanism =", "mechanisn =", "dep_delay.mechanisn", "'mechanism'?"),
    ('unit = "minutes"', "unit = 5", "dep_delay.unit", "str"),
    ('pane = "1h"', "pane = 60", "dep_delay.pane", "a duration such as 30s, 5m, 1h or 1d"),
    ('pane = "1h"', 'retention = "2922001d"', "dep_delay.retention", "at most 2922000d"),
    ('pane = "1h"', 'lateness = "2922001d"', "dep_delay.lateness", "at most 2922000d"),
    ("[-60, 180]", '"wide"', "dep_delay.range", "array"),
    ("[-60, 180]", "[0, 5e-324]", "dep_delay.range", "at least 2e-308 apart"),
    ("levels = [1.0]", "", "carrier.levels", "epsilons on offer, as in levels = [0.5, 1, 2]"),
    ("levels = [1.0]", "levels = [2, 1]", "carrier.levels", "ascending"),
    ("[metrics.carrier]", "[metric.carrier]", "metric", "[metrics.NAME]"),
    ("grid = 256", 'grid = "fine"', "dep_delay.options", "int"),
    ("[metrics.carrier]", "[metrics.carrier", "TOML", "parses"),
    ('kind = "frequency"', 'name = "x"', "carrier.name", "a known key"),
]


def test_a_mistake_is_named_with_file_key_value_and_remedy(tmp_path: Path) -> None:
    for find, replace, key, expected in MISTAKES:
        path = written(tmp_path, GOOD.replace(find, replace, 1))
        with row(replace):
            with pytest.raises(DefinitionError) as refused:
                load_metrics(path)
            assert (refused.value.source, refused.value.key) == (str(path), key)
            assert expected in refused.value.expected
            assert str(path) in str(refused.value)


def test_what_is_missing_or_no_file_of_metrics_is_told(tmp_path: Path) -> None:
    mean, table = 'kind = "mean"\nmechanism = "laplace"', "[metrics.m]\n"
    for text, told in (
        (f'{table}mechanism = "laplace"\nlevels = [1]', "m.kind is missing: expected one of "),
        (f"{table}{mean}", "m.levels is missing: expected epsilons on offer"),
        (f'{table}kind = "frequency"\nlevels = [1]', "m.categories is missing: expected the names"),
        (f"{table}{mean}\nlevels = [1]", "m.range is missing: expected two numbers: the lowest"),
        (f'{table}kind = "maximum"\nlevels = [1]\nrange = [0, 1]', "m.rounds is missing: expected"),
        (table, "m.kind is missing"),
        ("", "one table"),
        ("metrics = 3", "one table"),
        ("[metrics]", "one table"),
        ("[metrics]\ndelay = 3", "a table"),
        ("[metrics.a]\nbins = " + "9" * 5_000, "expected a file that parses as TOML"),
        ("[attributes]\n" * 2, "expected one table [attributes] for all metrics"),
        ("x = " + "[" * 100_000, "expected a file that parses as TOML"),
    ):
        with row(text[:80]):
            with pytest.raises(DefinitionError) as refused:
                load_metrics(written(tmp_path, text))
            assert told in str(refused.value)
            assert "None" not in str(refused.value)
    (tmp_path / "metrics.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(DefinitionError, match=r"metrics\.toml: TOML"):
        load_metrics(tmp_path / "metrics.toml")


def test_a_definition_need_not_name_a_mechanism() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"kind": "mean", "range": (0, 1)}, "auto"),
        ({"kind": "frequency", "categories": ["a", "b"]}, "auto"),
        ({"kind": "frequency", "categories": "open"}, "projective_sketch"),
        ({"kind": "vector_mean", "dimension": 2, "radius": 1}, "caps"),
        ({"kind": "distribution", "range": (0, 1)}, "dyadic_hadamard"),
    ]
    for keys, mechanism in rows:
        metric = define(name="m", levels=[1], **keys)
        with row(keys):
            assert metric == define(name="m", levels=[1], mechanism=mechanism, **keys)
            assert metric.mechanism == mechanism


def test_durations_are_read_as_people_write_them() -> None:
    lengths = {"250ms": 250, "1.5h": 5_400_000, " 2w ": 1_209_600_000, "131.069s": 131_069}
    assert {text: milliseconds(text) for text in lengths} == lengths
    for text in ("", "5", "m", "-1s", "1.0001s", "5min", "9" * 400 + "d"):
        with row(text), pytest.raises(ValueError, match="a duration"):
            milliseconds(text)


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
