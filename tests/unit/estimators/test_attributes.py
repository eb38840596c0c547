"""Attributes of devices: how they are declared, and what leaves a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators import define, load_metrics
from estimators.errors import DefinitionError
from estimators.metrics.attributes import Slicing, check_sent, leaving
from estimators.metrics.loading import definition_of, read_definition
from tests.support.paths import ROOT

SLICING = Slicing({"version": ("1", "2"), "country": ("DE", "FR")}, 3_600_000)
LATE: dict[str, Any] = {
    "kind": "mean",
    "mechanism": "randomized_response",
    "range": (0, 1),
    "levels": [1],
}
BY: dict[str, Any] = {"by": ["country"], "attributes": {"country": ["DE", "FR"]}}


def test_what_is_not_declared_is_coarsened_and_what_is_not_used_stays() -> None:
    said = {"version": "2", "country": "Liechtenstein", "city": "Vaduz"}
    assert leaving(SLICING, said) == (("country", "other"), ("version", "2"))
    assert leaving(SLICING, {"version": ""}) == (("version", "other"),)
    assert leaving(SLICING, {"country": "none"}) == (("country", "other"),)
    assert leaving(SLICING, {"country": "\ud800"}) == (("country", "other"),)
    assert leaving(SLICING, None) == leaving(SLICING, {}) == leaving(None, said) == ()


@given(st.dictionaries(st.sampled_from(["version", "country", "x"]), st.text(max_size=16)))
def test_what_leaves_is_fine_with_workers_and_in_the_same_slice(said: dict[str, str]) -> None:
    sent = check_sent(leaving(SLICING, said))
    assert SLICING.code(sent) == SLICING.code(said)
    assert {*sent.values()} <= {"1", "2", "DE", "FR", "other"}


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ("DE", "attributes = 'DE': expected values by name"),
        ([("country", "DE")], "expected values by name"),
        ({"country": 7}, "attribute 'country' = 7: expected texts; leave out what is not known"),
        ({"country": None}, "attribute 'country' = None: expected texts"),
        ({3: "DE"}, "attribute 3 = 'DE': expected texts"),
        ({"x": "ü" * 33}, f"attribute 'x' = '{'ü' * 33}': expected texts of 64 bytes at most"),
        ({"x" * 65: "DE"}, "expected texts of 64 bytes at most"),
        ({f"a{i}": "1" for i in range(17)}, "17 attributes: expected 16 at most"),
    ],
)
@pytest.mark.parametrize("slicing", [SLICING, None])
def test_attributes_that_cannot_be_are_named(
    slicing: Slicing | None, attributes: Any, said: str
) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        leaving(slicing, attributes)
    assert said in str(caught.value)


def test_a_file_declares_attributes_once_for_all_metrics(tmp_path: Path) -> None:
    page = ROOT / "docs" / "slices.md"
    example = page.read_text(encoding="utf-8").split("```toml\n")[1]
    file = tmp_path / "metrics.toml"
    file.write_text(example.split("```")[0])
    slicing = load_metrics(file)["late"].slicing
    assert slicing is not None
    assert (slicing.size, round(slicing.bits, 1), slicing.pane_ms) == (25, 4.6, 3_600_000)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"by": ["contry"]}, "late.by = ['contry']: expected attributes that are declared: 'count"),
        ({"by": ["country"] * 2}, "expected at most 16 attributes, each once"),
        ({"memoized": True}, "late.by = ['country']: expected none for a memoized metric"),
        ({"trust": "central", "mechanism": None}, "where trust is central"),
        ({"kind": "minimum", "mechanism": None, "rounds": 9}, "for kind 'minimum' where"),
        ({"attributes": {"country": ["DE", "DE"]}}, "attributes.country = ['DE', 'DE']: "),
        ({"attributes": {"country": ["other"]}}, "besides 'other' and 'none'"),
        ({"by_pane": "90s"}, "late.by_pane = '90s': expected a multiple of the metric's pane, 1m"),
        ({"by_pane": "often"}, "late.by_pane = 'often': expected a duration"),
        ({"max_slices": 3}, "at most 3 slices (max_slices), not 4 = 4, each attribute with"),
    ],
)  # fmt: skip
def test_a_definition_that_cannot_be_says_why(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        read_definition("late", {**LATE, **BY, **changed})
    assert said in str(caught.value)


def test_a_definition_without_attributes_says_nothing_of_them() -> None:
    plain = definition_of(define(name="late", **LATE))
    assert not {"by", "attributes", "by_pane", "by_retention", "max_slices"} & plain.keys()
    sliced = define(name="late", **LATE, **BY)
    assert read_definition("late", definition_of(sliced)) == sliced
    assert sliced.revision == define(name="late", **LATE).revision
