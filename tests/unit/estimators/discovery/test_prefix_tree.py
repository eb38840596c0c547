"""The reports of the prefix tree: their exact law, its certificate, and what is refused."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import DefinitionError, LocalMetric, define
from estimators.discovery.report_layout import DiscoveryLayout, depths_between
from estimators.exact.geometries import LARGEST_EPSILON, points_of
from estimators.exact.thresholds import WORD, exp_bounds, miss_threshold
from estimators.mechanisms import PrefixTree
from estimators.metrics.categories import CodedVocabulary
from estimators.metrics.loading import definition_of, read_definition
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords
from tests.support.reports.cases import MANY_LEVELS, ScriptedBits, exact, summed
from tests.support.rows import row


def strings(**changes: Any) -> LocalMetric:
    keys: dict[str, Any] = {"categories": "open", "discover": True, "preset": "upper"}
    metric: LocalMetric = define(
        name="m", kind="frequency", **{**keys, "levels": [1, 4], **changes}
    )
    return metric


def tree_of(metric: LocalMetric) -> PrefixTree:
    assert isinstance(metric.randomizer, PrefixTree)
    return metric.randomizer


def test_counts_that_no_reports_can_have_are_named() -> None:
    metric = strings(options={"last": 16, "rows": 1})
    table = metric.table(summed(metric, ["JFK"] * 100, np.arange(100) % 2))
    tree = tree_of(metric)
    assert tree.find_error(table) is None
    for cell, more, why in (
        ((0, 0), 1, "over all symbols"),
        ((1, 5), 1, "over all symbols"),
        ((1, 6), -(2**40), "negative number"),
        ((0, 0), -200, "negative number"),
    ):
        broken = table.copy()
        broken[cell] += more
        assert why in str(tree.find_error(broken))


def test_points_are_exact_and_depths_end_where_they_should() -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 1000, dtype=np.uint64)
    words[:2] = 0, 2**64 - 1
    for points in (1, 1407, 70_644, 2**17):
        assert points_of(words, points).tolist() == [points * int(w) >> 64 for w in words]
    assert depths_between(16, 64, 4) == tuple(range(16, 65, 4))
    assert depths_between(8, 8, 4) == (8,)
    assert depths_between(16, 128, 8)[-1] == 128


def test_no_two_tables_share_a_hash() -> None:
    layout = DiscoveryLayout((Fraction(1), Fraction(2)), (16,), 256, 7)
    rows = [word for level in layout.hashed_rows for word in level.constants.tolist()]
    words = {*layout.tree_constants.tolist(), *rows}
    assert len(words) == 2 + 2 * 256


def packed(numbers: Any, n: int, dtype: Any) -> Any:
    """Return the words of which `n` smaller numbers are the parts."""
    parts = np.zeros(-(-n * np.dtype(dtype).itemsize // 8) * 8 // np.dtype(dtype).itemsize, dtype)
    parts[:n] = numbers
    return parts.view(np.uint64)


@pytest.mark.parametrize("whole", [True, False], ids=["whole strings", "prefixes"])
@pytest.mark.parametrize("epsilon", MANY_LEVELS[::2])
def test_the_whole_law_of_a_report_is_private_as_documented(epsilon: float, whole: bool) -> None:
    """Every point that a script's words make, for two strings, in fractions."""
    metric = strings(levels=[epsilon], options={"last": 20, "rows": 3})
    mechanism = tree_of(metric)
    geometry = (mechanism.layout.sketches if whole else mechanism.layout.trees)[0]
    space = geometry.space
    points, size = space.points, space.size
    misses = miss_threshold(min(exact(epsilon), LARGEST_EPSILON), size, points - size)
    first, rest = divmod(misses, 2**56)
    u, group = (1, 2) if whole else (5, 1)  # below 3 G = 6: 0 and 1 are for whole strings
    start = (2 * mechanism.layout.trees[0].points if whole else 0) + group * points

    def reported(value: Any, byte: Any, drawn: Any, ties: tuple[int, ...] = ()) -> list[int]:
        """Return the points of as many reports of one value as there are bytes or ranks."""
        n = max(np.size(byte), np.size(drawn))
        own = [packed(group, n, np.uint32)] if whole else []
        coins, rest = packed(byte, n, np.uint8), [tie << 8 for tie in ties]
        ranks = packed(drawn, n, np.uint32)
        script = ScriptedBits(packed(u, n, np.uint32), *own, coins, rest, ranks)
        level = np.zeros(n, dtype=np.int64)
        points = mechanism.randomize(np.repeat(value[None], n, axis=0), level, script)
        assert not script.words
        return [int(point) - start for point in points]

    laws = []
    for value in metric.domain.to_unit(np.array(["N725MQ", "N999XX"])):
        own = reported(value, 255, 0)[0] - int(space.members[0])
        inside = {(own + member) % points for member in space.members.tolist()}
        few = 1 if whole else 97  # of the many prefixes' points
        within = set(reported(value, 255, range(0, size, few)))
        assert within <= inside
        assert len(within) == len(range(0, size, few))
        some = range(0, points - size, few)
        outside = set(reported(value, 0, some)) if first else set()
        assert not inside & outside
        assert all(0 <= point < points for point in inside | outside)
        if whole and first:
            assert len(inside | outside) == points
        others = [byte for byte in range(256) if byte != first]
        is_in = [point in inside for point in reported(value, others, 0)]
        assert is_in == [False] * first + [True] * (255 - first)
        assert reported(value, first, 0, (rest,))[0] in inside
        assert not rest or reported(value, first, 0, (rest - 1,))[0] not in inside
        laws.append(inside)
    assert laws[0] != laws[1]
    assert len(laws[0] & laws[1]) == space.shared
    on, off = Fraction(WORD - misses, WORD * size), Fraction(misses, WORD * (points - size))
    assert size * on + (points - size) * off == 1
    assert on / off <= mechanism.privacy_ratio(0) <= exp_bounds(exact(epsilon))[0]
    assert geometry.p == size * on


def test_the_certificate_is_the_larger_of_the_two_ratios() -> None:
    mechanism = tree_of(strings(levels=MANY_LEVELS))
    for level, epsilon in enumerate(MANY_LEVELS):
        ratios = []
        for geometry in (mechanism.layout.trees[level], mechanism.layout.sketches[level]):
            size, rest = geometry.space.size, geometry.space.points - geometry.space.size
            misses = miss_threshold(min(exact(epsilon), LARGEST_EPSILON), size, rest)
            ratios.append(Fraction((WORD - misses) * rest, misses * size))
        assert mechanism.privacy_ratio(level) == max(ratios) <= exp_bounds(exact(epsilon))[0]


def test_a_third_of_the_reports_are_of_whole_strings_and_the_rest_of_each_depth_alike() -> None:
    """Every u below 3 G = 39 by script: 13 whole, and two for each depth."""
    metric = strings(levels=[4])
    layout, value = tree_of(metric).layout, metric.domain.to_unit(np.array(["A"]))
    points, found = layout.trees[0].points, []
    for u in range(39):
        script = ScriptedBits([u], [0] * (u < 13), [255], [0])
        number = int(tree_of(metric).randomize(value, np.array([0]), script)[0])
        found.append(min(number // points, 13))
    assert sorted(found) == sorted([13] * 13 + [group for group in range(13) for _ in (0, 1)])


def test_a_string_is_reported_in_its_normal_form() -> None:
    metric = strings()
    one, two = metric.domain.to_unit(np.array(["\u00e9", "e\u0301"]))
    assert np.array_equal(one, two)
    with pytest.raises(ValueError, match="Unicode"):
        metric.randomize(np.array(["\ud800"], dtype=object), np.array([0]))
    with pytest.raises(ValueError, match="expected a string"):
        metric.randomize(np.array([3], dtype=object), np.array([0]))


def test_a_definition_that_cannot_be_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"preset": None}, "m.preset"),
        ({"preset": "latin"}, "m.preset"),
        ({"preset": "text", "examples": ["a"]}, "m.examples"),
        ({"preset": None, "examples": []}, "m.examples"),
        ({"preset": None, "code": "x"}, "m.code"),
        ({"discover": False}, "m.preset"),
        ({"mechanism": "count_sketch"}, "m.discover"),
        ({"categories": ["a", "b"]}, "m.discover"),
        ({"memoized": True}, "m.memoized"),
        ({"options": {"last": 63}}, "m.options"),
        ({"options": {"first": 20}}, "m.options"),
        ({"options": {"step": 0}}, "m.options"),
        ({"options": {"rows": 10**6}}, "m.options"),
        ({"options": {"seed": -1}}, "m.options"),
    ]
    for change, named in refused:
        with row(change):
            with pytest.raises(DefinitionError) as wrong:
                strings(**change)
            assert wrong.value.key == named


def test_a_definition_carries_the_code_that_its_examples_taught() -> None:
    examples = ["N101AA", "N102AA", "N103UW", "N104UW", "N725MQ"]
    metric = strings(preset=None, examples=examples)
    table = definition_of(metric)
    assert "examples" not in table
    again = define(name="m", **table)
    assert again.revision == metric.revision
    assert strings(preset=None, examples=examples[:-1]).revision != metric.revision
    assert strings(watch=["A"]).revision == strings().revision != metric.revision


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
