"""Repeated answers: exact certificates over sequences, and bounds that hold over several panes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import LocalMetric, define
from estimators.errors import DefinitionError
from estimators.exact.randomness import SeededBits, Words
from estimators.exact.sampling import uniform_below
from estimators.exact.thresholds import WORD, exp_bounds
from estimators.mechanisms import mechanisms_for
from estimators.mechanisms.grr import Grr
from estimators.mechanisms.shared.signs import FlippedSigns
from estimators.memoization import Memoization, side_of

LEVELS = [0.5, 1, 2]
MEAN = define(
    name="late",
    kind="mean",
    mechanism="randomized_response",
    range=(0, 1),
    levels=LEVELS,
    memoized=True,
)


def frequency(mechanism: str, categories: int) -> LocalMetric:
    return define(
        name="carrier",
        kind="frequency",
        mechanism=mechanism,
        categories=categories,
        levels=LEVELS,
        memoized=True,
    )


# -- The exact law of sequences -------------------------------------------------------------------

Symbol = tuple[int, ...]
Law = dict[Symbol, Fraction]


def permanent_laws(way: Memoization) -> list[Law]:
    """Return the law of the permanent answer to each value, from the randomizer's thresholds."""
    mechanism = way._permanent
    if isinstance(mechanism, Grr):
        k = mechanism.categories
        miss = Fraction(mechanism.misses[0], WORD)
        return [{(y,): 1 - miss if y == x else miss / (k - 1) for y in range(k)} for x in range(k)]
    signs = mechanism.signs  # type: ignore[attr-defined]
    assert isinstance(signs, FlippedSigns)
    flip = Fraction(signs.flips[0], WORD)
    bits = way.bits_of_a_report
    held = [(0,), (1,)] if bits == 1 else list(np.eye(bits, dtype=int).tolist())
    return [
        {
            y: math.prod(
                (flip if a != b else 1 - flip for a, b in zip(x, y, strict=True)),
                start=Fraction(1),
            )
            for y in itertools.product((0, 1), repeat=bits)
        }
        for x in held
    ]


def flipped_again(way: Memoization, answer: Symbol, report: Symbol) -> Fraction:
    flip = way.second_flip
    if not flip:
        return Fraction(answer == report)
    return math.prod(
        (flip if a != b else 1 - flip for a, b in zip(answer, report, strict=True)),
        start=Fraction(1),
    )


def law_of(way: Memoization, laws: Sequence[Law], history: Sequence[int]) -> dict[Any, Fraction]:
    """Return the exact probability of every sequence of reports, given a history of values."""
    symbols = list(laws[0])
    second = {(a, y): flipped_again(way, a, y) for a in symbols for y in symbols}
    distinct = sorted(set(history))
    found = dict.fromkeys(itertools.product(symbols, repeat=len(history)), Fraction(0))
    for answers in itertools.product(symbols, repeat=len(distinct)):
        held = dict(zip(distinct, answers, strict=True))
        chance = math.prod(laws[value][held[value]] for value in distinct)
        for reports in found:
            found[reports] += chance * math.prod(
                second[held[value], y] for value, y in zip(history, reports, strict=True)
            )
    assert sum(found.values()) == 1
    return found


def changes(history: Sequence[int]) -> tuple[bool, ...]:
    return tuple(a == b for a, b in itertools.combinations(history, 2))


CASES: list[tuple[LocalMetric, int, Fraction | None, int]] = [
    (MEAN, 1, None, 4),
    (MEAN, 1, Fraction(2), 4),
    (MEAN, 0, Fraction(4), 3),
    (frequency("rappor", 2), 1, Fraction(3), 2),
    (frequency("rappor", 3), 0, None, 2),
    (frequency("grr", 3), 2, None, 3),
]


@functools.cache
def pairs(case: int) -> list[tuple[tuple[int, ...], tuple[int, ...], Fraction | None]]:
    """Return histories and the largest ratio of a sequence under them; None for an infinite one."""
    metric, level, permanent, reports = CASES[case]
    way, found = Memoization(metric, level, permanent), []
    laws = permanent_laws(way)
    histories = list(itertools.product(range(len(laws)), repeat=reports))
    known = {history: law_of(way, laws, history) for history in histories}
    for one, other in itertools.permutations(histories, 2):
        largest: Fraction | None = Fraction(0)
        for sequence, chance in known[one].items():
            if chance and not known[other][sequence]:
                largest = None
                break
            if chance:
                assert largest is not None
                largest = max(largest, chance / known[other][sequence])
        found.append((one, other, largest))
    return found


@pytest.mark.parametrize("case", range(len(CASES)))
def test_no_sequence_is_likelier_than_claimed_between_histories_that_change_alike(
    case: int,
) -> None:
    metric, level, permanent, reports = CASES[case]
    way = Memoization(metric, level, permanent)
    reached = Fraction(0)
    for one, other, ratio in pairs(case):
        if changes(one) == changes(other):
            values = len(set(one))
            assert ratio is not None
            assert ratio <= way.ratio_for_ever(values)
            assert ratio <= exp_bounds(values * way.permanent)[0]
            reached = max(reached, ratio)
    if permanent is None:  # the claim is no larger than it has to be
        assert reached == way.ratio_for_ever(min(reports, len(permanent_laws(way))))


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_second_flip_bounds_the_ratio_between_any_two_histories(case: int) -> None:
    metric, level, permanent, reports = CASES[case]
    way = Memoization(metric, level, permanent)
    claimed = way.ratio_of_any(reports)
    ratios = [ratio for _, _, ratio in pairs(case)]
    if permanent is None:  # two different permanent answers show that the value changed
        assert claimed is None
        assert None in ratios
    else:
        assert claimed is not None
        assert all(ratio is not None and ratio <= claimed for ratio in ratios)


@settings(max_examples=60, deadline=None)
@given(
    own=st.integers(1, 80_000).map(lambda parts: Fraction(parts, 10_000)),
    more=st.integers(0, 100_000).map(lambda parts: Fraction(parts, 10_000)),
    kind=st.sampled_from(["mean", "frequency"]),
)
def test_a_report_by_itself_is_flipped_exactly_as_its_level_says(
    own: Fraction, more: Fraction, kind: str
) -> None:
    base = MEAN if kind == "mean" else frequency("rappor", 3)
    keys = {"kind": kind, "mechanism": base.mechanism, "levels": [float(own)], "memoized": True}
    domain = {"range": (0, 1)} if kind == "mean" else {"categories": 3}
    metric = define(name="m", **keys, **domain)
    way = Memoization(metric, 0, own + more)
    once = Fraction(way._permanent.signs.flips[0], WORD)  # type: ignore[attr-defined]
    again = way.second_flip
    whole = Fraction(metric.randomizer.signs.flips[0], WORD)  # type: ignore[attr-defined]
    assert 0 <= again < Fraction(1, 2)
    assert once + again - 2 * once * again == whole
    assert way._permanent.is_private(0)


class Script:
    """Bits that are given in advance."""

    def __init__(self, words: list[int]) -> None:
        self.words = words

    def integers(self, n: int) -> Words:
        taken, self.words = self.words[:n], self.words[n:]
        return np.array(taken, dtype=np.uint64)


def test_the_second_flip_is_drawn_at_its_integers() -> None:
    way = Memoization(MEAN, 1, Fraction(2))
    below, among = way._words
    answer = np.array([1], dtype=np.uint8)
    limit = (WORD - 1) // among * among
    for words, flipped in (
        ([0], True),
        ([below - 1], True),
        ([below], False),
        ([among - 1], False),
        ([WORD - 1, below - 1], True),  # above the last whole multiple: drawn again
    ):
        assert limit <= WORD - 1
        assert way.report(answer, Script(list(words))).tolist() == [int(not flipped)]


def test_what_cannot_be_memoized_is_refused() -> None:
    for name, mechanism in mechanisms_for("frequency").items():
        if mechanism.memoizable or name in ("count_sketch", "projective_sketch", "prefix_tree"):
            continue
        options = {"mechanism": "oue"} if name == "repetition" else {}
        with pytest.raises(DefinitionError, match="memoized"):
            define(
                name="m",
                kind="frequency",
                mechanism=name,
                categories=4,
                levels=[1],
                options=options,
                memoized=True,
            )
    with pytest.raises(DefinitionError, match="memoized"):
        define(name="m", kind="mean", mechanism="laplace", range=(0, 1), levels=[1], memoized=True)
    plain = define(name="m", kind="frequency", mechanism="grr", categories=3, levels=[1])
    with pytest.raises(ValueError, match="memoized = true"):
        Memoization(plain, 0)
    with pytest.raises(ValueError, match="only bits can be flipped again"):
        Memoization(frequency("grr", 3), 0, Fraction(2))
    for epsilon in (Fraction(1, 4), Fraction(65), Fraction(5, 30_000)):
        with pytest.raises(ValueError, match="permanent = "):
            Memoization(MEAN, 0, epsilon)


def test_memoized_changes_the_revision_and_its_absence_does_not() -> None:
    plain = define(
        name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=LEVELS
    )
    assert plain.revision != MEAN.revision
    assert "memoized" not in repr(plain.revision)


# -- Estimates from simulated devices -------------------------------------------------------------


def test_sides_have_the_mean_of_the_values() -> None:
    words = SeededBits(5).integers(200_000).tolist()
    for value in (-1.0, -0.3, 0.0, 0.8, 1.0):
        mean = np.mean([side_of(value, word) for word in words[:40_000]])
        # six standard errors: false alarms below 2e-9 each
        assert abs(mean - value) <= 6 * math.sqrt((1 - value**2) / 40_000)


@pytest.mark.parametrize(
    ("metric", "permanent"),
    [(MEAN, None), (MEAN, Fraction(3)), (frequency("rappor", 3), Fraction(3))],
    ids=["repeated", "mean flipped again", "bits flipped again"],
)
def test_reports_of_a_pane_are_unbiased(metric: LocalMetric, permanent: Fraction | None) -> None:
    bits, devices, level = SeededBits(11), 2000, 1
    way = Memoization(metric, level, permanent)
    is_mean = metric.kind == "mean"
    held = np.repeat([0, 1, 2], [1000, 600, 400]) if not is_mean else np.full(devices, 1)
    sides = [int(v) for v in held]
    answers = [way.answer(value, bits) for value in sides]
    for _ in range(2):
        reports = np.concatenate([way.report(answer, bits) for answer in answers])
        statistic = metric.zero()
        metric.accumulate(statistic, np.full(devices, level), reports)
        found = metric.estimate(statistic, beta=1e-6, target="sample")
        truth = 1.0 if is_mean else np.array([0.5, 0.3, 0.2])
        assert np.all(found.lower <= truth)
        assert np.all(truth <= found.upper)


def misses(estimate: Callable[[Any], Any], runs: int, panes: int) -> int:
    """Return how often bounds miss 0.4 where each of 400 devices repeats its answer."""
    truth, devices, missed = 0.4, 400, 0
    generator, bits = np.random.default_rng(3), SeededBits(3)
    level = np.ones(devices, dtype=int)
    for _ in range(runs):
        values = (generator.random(devices) < truth).astype(float)
        statistic = MEAN.zero()
        MEAN.accumulate(statistic, level, MEAN.randomize(values, level, bits))
        found = estimate(panes * statistic)
        missed += not found.lower <= truth <= found.upper
    return missed


def test_bounds_over_panes_hold_where_every_device_repeats_itself() -> None:
    # at a true coverage of 95%, more than 37 misses of 300 have probability 4e-7
    assert misses(lambda s: MEAN.estimate(s, panes=5), 300, 5) <= 37
    assert misses(lambda s: MEAN.estimate(s), 300, 5) > 37  # as if the reports were independent


def test_bounds_over_panes_say_nothing_where_nothing_is_known() -> None:
    level = np.ones(5000, dtype=int)
    statistic = MEAN.zero()
    MEAN.accumulate(statistic, level, MEAN.randomize(np.ones(5000), level, SeededBits(1)))
    for found in (
        MEAN.estimate(statistic, panes=None),
        MEAN.estimate(statistic, panes=2, bound="anytime"),
    ):
        assert (found.lower, found.upper) == (0, 1)
        assert found.heterogeneity is None
    one, four = MEAN.estimate(statistic), MEAN.estimate(statistic, panes=4)
    assert four.value == one.value
    assert four.effective_reports == one.effective_reports / 4
    assert four.lower < one.lower
    whole = frequency("rappor", 3)
    level, values = np.ones(900, dtype=int), np.arange(900) % 3
    statistic = whole.zero()
    whole.accumulate(statistic, level, whole.randomize(values, level, SeededBits(1)))
    assert np.all(np.asarray(whole.estimate(statistic, panes=None).upper) == 1)


def test_uniform_integers_of_the_second_flip_are_below_their_bound() -> None:
    _, among = Memoization(MEAN, 1, Fraction(2))._words
    drawn = uniform_below(SeededBits(2), np.full(1000, among, dtype=np.uint64))
    assert int(drawn.max()) < among
