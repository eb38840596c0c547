"""The certificates speak of the randomizers as they run: thresholds are read off their output."""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from estimators import mechanisms
from estimators.exact.geometries import LARGEST_EPSILON
from estimators.exact.randomness import SeededBits, SystemBits
from estimators.exact.sampling import normal_numbers
from estimators.exact.thresholds import WORD, exp_bounds, flip_threshold, miss_threshold
from estimators.mechanisms.auto import FREQUENCY_CANDIDATES
from estimators.mechanisms.subset_selection import uniform_subsets
from tests.support.reports.cases import MANY_LEVELS, ScriptedBits, exact
from tests.support.rows import row

EPSILONS = [exact(epsilon) for epsilon in MANY_LEVELS]
every_level = pytest.mark.parametrize("epsilon", EPSILONS, ids=float)


def check_threshold(threshold: int, missed: Callable[..., bool]) -> None:
    """Check that the words below a threshold miss, and no others.

    The first byte of a word is drawn alone; the other seven follow where it does not decide.
    """
    first, rest = divmod(threshold, 2**56)
    some = {0, *range(9, 256, 30), 255, max(first - 1, 0), min(first + 1, 255)} - {first}
    assert {byte: missed(byte) for byte in some} == {byte: byte < first for byte in some}
    assert not missed(first, rest << 8)
    assert rest == 0 or missed(first, (rest - 1) << 8)


class Law(NamedTuple):
    """A mechanism of one level whose reports are a public part, a coin, and a rank."""

    mechanism: Any
    values: Sequence[Any]
    public: Sequence[Sequence[int]]
    inside: int
    outside: int
    threshold: int


def flipped(mechanism: Any, epsilon: Fraction, values: Any, public: Any = ((128,),)) -> Law:
    return Law(mechanism, values, public, 1, 1, flip_threshold(epsilon))


def ranked(
    mechanism: Any, epsilon: Fraction, values: Any, inside: int, outside: int, public: Any = ((),)
) -> Law:
    threshold = miss_threshold(epsilon, inside, outside)
    return Law(mechanism, values, public, inside, outside, threshold)


def rows_of(count: int) -> list[tuple[int]]:
    return [(number,) for number in range(count)]


def all_laws(epsilon: Fraction) -> dict[str, Law]:
    grr, ends = mechanisms.Grr([epsilon], categories=6), (1.0, -1.0)
    found = {"grr": ranked(grr, epsilon, range(6), 1, 5)}
    found["randomized_response"] = flipped(mechanisms.RandomizedResponse([epsilon]), epsilon, ends)
    windows = mechanisms.Piecewise([epsilon])
    window, symbols = windows.shapes[0].window, len(windows.shapes[0].z)
    # a value on a knot is not rounded: the coin's byte does not matter
    found["windows"] = ranked(windows, epsilon, ends, window, symbols - window, ((255,),))
    for categories in (2, 7, 10):
        hadamard = mechanisms.HadamardResponse([epsilon], categories=categories)
        half, every = hadamard.block_sizes[0] // 2, range(categories)
        found[f"hadamard_response {categories}"] = ranked(
            hadamard, epsilon, every, half, hadamard.symbols[0] - half
        )
        projective = mechanisms.ProjectiveGeometryResponse([epsilon], categories=categories)
        geometry = projective.geometries[0]
        found[f"projective_geometry_response {categories}"] = ranked(
            projective, epsilon, every, geometry.size, geometry.points - geometry.size
        )
        recursive = mechanisms.RecursiveHadamard([epsilon], categories=categories)
        found[f"recursive_hadamard {categories}"] = ranked(
            recursive, epsilon, every, 1, 2 ** recursive.bits[0] - 1, rows_of(recursive.rows[0])
        )
    options: tuple[tuple[int | None, dict[str, int]], ...]
    options = ((3, {}), (5, {"rows": 4}), (None, {"rows": 3, "seed": 9}))
    for some, changes in options:
        projection = mechanisms.Projection([epsilon], categories=some, **changes)
        values = range(some) if some else np.arange(8, dtype=np.uint64)
        name = f"projection {some}"
        found[name] = flipped(projection, epsilon, values, rows_of(projection.rows))
    hashed = mechanisms.ProjectiveSketch([epsilon], categories=None, rows=2, points=64)
    of_rows, space = rows_of(hashed.hashed_rows[0].rows), hashed.hashed_rows[0].geometry.space
    inside, outside = space.size, space.points - space.size
    keys = np.arange(3, dtype=np.uint64)
    found["projective_sketch"] = ranked(
        hashed, min(epsilon, LARGEST_EPSILON), keys, inside, outside, of_rows
    )
    sketch = mechanisms.CountSketch([epsilon], categories=None, rows=2, buckets=8)
    blocks, keys = sketch.blocks[0], np.arange(6, dtype=np.uint64)
    of_rows = rows_of(2 * sketch.buckets // blocks)
    found["count_sketch"] = ranked(sketch, epsilon, keys, 1, 2 * blocks - 1, of_rows)
    return found


@every_level
def test_the_whole_law_of_a_report_is_private_and_as_certified(epsilon: Fraction) -> None:
    """In fractions, from the reports that each word of the script makes."""
    for name, law in all_laws(epsilon).items():
        first, level = law.threshold >> 56, np.array([0])

        def report(value: Any, *words: Sequence[int], law: Law = law, level: Any = level) -> int:
            drawn = law.mechanism.randomize(np.array([value]), level, ScriptedBits(*words))
            return int(drawn[0])

        kept = Fraction(WORD - law.threshold, WORD * len(law.public) * law.inside)
        missed = Fraction(law.threshold, WORD * len(law.public) * law.outside)
        keeps, misses = (255,), (0,) if first else (0, 0)
        largest: dict[int, Fraction] = {}
        least: dict[int, Fraction] = {}
        for value in law.values:
            chances: dict[int, Fraction] = {}
            for public in law.public:
                own = [report(value, public, keeps, [rank]) for rank in range(law.inside)]
                others = [report(value, public, misses, [rank]) for rank in range(law.outside)]
                with row(name, value, public):
                    assert len({*own, *others}) == law.inside + law.outside
                    assert not chances.keys() & {*own, *others}
                chances |= dict.fromkeys(own, kept) | dict.fromkeys(others, missed)
                if public == law.public[-1]:
                    check_threshold(
                        law.threshold,
                        lambda *coin, value=value, public=public, own=own: (
                            report(value, public, coin, [0]) not in own
                        ),
                    )
            with row(name, value):
                assert not largest or largest.keys() == chances.keys()
            largest = {y: max(chances[y], largest.get(y, Fraction(0))) for y in chances}
            least = {y: min(chances[y], least.get(y, Fraction(1))) for y in chances}
        with row(name):
            assert sum(chances.values()) == 1
            ratio = max(largest[y] / least[y] for y in chances)
            assert ratio == law.mechanism.privacy_ratio(0) <= exp_bounds(epsilon)[0]


@pytest.mark.parametrize("build", [mechanisms.Rappor, mechanisms.Oue])
def test_each_bit_is_flipped_below_its_threshold(build: Any) -> None:
    """In Oue the own bit is a fair coin's; in Rappor each bit has half of epsilon."""
    for epsilon in EPSILONS:
        mechanism = build([epsilon], categories=8)
        threshold = flip_threshold(epsilon / 2 if build is mechanisms.Rappor else epsilon)

        def report(place: int, *word: int, coin: int = 0, mechanism: Any = mechanism) -> str:
            drawn = [255] * place + [word[0]] + [255] * (7 - place)
            script = ScriptedBits([int.from_bytes(bytes(drawn), "little")], word[1:], [coin])
            found = mechanism.randomize(np.array([2]), np.array([0]), script)[0]
            return "".join(map(str, np.unpackbits(found.view(np.uint8), bitorder="little")))

        with row(epsilon):
            assert report(7, 255) == "00100000"
            check_threshold(threshold, lambda *coin: report(4, *coin) == "00101000")
            ones, half = Fraction(threshold, WORD), Fraction(1, 2)
            if build is mechanisms.Rappor:
                check_threshold(threshold, lambda *coin: report(2, *coin) == "00000000")
                expected = ((1 - ones) / ones) ** 2
            else:
                assert [report(7, 255, coin=x)[2] for x in (127, 128)] == ["1", "0"]
                expected = (half / ones) * ((1 - ones) / half)
            assert mechanism.privacy_ratio(0) == expected <= exp_bounds(epsilon)[0]


def test_subsets_leave_the_category_out_below_the_threshold() -> None:
    for epsilon, size in itertools.product(EPSILONS, (1, 2, 4)):
        mechanism = mechanisms.SubsetSelection([epsilon], categories=5, size=size)
        threshold = miss_threshold(epsilon, size, 5 - size)

        def is_left_out(*coin: int, mechanism: Any = mechanism, size: int = size) -> bool:
            script = ScriptedBits(coin, [0] * 8)
            (found,) = mechanism.randomize(np.array([2]), np.array([0]), script)[0].tolist()
            assert found.bit_count() == size
            return not found & 4

        with row(epsilon, size):
            check_threshold(threshold, is_left_out)
            inside = Fraction(WORD - threshold, WORD) / math.comb(4, size - 1)
            outside = Fraction(threshold, WORD) / math.comb(4, size)
            assert mechanism.privacy_ratio(0) == inside / outside <= exp_bounds(epsilon)[0]


def test_every_subset_is_drawn_from_the_same_number_of_words() -> None:
    """Floyd's algorithm, over all integers that it can draw: 3 times 4 for 2 of 4 members."""
    drawn = [
        uniform_subsets(ScriptedBits([first], [second]), 1, 4, 2)[0].nonzero()[0].tolist()
        for first in range(3)
        for second in range(4)
    ]
    assert all(drawn.count([a, b]) == 2 for a in range(4) for b in range(a + 1, 4))


def test_laplace_has_its_exponent_and_a_clamp_that_leaves_less_than_two_to_the_minus_64() -> None:
    for epsilon, grid in itertools.product(EPSILONS, (1, 1024)):
        mechanism = mechanisms.Laplace([epsilon], grid=grid)
        lower, above = exp_bounds(epsilon)
        tail = int(mechanism.limits[0]) - grid
        with row(epsilon, grid):
            assert mechanism.privacy_exponent(0) == epsilon
            assert lower <= mechanism.privacy_ratio(0) < above
            smallest = exp_bounds(epsilon / (2 * grid) * (tail + 1))[0]
            assert 2 / smallest < Fraction(1, WORD)


def test_a_value_beyond_the_domain_gets_no_more_room_on_the_grid() -> None:
    mechanism = mechanisms.Laplace([Fraction(64)], grid=1)
    at_end, level = np.array([-1.0, 1.0] * 50_000), np.zeros(100_000, dtype=np.uint8)
    for values in (at_end * (1 + 2**-52), at_end):
        reports = mechanism.randomize(values, level, SystemBits())
        assert np.array_equal(reports, at_end)  # noise at epsilon 64 is zero but for 1 in 10^13


def test_hemisphere_turns_its_vector_below_the_threshold_and_only_there() -> None:
    """Same direction, rounding and length; the byte of the private coin decides the sign."""
    for epsilon in EPSILONS:
        mechanism = mechanisms.Hemisphere([epsilon], dimension=2)
        threshold = flip_threshold(epsilon)

        lengths: set[tuple[int, ...]] = set()

        def is_turned(*coin: int, mechanism: Any = mechanism, lengths: Any = lengths) -> bool:
            script, own = ScriptedBits([2**60 | 2**31], [0], coin, [0]), np.array([0.6, 0.8])
            sent = mechanism.randomize(own[None], np.array([0]), script)[0].astype(int)
            lengths.add(tuple(np.abs(sent).tolist()))
            return bool(sent @ own < 0)

        with row(epsilon):
            check_threshold(threshold, is_turned)
            assert len(lengths) == 1
            ratio = Fraction(WORD - threshold, threshold)
            assert mechanism.privacy_ratio(0) == ratio <= exp_bounds(epsilon)[0]


def test_auto_draws_what_the_chosen_mechanism_draws() -> None:
    """Same words, same bytes, whatever else is on offer; and so the same certificate."""
    kinds: list[tuple[str, dict[str, int], Any]]
    kinds = [("mean", {}, [1.0]), ("frequency", {"categories": 6}, [2])]
    for kind, parameters, value in kinds:
        composite: Any = mechanisms.mechanism_class("auto", kind)
        mechanism = composite(EPSILONS, **parameters)
        for level, epsilon in enumerate(EPSILONS):
            build: Any = mechanisms.mechanism_class(mechanism.level_mechanisms[level], kind)
            chosen = build([epsilon], **parameters)
            with row(kind, epsilon):
                for seed in range(5):
                    own = chosen.randomize(np.array(value), np.array([0]), SeededBits(seed))
                    at = np.array([level])
                    drawn = mechanism.randomize(np.array(value), at, SeededBits(seed))
                    expected = chosen.encode(own).ljust(mechanism.width, b"\0")
                    assert mechanism.encode(drawn) == expected
                assert mechanism.privacy_ratio(level) == chosen.privacy_ratio(0)
                assert mechanism.is_private(level)


def test_a_repeated_sign_is_flipped_below_the_threshold_of_its_share_of_epsilon() -> None:
    """Every report has words of its own; all of them read a threshold off the output."""
    mechanism = mechanisms.RepeatedMean(EPSILONS)
    for level, epsilon in enumerate(EPSILONS):
        times = math.ceil(epsilon)
        threshold = flip_threshold(epsilon / times)

        def report(place: int, *coin: int, level: int = level, times: int = times) -> list[int]:
            # each report rounds, draws a coin, and breaks its tie
            coins = [(0, 255)] * place + [(0, *coin)] + [(0, 255)] * (times - 1 - place)
            script = ScriptedBits(*coins)
            drawn = mechanism.randomize(np.ones(1), np.array([level]), script)[0].tolist()
            assert not script.words
            assert not any(drawn[times:])
            return list(drawn[:times])

        for place in {0, times // 2, times - 1}:
            outcomes = [1] * times, [int(index != place) for index in range(times)]
            with row(epsilon, place):
                check_threshold(
                    threshold,
                    lambda *coin, place=place, outcomes=outcomes: outcomes.index(
                        report(place, *coin)
                    ),
                )
        ratio = Fraction(WORD - threshold, threshold)
        assert mechanism.privacy_ratio(level) == ratio**times <= exp_bounds(epsilon)[0]


def test_repeated_reports_of_a_category_are_private_together() -> None:
    for of, level in itertools.product(
        [each.name for each in FREQUENCY_CANDIDATES], range(len(EPSILONS))
    ):
        mechanism = mechanisms.RepeatedFrequency(EPSILONS, of=of, categories=6)
        epsilon = EPSILONS[level]
        times = math.ceil(epsilon)
        build: Any = mechanisms.mechanism_class(of, "frequency")
        one, bits = build([epsilon / times], categories=6), SeededBits(level)
        drawn = mechanism.randomize(np.array([2]), np.array([level]), SeededBits(level))[0]
        own = [one.randomize(np.array([2]), np.array([0]), bits)[0] for _ in range(times)]
        with row(of, epsilon):
            assert np.array_equal(drawn[:times], own)
            assert not drawn[times:].any()
            assert mechanism.privacy_ratio(level) == one.privacy_ratio(0) ** times
            assert mechanism.is_private(level)


@pytest.mark.parametrize("build", [mechanisms.Caps, mechanisms.LiftedCaps])
def test_caps_report_one_of_the_nearest_directions_unless_below_the_threshold(build: Any) -> None:
    """Candidates from the script's words; which of them is sent, by its byte and its tie."""
    mechanism, value = build(EPSILONS, dimension=3), np.array([0.0, 0.6, 0.8])
    for level in range(0, len(EPSILONS), 2):
        (k, inside), d = mechanism.sets[level], mechanism.dimension
        size = -(-(k // 2) * d // 2)
        words = np.random.default_rng(level).integers(0, 2**64, size, dtype=np.uint64)
        directions = normal_numbers(words)[: k // 2 * d].reshape(-1, d)
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        candidates = np.concatenate([directions, -directions])
        near = np.argsort(-(candidates @ np.append(value, 0.0)[:d]))[:inside].tolist()
        threshold, random = miss_threshold(EPSILONS[level], inside, k - inside), words.tolist()

        def is_far(
            *coin: int,
            level: int = level,
            random: Any = random,
            candidates: Any = candidates,
            near: Any = near,
        ) -> bool:
            rank = [0] if len(candidates) > 2 else []
            script = ScriptedBits(random, [0], coin, rank, [2**63] * 8)
            report = mechanism.randomize(value[None], np.array([level]), script)[0]
            return int(np.argmax(candidates @ report)) not in near

        with row(EPSILONS[level]):
            check_threshold(threshold, is_far)
            ratio = Fraction(WORD - threshold, inside) / Fraction(threshold, k - inside)
            assert mechanism.privacy_ratio(level) == ratio <= exp_bounds(EPSILONS[level])[0]
