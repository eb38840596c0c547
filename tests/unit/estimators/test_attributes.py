"""Slices: their definition, their codes, and sums that every mechanism adds to its slices."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import DefinitionError, LocalMetric, ReportError, define, load_metrics
from estimators.exact.randomness import SeededBits
from estimators.metrics.attributes import Slicing, check_sent
from estimators.metrics.loading import definition_of
from tests.support.metrics import BY_COUNTRY
from tests.support.rows import row

BASE: dict[str, Any] = {"name": "m", "levels": [0.5, 1, 4]}
MEAN: dict[str, Any] = {"kind": "mean", "range": (0, 1)}
METRICS: dict[str, dict[str, Any]] = {
    "randomized_response": MEAN,
    "laplace": MEAN,
    "grr": {"kind": "frequency", "categories": 5},
    "oue": {"kind": "frequency", "categories": 20},
    "hadamard_response": {"kind": "frequency", "categories": 20},
    "auto": {"kind": "frequency", "categories": 20},
    "count_sketch": {
        "kind": "frequency",
        "categories": "open",
        "options": {"rows": 4, "buckets": 16},
    },
    "hemisphere": {"kind": "vector_mean", "dimension": 3, "radius": 1},
}


def test_slices_are_summed_as_if_each_were_alone() -> None:
    for mechanism, batches in itertools.product(METRICS, (1, 7, 400)):
        metric = LocalMetric.require(define(mechanism=mechanism, **BASE, **METRICS[mechanism]))
        rng = np.random.default_rng(batches)
        sizes = rng.integers(1, 9, batches)
        sizes[0] = 20_000 if batches == 7 else sizes[0]
        level = rng.integers(0, 3, sizes.sum()).astype(np.uint8)
        values: Any = rng.integers(0, 2, sizes.sum())
        if metric.kind == "vector_mean":
            values = rng.normal(size=(sizes.sum(), 3)) / 4
        elif metric.categories == "open":
            values = [f"word {value}" for value in values.tolist()]
        reports = metric.randomize(values, level, SeededBits(1))
        rows = rng.integers(0, 5, batches)
        found, expected = (np.zeros((5, metric.zero().size), dtype=np.int64) for _ in range(2))
        metric.accumulate_slices(found, rows, sizes, level, reports)
        for number in range(5):
            mine = np.repeat(rows, sizes) == number
            metric.accumulate_checked(expected[number], level[mine], reports[mine])
        with row(mechanism, batches):
            assert (found == expected).all()


def test_codes_and_slices_are_one_to_one() -> None:
    slicing = Slicing({"a": ("x", "y"), "b": ("1",), "c": ("p", "q", "r")}, 1)
    assert slicing.size == 4 * 3 * 5
    for code in range(slicing.size):
        values = slicing.slice(code)
        sent = {name: value for name, value in values.items() if value is not None}
        assert slicing.code(sent) == code
    digits = slicing.digits(np.arange(slicing.size))
    assert [digits["c"][code] for code in range(7)] == [0, 1, 2, 3, 4, 0, 1]


def test_a_device_says_no_more_than_what_is_declared() -> None:
    slicing = Slicing({"country": ("DE",), "app": ("1",)}, 1)
    sent = slicing.coarsen({"secret": "x", "country": "Narnia", "app": "1"})
    assert sent == (("app", "1"), ("country", "other"))
    assert slicing.code(dict(sent)) == slicing.code({"app": "1", "country": "Narnia"})


def test_attributes_come_sorted_short_and_few() -> None:
    assert check_sent([("a", "1"), ("b", "2")]) == {"a": "1", "b": "2"}
    for sent in ([("b", ""), ("a", "")], [("a", ""), ("a", "")], [("a", "x" * 65)]):
        with pytest.raises(ReportError, match="bad_attributes"):
            check_sent(sent)


def test_attributes_do_not_change_what_a_report_means() -> None:
    plain = define(mechanism="randomized_response", **BASE, **MEAN)
    sliced = define(mechanism="randomized_response", **BASE, **MEAN, **BY_COUNTRY)
    assert plain.revision == sliced.revision
    assert plain.slicing is None
    assert sliced.slicing is not None
    again = define(name="m", **definition_of(sliced))
    assert again.slicing == sliced.slicing
    wider = define(mechanism="randomized_response", **BASE, **MEAN, **BY_COUNTRY, by_pane="2h")
    assert wider.slicing is not None
    assert wider.slicing.key != sliced.slicing.key


def test_a_file_declares_attributes_once(tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    table = 'kind = "mean"\nmechanism = "laplace"\nrange = [0, 1]\nlevels = [1]\n'
    file.write_text(
        '[attributes]\ncountry = ["DE", "FR"]\nos = ["a", "b"]\n'
        f'[metrics.one]\n{table}by = ["os", "country"]\n[metrics.two]\n{table}'
    )
    metrics = load_metrics(file)
    assert metrics["one"].slicing is not None
    assert metrics["one"].slicing.attributes == {"os": ("a", "b"), "country": ("DE", "FR")}
    assert metrics["two"].slicing is None
    file.write_text(f'[attributes]\ncountry = ["DE"]\n[metrics.one]\n{table}by = ["contry"]\n')
    with pytest.raises(DefinitionError, match=r"one\.by = .*'country'\?"):
        load_metrics(file)


def test_what_cannot_be_sliced_is_refused() -> None:
    many = {"by": ["city"], "attributes": {"city": [str(i) for i in range(1_000)]}}
    wide = {"kind": "frequency", "categories": 5_000, "mechanism": "oue", "max_slices": 65_536}
    search = {"kind": "maximum", "range": (0, 1), "rounds": 3, "round_reports": 10}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"max_slices": 3}, "at most 3 slices"),
        ({"by_pane": "90s"}, "a multiple of the metric's pane"),
        ({"attributes": {"country": ["other"]}}, "'other' and 'none'"),
        ({"attributes": {"country": ["DE", "DE"]}}, "every value once"),
        ({"attributes": {"country": []}}, "one value or more"),
        ({"attributes": {"country": ["x" * 65]}}, "1 to 64"),
        ({"by": ["country", "country"]}, "each once"),
        ({"attributes": {"country": ["DE"], "os": ["a"]}}, "only those of `by`"),
        ({"max_slices": 0}, "1 to 65536"),
        ({"range": None, **wide, **many}, "at most 64 MiB"),
        ({"trust": "central"}, "no by for kind 'mean' where trust is central"),
        (search, "by"),
    ]
    for fields, why in refused:
        with row(why), pytest.raises(DefinitionError, match=why):
            define(**{**BASE, **MEAN, **BY_COUNTRY, **fields})
