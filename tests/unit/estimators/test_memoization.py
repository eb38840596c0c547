"""Repeated answers: exact certificates over sequences, and bounds that hold over several panes."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import LocalMetric, define
from estimators.errors import DefinitionError
from estimators.exact.randomness import SeededBits
from estimators.exact.thresholds import WORD, exp_bounds
from estimators.mechanisms import mechanisms_for
from estimators.mechanisms.grr import Grr
from estimators.mechanisms.shared.signs import FlippedSigns
from estimators.memoization import Memoization, side_of
from estimators.metrics.loading import definition_of
from tests.support.metrics import frequency_metric, mean_metric
from tests.support.reports.cases import ScriptedBits
from tests.support.rows import row

LEVELS = [0.5, 1, 2]
MEAN = mean_metric("late", "randomized_response", (0, 1), LEVELS, memoized=True)


def frequency(mechanism: str, categories: int) -> LocalMetric:
    return frequency_metric("carrier", mechanism, categories, LEVELS, memoized=True)


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
    held = [(0,), (1,)] if bits == 1 else [tuple(one) for one in np.eye(bits, dtype=int).tolist()]
    return [{y: flipped(flip, x, y) for y in itertools.product((0, 1), repeat=bits)} for x in held]


def flipped(flip: Fraction, one: Symbol, other: Symbol) -> Fraction:
    """Return how likely flips of each bit make one of the other."""
    return math.prod(
        (flip if a != b else 1 - flip for a, b in zip(one, other, strict=True)), start=Fraction(1)
    )


def law_of(way: Memoization, laws: Sequence[Law], history: Sequence[int]) -> dict[Any, Fraction]:
    """Return the exact probability of every sequence of reports, given a history of values."""
    symbols = list(laws[0])
    second = {
        (a, y): flipped(way.second_flip, a, y) if way.second_flip else Fraction(a == y)
        for a in symbols
        for y in symbols
    }
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


def largest_ratio(one: dict[Any, Fraction], other: dict[Any, Fraction]) -> Fraction | None:
    """Return the largest ratio of a sequence under two histories; None for an infinite one."""
    found = Fraction(0)
    for sequence, chance in one.items():
        if chance and not other[sequence]:
            return None
        if chance:
            found = max(found, chance / other[sequence])
    return found


@pytest.mark.parametrize("case", range(len(CASES)))
def test_no_sequence_is_likelier_than_claimed_for_histories_that_change_alike(case: int) -> None:
    """Between histories that change alike; a second flip bounds it between any two."""
    metric, level, permanent, reports = CASES[case]
    way, reached, ratios = Memoization(metric, level, permanent), Fraction(0), []
    laws = permanent_laws(way)
    histories = itertools.product(range(len(laws)), repeat=reports)
    known = {history: law_of(way, laws, history) for history in histories}
    for one, other in itertools.permutations(known, 2):
        ratio = largest_ratio(known[one], known[other])
        ratios.append(ratio)
        if changes(one) == changes(other):
            values = len(set(one))
            assert ratio is not None
            assert ratio <= way.ratio_for_ever(values)
            assert ratio <= exp_bounds(values * way.permanent)[0]
            reached = max(reached, ratio)
    claimed = way.ratio_of_any(reports)
    if permanent is None:  # two different permanent answers show that the value changed
        assert reached == way.ratio_for_ever(min(reports, len(laws)))  # claimed no larger than so
        assert claimed is None
        assert None in ratios
    else:
        assert claimed is not None
        assert all(ratio is not None and ratio <= claimed for ratio in ratios)


@settings(max_examples=60)
@given(
    own=st.integers(1, 80_000).map(lambda parts: Fraction(parts, 10_000)),
    more=st.integers(0, 100_000).map(lambda parts: Fraction(parts, 10_000)),
    kind=st.sampled_from(["mean", "frequency"]),
)
def test_a_report_is_flipped_as_its_level_says(own: Fraction, more: Fraction, kind: str) -> None:
    base = MEAN if kind == "mean" else frequency("rappor", 3)
    metric = define(name="m", **{**definition_of(base), "levels": [float(own)]})
    way = Memoization(metric, 0, own + more)
    once = Fraction(way._permanent.signs.flips[0], WORD)  # type: ignore[attr-defined]
    again = way.second_flip
    whole = Fraction(metric.randomizer.signs.flips[0], WORD)
    assert 0 <= again < Fraction(1, 2)
    assert once + again - 2 * once * again == whole
    assert way._permanent.is_private(0)


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
        assert way.report(answer, ScriptedBits(words)).tolist() == [int(not flipped)]
    each = Memoization(frequency("rappor", 3), 1, Fraction(2))
    below, _ = each._words
    for again in range(8):
        words = [below - (again >> bit & 1) for bit in range(3)]
        report = each.report(np.array([[0b101]], dtype=np.uint8), ScriptedBits(words))
        assert report.tolist() == [[0b101 ^ again]]


def test_what_cannot_be_memoized_is_refused() -> None:
    closed: dict[str, Any] = {"kind": "frequency", "categories": 4}
    domains: list[tuple[dict[str, Any], str]] = [({"kind": "mean", "range": (0, 1)}, "laplace")]
    for name, mechanism in mechanisms_for("frequency").items():
        if mechanism.closed_vocabulary and not mechanism.memoizable:
            domains.append((closed, name))
    for domain, name in domains:
        options = {"of": "oue"} if name == "repetition" else {}
        with row(name), pytest.raises(DefinitionError, match="memoized"):
            define(name="m", mechanism=name, levels=[1], options=options, memoized=True, **domain)
    plain = define(name="m", mechanism="grr", levels=[1], **closed)
    with pytest.raises(ValueError, match="memoized = true"):
        Memoization(plain, 0)
    with pytest.raises(ValueError, match="only bits can be flipped again"):
        Memoization(frequency("grr", 3), 0, Fraction(2))
    for epsilon in (Fraction(1, 4), Fraction(65), Fraction(5, 30_000)):
        with pytest.raises(ValueError, match="permanent = "):
            Memoization(MEAN, 0, epsilon)


# -- Estimates from simulated devices -------------------------------------------------------------


def test_sides_have_the_mean_of_the_values() -> None:
    words = SeededBits(5).integers(200_000).tolist()
    for value in (-1.0, -0.3, 0.0, 0.8, 1.0):
        mean = np.mean([side_of(value, word) for word in words[:40_000]])
        # six standard errors: false alarms below 2e-9 each
        assert abs(mean - value) <= 6 * math.sqrt((1 - value**2) / 40_000)


def test_bounds_over_panes_hold_where_every_device_repeats_itself() -> None:
    """400 devices, 300 times; at a coverage of 95%, more than 37 misses have probability 4e-7."""
    truth, devices, missed = 0.4, 400, {5: 0, 1: 0}
    generator, bits = np.random.default_rng(3), SeededBits(3)
    level = np.ones(devices, dtype=int)
    for _ in range(300):
        values = (generator.random(devices) < truth).astype(float)
        statistic = MEAN.zero()
        MEAN.accumulate(statistic, level, MEAN.randomize(values, level, bits))
        for panes in missed:
            found = MEAN.estimate(5 * statistic, panes=panes)
            missed[panes] += not found.lower <= truth <= found.upper
    assert missed[5] <= 37
    assert missed[1] > 37  # as if the reports were independent


def test_bounds_over_panes_say_nothing_where_nothing_is_known() -> None:
    level = np.ones(5000, dtype=int)
    statistic = MEAN.zero()
    MEAN.accumulate(statistic, level, MEAN.randomize(np.ones(5000), level, SeededBits(1)))
    one, four = MEAN.estimate(statistic), MEAN.estimate(statistic, panes=4)
    unknown = MEAN.estimate(statistic, panes=None)
    moving = MEAN.estimate(statistic, panes=2, bound="anytime")
    for found in (unknown, moving):
        assert (found.lower, found.upper, found.heterogeneity) == (0, 1, None)
    assert four.value == one.value
    assert four.effective_reports == one.effective_reports / 4
    assert four.lower < one.lower
