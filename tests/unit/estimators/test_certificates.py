"""The certificates speak of the randomizers as they run: thresholds are read off their output."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits, SystemBits
from estimators.exact.sampling import normal_numbers
from estimators.exact.thresholds import WORD, exp_bounds, flip_threshold, miss_threshold
from estimators.mechanisms import (
    Caps,
    CountSketch,
    Grr,
    HadamardResponse,
    Hemisphere,
    Laplace,
    LiftedCaps,
    Oue,
    Projection,
    ProjectiveGeometryResponse,
    RandomizedResponse,
    Rappor,
    RecursiveHadamard,
    RepeatedFrequency,
    RepeatedMean,
    SubsetSelection,
    Windows,
    mechanism_class,
)
from estimators.mechanisms.repetition import FREQUENCIES
from estimators.mechanisms.subset_selection import uniform_subsets
from tests.support.reports.cases import MANY_LEVELS, ScriptedBits, exact

EPSILONS = [exact(epsilon) for epsilon in MANY_LEVELS]
each_level = pytest.mark.parametrize("level", range(len(EPSILONS)), ids=str)


@each_level
def test_randomized_response_flips_below_its_threshold_and_only_there(level: int) -> None:
    mechanism = RandomizedResponse(EPSILONS)
    threshold = flip_threshold(EPSILONS[level])
    first, rest = divmod(threshold, 2**56)

    def report(byte: int, tie: int = 0) -> int:
        script = ScriptedBits([0], [byte], [tie << 8])
        return int(mechanism.randomize(np.ones(1), np.array([level]), script)[0])

    zeros = sum(report(byte) == 0 for byte in range(256) if byte != first) * 2**56
    assert report(first, rest) == 1
    assert rest == 0 or report(first, rest - 1) == 0
    assert zeros + rest == threshold
    assert mechanism.privacy_ratio(level) == Fraction(WORD - threshold, threshold)
    assert mechanism.privacy_ratio(level) <= exp_bounds(EPSILONS[level])[0]


@each_level
def test_rappor_flips_each_bit_below_the_threshold_of_half_epsilon(level: int) -> None:
    mechanism = Rappor(EPSILONS, categories=8)
    threshold = flip_threshold(EPSILONS[level] / 2)
    first, rest = divmod(threshold, 2**56)

    def report(bits: list[int], ties: list[int]) -> str:
        word = int.from_bytes(bytes(bits), "little")
        script = ScriptedBits([word], [tie << 8 for tie in ties])
        row = mechanism.randomize(np.array([2]), np.array([level]), script)[0]
        return "".join(map(str, np.unpackbits(row.view(np.uint8), bitorder="little")))

    assert report([255] * 8, []) == "00100000"
    assert report([255] * 4 + [first] + [255] * 3, [rest]) == "00100000"
    if rest:
        assert report([255] * 4 + [first] + [255] * 3, [rest - 1]) == "00101000"
        assert report([255] * 2 + [first] + [255] * 5, [rest - 1]) == "00000000"
    assert mechanism.privacy_ratio(level) == Fraction(WORD - threshold, threshold) ** 2
    assert mechanism.privacy_ratio(level) <= exp_bounds(EPSILONS[level])[0]


@each_level
def test_grr_names_another_category_below_its_threshold_and_only_there(level: int) -> None:
    mechanism = Grr(EPSILONS, categories=6)
    threshold = miss_threshold(EPSILONS[level], 1, 5)
    first, rest = divmod(threshold, 2**56)

    def report(words: list[int]) -> int:
        return int(mechanism.randomize(np.array([2]), np.array([level]), ScriptedBits(words))[0])

    named = [report([byte, other]) for byte in range(first) for other in range(5)]
    assert named == [0, 1, 3, 4, 5] * first
    assert all(report([byte]) == 2 for byte in range(first + 1, 256))
    assert report([first, rest << 8]) == 2
    if rest:
        assert report([first, (rest - 1) << 8, 4]) == 5
    assert mechanism.privacy_ratio(level) == Fraction(WORD - threshold, WORD) / Fraction(
        threshold, 5 * WORD
    )


@each_level
def test_windows_are_left_below_the_threshold_and_all_ranks_are_alike(level: int) -> None:
    mechanism = Windows(EPSILONS)
    shape = mechanism.shapes[level]
    window, others = shape.window, len(shape.z) - shape.window
    threshold = miss_threshold(EPSILONS[level], window, others)
    first, rest = divmod(threshold, 2**56)

    def report(*words: int, value: float = 1.0) -> int:
        # a value on a knot is not rounded: the coin's byte does not matter, nor does its tie
        script = ScriptedBits([255], words)
        return int(mechanism.randomize(np.array([value]), np.array([level]), script)[0])

    missed = {byte: report(byte, 0) < others for byte in range(256) if byte != first}
    assert missed == {byte: byte < first for byte in missed}
    assert report(first, rest << 8, 0) == others
    assert rest == 0 or report(first, (rest - 1) << 8, 0) == 0

    def ranks(byte: int, bound: int, value: float) -> list[int]:
        """The reports for each byte of a rank that is not drawn again."""
        return [report(byte, rank, value=value) for rank in range(256 // bound * bound)]

    for value, start in ((1.0, others), (-1.0, 0)):
        inside = list(range(start, start + window))
        if first < 255:
            found = ranks(255, window, value)
            assert sorted(found) == sorted(inside * (256 // window))
            assert report(255, 256 // window * window % 256, 0, value=value) == start
        if first > 0:
            outside = [symbol for symbol in range(len(shape.z)) if symbol not in inside]
            assert ranks(0, others, value) == outside * (256 // others)
    ratio = Fraction(WORD - threshold, window) / Fraction(threshold, others)
    assert mechanism.privacy_ratio(level) == ratio <= exp_bounds(EPSILONS[level])[0]


@pytest.mark.parametrize("categories", [2, 3, 1000, 10**6, 2**32])
def test_grr_is_private_and_informative_for_every_number_of_categories(categories: int) -> None:
    mechanism_levels = EPSILONS if categories < 10**6 else EPSILONS[::5]
    for epsilon in mechanism_levels:
        misses = miss_threshold(epsilon, 1, categories - 1)
        ratio = Fraction((WORD - misses) * (categories - 1), misses)
        assert 1 < ratio <= exp_bounds(epsilon)[0]
        lower = Fraction((WORD - misses + 1) * (categories - 1), misses - 1) if misses > 1 else None
        assert lower is None or lower > exp_bounds(epsilon)[1]


@each_level
def test_oue_draws_the_own_bit_from_a_fair_coin_and_others_below_the_threshold(level: int) -> None:
    mechanism = Oue(EPSILONS, categories=8)
    threshold = flip_threshold(EPSILONS[level])
    first, rest = divmod(threshold, 2**56)

    def report(bits: list[int], ties: list[int], coin: int) -> str:
        word = int.from_bytes(bytes(bits), "little")
        script = ScriptedBits([word], [tie << 8 for tie in ties], [coin])
        row = mechanism.randomize(np.array([2]), np.array([level]), script)[0]
        return "".join(map(str, np.unpackbits(row.view(np.uint8), bitorder="little")))

    assert report([255] * 8, [], 127) == "00100000"
    assert report([255] * 8, [], 128) == "00000000"
    assert report([255] * 4 + [first] + [255] * 3, [rest], 0) == "00100000"
    if rest:
        assert report([255] * 4 + [first] + [255] * 3, [rest - 1], 0) == "00101000"
        assert report([255] * 4 + [first] + [255] * 3, [rest - 1], 255) == "00001000"
    ones, half = Fraction(threshold, WORD), Fraction(1, 2)
    assert mechanism.privacy_ratio(level) == (half / ones) * ((1 - ones) / half)


@each_level
@pytest.mark.parametrize("size", [1, 2, 4])
def test_subsets_leave_the_category_out_below_the_threshold(level: int, size: int) -> None:
    mechanism = SubsetSelection(EPSILONS, categories=5, size=size)
    threshold = miss_threshold(EPSILONS[level], size, 5 - size)
    first, rest = divmod(threshold, 2**56)

    def contains(words: list[int]) -> bool:
        script = ScriptedBits([*words, *[0] * 8])
        row = mechanism.randomize(np.array([2]), np.array([level]), script)[0]
        assert int(row[0]).bit_count() == size
        return bool(row[0] & 4)

    assert [contains([byte]) for byte in range(256) if byte != first] == [False] * first + [
        True
    ] * (255 - first)
    assert contains([first, rest << 8])
    assert rest == 0 or not contains([first, (rest - 1) << 8])
    inside = Fraction(WORD - threshold, WORD) / math.comb(4, size - 1)
    outside = Fraction(threshold, WORD) / math.comb(4, size)
    assert mechanism.privacy_ratio(level) == inside / outside
    assert mechanism.privacy_ratio(level) <= exp_bounds(EPSILONS[level])[0]


def test_every_subset_is_drawn_from_the_same_number_of_words() -> None:
    """Floyd's algorithm, over all integers that it can draw: 3 times 4 for 2 of 4 members."""
    drawn = [
        uniform_subsets(ScriptedBits([first], [second]), 1, 4, 2)[0].nonzero()[0].tolist()
        for first in range(3)
        for second in range(4)
    ]
    assert all(drawn.count([a, b]) == 2 for a in range(4) for b in range(a + 1, 4))


@pytest.mark.parametrize("categories", [2, 3, 7, 10])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.5, 8.0])
def test_every_word_of_hadamard_response_makes_a_symbol_of_its_own(
    epsilon: float, categories: int
) -> None:
    """Half a block from the words that keep, all other symbols from those that miss, once each."""
    mechanism = HadamardResponse([exact(epsilon)], categories=categories)
    half, symbols = mechanism.block_sizes[0] // 2, mechanism.symbols[0]
    first = mechanism.misses[0] >> 56
    sets = []
    for category in range(categories):

        def report(byte: int, drawn: int, category: int = category) -> int:
            script = ScriptedBits([byte, 0][: 1 + (byte == first)], [drawn])
            return int(mechanism.randomize(np.array([category]), np.array([0]), script)[0])

        inside = {report(255, drawn) for drawn in range(half)}
        outside = {report(0, drawn) for drawn in range(symbols - half)}
        assert len(inside) == half
        assert outside == set(range(symbols)) - inside
        sets.append(inside)
    for one, other in itertools.combinations(sets, 2):
        assert len(one & other) in (0, half // 2)
    threshold = miss_threshold(exact(epsilon), half, symbols - half)
    assert mechanism.privacy_ratio(0) == Fraction(WORD - threshold, WORD * half) / Fraction(
        threshold, WORD * (symbols - half)
    )


@pytest.mark.parametrize("categories", [2, 3, 7, 10, 20])
@pytest.mark.parametrize("epsilon", [0.0001, 0.25, 1.0, 2.5, 8.0])
def test_the_law_of_projective_geometry_response_is_private_and_as_documented(
    epsilon: float, categories: int
) -> None:
    """The whole law, in fractions, from the points that each word of the script makes."""
    mechanism = ProjectiveGeometryResponse([exact(epsilon)], categories=categories)
    geometry, misses = mechanism.geometries[0], mechanism.misses[0]
    size, rest = geometry.size, geometry.points - geometry.size
    first = misses >> 56

    def report(category: int, byte: int, drawn: int) -> int:
        script = ScriptedBits([byte], [0] * (byte == first), [drawn])
        return int(mechanism.randomize(np.array([category]), np.array([0]), script)[0])

    planes, laws = [], []
    for category in range(categories):
        inside = [report(category, 255, drawn) for drawn in range(size)]
        outside = [report(category, 0, drawn) for drawn in range(rest)]
        assert sorted(inside + outside) == list(range(geometry.points))
        planes.append(set(inside))
        chances = dict.fromkeys(inside, Fraction(WORD - misses, WORD * size))
        chances |= dict.fromkeys(outside, Fraction(misses, WORD * rest))
        assert sum(chances.values()) == 1
        laws.append(chances)
    largest = max(
        one[y] / other[y] for one in laws for other in laws for y in range(geometry.points)
    )
    assert largest == mechanism.privacy_ratio(0) <= exp_bounds(exact(epsilon))[0]
    for x, law in enumerate(laws):
        for asked, plane in enumerate(planes):
            assert asked == x or len(plane & planes[x]) == geometry.shared
            chance = float(sum(law[y] for y in plane))
            signs = mechanism.signs
            assert chance == pytest.approx(signs.p[0] if asked == x else signs.q[0], rel=1e-15)


@each_level
@pytest.mark.parametrize("categories", [10, 1000])
def test_projective_geometry_response_leaves_the_hyperplane_below_its_threshold(
    level: int, categories: int
) -> None:
    mechanism = ProjectiveGeometryResponse(EPSILONS, categories=categories)
    geometry = mechanism.geometries[level]
    size, points = geometry.size, geometry.points
    threshold = miss_threshold(EPSILONS[level], size, points - size)
    first, rest = divmod(threshold, 2**56)

    def is_inside(*words: int) -> bool:
        script = ScriptedBits(words, [0])
        point = mechanism.randomize(np.array([7]), np.array([level]), script)[0]
        return (int(point) - 7) % points in geometry.members

    bytes_inside = [is_inside(byte) for byte in range(256) if byte != first]
    assert bytes_inside == [False] * first + [True] * (255 - first)
    assert is_inside(first, rest << 8)
    assert rest == 0 or not is_inside(first, (rest - 1) << 8)
    assert mechanism.privacy_ratio(level) == Fraction(WORD - threshold, WORD * size) / Fraction(
        threshold, WORD * (points - size)
    )


@each_level
@pytest.mark.parametrize(
    ("categories", "options"), [(3, {}), (5, {"rows": 4}), (None, {"rows": 3, "seed": 9})]
)
def test_projection_flips_the_sign_of_a_uniform_row_below_its_threshold(
    level: int, categories: int | None, options: dict[str, int]
) -> None:
    """The whole law of the reports of each value, from the words that make them."""
    mechanism = Projection(EPSILONS, categories=categories, **options)
    threshold = flip_threshold(EPSILONS[level])
    first, rest = divmod(threshold, 2**56)

    def report(value: int, row: int, byte: int, tie: int = 0) -> int:
        script = ScriptedBits([row], [byte], [tie << 8])
        own = np.array([value], dtype=np.uint64 if categories is None else np.int64)
        return int(mechanism.randomize(own, np.array([level]), script)[0])

    laws = []
    for value in range(categories or 8):
        law = dict.fromkeys(range(2 * mechanism.rows), Fraction(0))
        for row in range(mechanism.rows):
            told = {report(value, row, byte) for byte in range(first + 1, 256)} or {
                report(value, row, first, rest)
            }
            lied = told.pop() ^ 1
            assert not told
            assert {report(value, row, byte) for byte in range(first)} <= {lied}
            assert report(value, row, first, rest) == lied ^ 1
            assert rest == 0 or report(value, row, first, rest - 1) == lied
            law[lied] = Fraction(threshold, WORD * mechanism.rows)
            law[lied ^ 1] = Fraction(WORD - threshold, WORD * mechanism.rows)
        assert sum(law.values()) == 1
        laws.append(law)
    largest = max(one[y] / other[y] for one in laws for other in laws for y in one)
    assert largest == mechanism.privacy_ratio(level) <= exp_bounds(EPSILONS[level])[0]


@pytest.mark.parametrize("categories", [2, 3, 7, 10])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.5, 8.0])
def test_recursive_hadamard_has_the_same_law_but_for_the_symbol_of_the_row(
    epsilon: float, categories: int
) -> None:
    """The whole law of the reports, over all rows and words; no two categories differ by more."""
    mechanism = RecursiveHadamard([exact(epsilon)], categories=categories)
    rows, symbols = mechanism.rows[0], 2 ** mechanism.bits[0]
    threshold = miss_threshold(exact(epsilon), 1, symbols - 1)
    first, rest = divmod(threshold, 2**56)
    kept, missed = Fraction(WORD - threshold, WORD), Fraction(threshold, WORD)
    laws = []
    for category in range(categories):

        def report(row: int, words: list[int], category: int = category) -> int:
            script = ScriptedBits([row], words)
            return int(mechanism.randomize(np.array([category]), np.array([0]), script)[0])

        law: dict[int, Fraction] = {}
        for row in range(rows):
            own = report(row, [first, rest << 8])
            assert rest == 0 or report(row, [first, (rest - 1) << 8, 0]) != own
            assert first == 0 or report(row, [first - 1, 0]) != own
            assert report(row, [255]) == own
            low = [first, 0] if first == 0 else [0]
            others = [report(row, [*low, drawn]) for drawn in range(symbols - 1)]
            assert sorted([own, *others]) == list(range(row * symbols, (row + 1) * symbols))
            law |= dict.fromkeys(others, missed / (rows * (symbols - 1)))
            law[own] = kept / rows
        assert sum(law.values()) == 1
        laws.append(law)
    ratios = [one[x] / other[x] for one, other in itertools.permutations(laws, 2) for x in one]
    assert max(ratios) == mechanism.privacy_ratio(0) <= exp_bounds(exact(epsilon))[0]


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.5, 8.0])
def test_every_word_of_a_count_sketch_makes_a_symbol_of_the_row_that_was_drawn(
    epsilon: float,
) -> None:
    """A key names one symbol of each row; the row's others come from words that miss, once each."""
    mechanism = CountSketch([exact(epsilon)], categories=None, rows=2, buckets=8)
    blocks, first = mechanism.blocks[0], mechanism.misses[0] >> 56
    size = mechanism.buckets // blocks
    named = []
    for key in range(6):

        def report(drawn: int, byte: int, other: int = 0, key: int = key) -> int:
            ties = [0] if byte == first else []
            script = ScriptedBits([drawn], [byte], ties, [other])
            keys = np.array([key], dtype=np.uint64)
            return int(mechanism.randomize(keys, np.array([0]), script)[0])

        for drawn in range(2 * size):
            kept = report(drawn, 255)
            missed = {report(drawn, 0, other) for other in range(2 * blocks - 1)}
            row, r = divmod(drawn, size)
            symbols = {
                2 * (8 * row + size * block + r) + sign
                for block in range(blocks)
                for sign in (0, 1)
            }
            assert missed | {kept} == symbols
            assert kept not in missed
            named.append(kept)
    assert len(set(named)) > 2 * size  # the keys do not all name the same
    threshold = miss_threshold(exact(epsilon), 1, 2 * blocks - 1)
    assert mechanism.privacy_ratio(0) == Fraction(WORD - threshold, WORD) / Fraction(
        threshold, WORD * (2 * blocks - 1)
    )


@each_level
@pytest.mark.parametrize("grid", [1, 1024])
def test_laplace_has_exactly_the_exponent_epsilon(level: int, grid: int) -> None:
    mechanism = Laplace(EPSILONS, grid=grid)
    assert mechanism.privacy_exponent(level) == EPSILONS[level]
    lower, upper = exp_bounds(EPSILONS[level])
    assert lower <= mechanism.privacy_ratio(level) < upper


def exact_laplace_law(rate: Fraction, x: int, limit: int) -> list[tuple[Fraction, Fraction]]:
    """Enclose the probabilities of the reports -limit to limit given x, in rational numbers."""
    ends = [exp_bounds(rate * distance) for distance in range(2 * limit + 2)]
    power = [(1 / high, 1 / low) for low, high in ends]  # q^distance
    (q_low, q_high), one = power[1], Fraction(1)
    law = []
    for y in range(-limit, limit + 1):
        low, high = power[abs(y - x)]
        if abs(y) == limit:  # the clamp gathers a tail: q^d (1 + q + ...) = q^d / (1 - q)
            low, high = low / (one - q_low), high / (one - q_high)
        law.append((low * (one - q_high) / (one + q_high), high * (one - q_low) / (one + q_low)))
    return law


@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(1), Fraction(5, 2), Fraction(16)])
def test_no_report_of_laplace_is_likelier_by_more_than_its_exponent(epsilon: Fraction) -> None:
    grid, limit = 4, 12
    laws = {x: exact_laplace_law(epsilon / (2 * grid), x, limit) for x in range(-grid, grid + 1)}
    upper = exp_bounds(epsilon)[1] * (1 + Fraction(1, 2**180))
    for one in laws.values():
        assert abs(sum((low for low, _ in one), Fraction(-1))) < Fraction(1, 2**180)
        for other in laws.values():
            assert all(p[1] <= upper * q[0] for p, q in zip(one, other, strict=True))


def test_the_clamp_leaves_less_than_two_to_the_minus_64() -> None:
    for epsilon in EPSILONS:
        mechanism = Laplace([epsilon])
        tail = int(mechanism.limits[0]) - mechanism.grid
        smallest = exp_bounds(epsilon / (2 * mechanism.grid) * (tail + 1))[0]
        assert 2 / smallest < Fraction(1, WORD)


def test_a_value_beyond_the_domain_gets_no_more_room_on_the_grid() -> None:
    mechanism = Laplace([Fraction(64)], grid=1)
    beyond = np.array([-1 - 2**-52, 1 + 2**-52] * 50_000)
    at_end = np.array([-1.0, 1.0] * 50_000)
    level = np.zeros(100_000, dtype=np.uint8)
    for values in (beyond, at_end):
        reports = mechanism.randomize(values, level, SystemBits())
        assert np.array_equal(reports, at_end)  # noise at epsilon 64 is zero but for 1 in 10^13


@each_level
def test_hemisphere_turns_its_vector_below_the_threshold_and_only_there(level: int) -> None:
    """Same direction, rounding and length; the byte of the private coin decides the sign."""
    mechanism = Hemisphere(EPSILONS, dimension=2)
    threshold = flip_threshold(EPSILONS[level])
    first, rest = divmod(threshold, 2**56)

    def report(byte: int, tie: int = 0) -> list[int]:
        script = ScriptedBits([2**60 | 2**31], [0], [byte], [tie << 8], [0])
        own = np.array([[0.6, 0.8]])
        return list(map(int, mechanism.randomize(own, np.array([level]), script)[0]))

    kept = report(255) if first < 255 else report(first, rest)
    turned = [-x for x in kept]
    assert kept[0] * 0.6 + kept[1] * 0.8 > 0
    turns = sum(report(byte) == turned for byte in range(256) if byte != first) * 2**56
    assert report(first, rest) == kept
    assert rest == 0 or report(first, rest - 1) == turned
    assert turns + rest == threshold
    assert mechanism.privacy_ratio(level) == Fraction(WORD - threshold, threshold)


@pytest.mark.parametrize("parameters", [{}, {"categories": 6}], ids=["mean", "frequency"])
@each_level
def test_auto_draws_what_the_chosen_mechanism_draws(level: int, parameters: dict[str, int]) -> None:
    """Same words, same bytes, whatever else is on offer; and so the same certificate."""
    kind = "frequency" if parameters else "mean"
    composite: Any = mechanism_class("auto", kind)
    mechanism = composite(EPSILONS, **parameters)
    build: Any = mechanism_class(mechanism.level_mechanisms[level], kind)
    chosen = build([EPSILONS[level]], **parameters)
    value = np.array([2]) if parameters else np.array([1.0])
    for seed in range(20):
        own = chosen.randomize(value, np.array([0]), SeededBits(seed))
        drawn = mechanism.randomize(value, np.array([level]), SeededBits(seed))
        assert mechanism.encode(drawn) == chosen.encode(own).ljust(mechanism.width, b"\0")
    assert mechanism.privacy_ratio(level) == chosen.privacy_ratio(0)
    assert mechanism.is_private(level)


@each_level
def test_a_repeated_sign_is_flipped_below_the_threshold_of_its_share_of_epsilon(level: int) -> None:
    """Every report has words of its own; all of them read a threshold off the output."""
    mechanism, epsilon = RepeatedMean(EPSILONS), EPSILONS[level]
    times = math.ceil(epsilon)
    threshold = flip_threshold(epsilon / times)
    first, rest = divmod(threshold, 2**56)

    def reports(bytes_drawn: list[int], ties: list[int]) -> list[int]:
        left = iter(ties)  # each report rounds, draws a coin, and breaks its tie
        words = [
            word
            for byte in bytes_drawn
            for word in (0, byte, *([next(left) << 8] if byte == first and ties else []))
        ]
        script = ScriptedBits(words)
        row = mechanism.randomize(np.ones(1), np.array([level]), script)[0]
        assert not script.words
        assert not row[times:].any()
        return list(map(int, row[:times]))

    for place in range(times):
        kept = [255] * place, [255] * (times - 1 - place)
        assert reports([*kept[0], first, *kept[1]], [rest]) == [1] * times
        if first:
            flipped = [int(index != place) for index in range(times)]
            assert reports([*kept[0], first - 1, *kept[1]], []) == flipped
    ratio = Fraction(WORD - threshold, threshold)
    assert mechanism.privacy_ratio(level) == ratio**times
    assert mechanism.privacy_ratio(level) <= exp_bounds(epsilon)[0]


@pytest.mark.parametrize("of", [mechanism.name for mechanism in FREQUENCIES])
@each_level
def test_repeated_reports_of_a_category_are_private_together(level: int, of: str) -> None:
    mechanism = RepeatedFrequency(EPSILONS, of=of, categories=6)
    epsilon = EPSILONS[level]
    times = math.ceil(epsilon)
    build: Any = mechanism_class(of, "frequency")
    one = build([epsilon / times], categories=6)
    for seed in range(5):
        drawn = mechanism.randomize(np.array([2]), np.array([level]), SeededBits(seed))[0]
        bits = SeededBits(seed)
        own = [one.randomize(np.array([2]), np.array([0]), bits)[0] for _ in range(times)]
        assert np.array_equal(drawn[:times], own)
        assert not drawn[times:].any()
    assert mechanism.privacy_ratio(level) == one.privacy_ratio(0) ** times
    assert mechanism.is_private(level)


@pytest.mark.parametrize("level", range(0, len(EPSILONS), 2))
@pytest.mark.parametrize("build", [Caps, LiftedCaps])
def test_caps_report_one_of_the_nearest_directions_unless_below_the_threshold(
    build: type[Caps], level: int
) -> None:
    """Candidates from the script's words; which of them is sent, by its byte and its tie."""
    mechanism, value = build(EPSILONS, dimension=3), np.array([0.0, 0.6, 0.8])
    (k, inside), d = mechanism.sets[level], mechanism.dimension
    size = -(-(k // 2) * d // 2)
    words = np.random.default_rng(level).integers(0, 2**64, size, dtype=np.uint64)
    directions = normal_numbers(words)[: k // 2 * d].reshape(-1, d)
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    candidates = np.concatenate([directions, -directions])
    near = np.argsort(-(candidates @ np.append(value, 0.0)[:d]))[:inside]
    threshold = miss_threshold(EPSILONS[level], inside, k - inside)
    first, rest = divmod(threshold, 2**56)

    def is_near(*coin: int) -> bool:
        script = ScriptedBits(words.tolist(), [0], coin, [0] if k > 2 else [], [2**63] * 8)
        report = mechanism.randomize(value[None], np.array([level]), script)[0]
        return int(np.argmax(candidates @ report)) in near

    some = {0, 255, *range(9, 256, 60), max(first - 1, 0), min(first + 1, 255)} - {first}
    assert {byte: is_near(byte) for byte in some} == {byte: byte > first for byte in some}
    assert is_near(first, rest << 8)
    assert rest == 0 or not is_near(first, (rest - 1) << 8)
    ratio = Fraction(WORD - threshold, inside) / Fraction(threshold, k - inside)
    assert mechanism.privacy_ratio(level) == ratio <= exp_bounds(EPSILONS[level])[0]
