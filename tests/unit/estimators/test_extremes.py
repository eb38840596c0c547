"""A search for a minimum or maximum: what is asked, answered, decided and promised."""

import itertools
import math
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import binom

from estimators import ReportError
from estimators.exact.randomness import SeededBits
from estimators.exact.thresholds import WORD, exp_bounds, flip_threshold
from estimators.extremes import Decision, Progress, Search, Tail, tail
from tests.support.reports.cases import MANY_LEVELS, ScriptedBits, exact
from tests.support.rows import row

BASE: dict[str, Any] = {"kind": "minimum", "range": (-1, 1), "levels": (1.0, 4.0), "rounds": 6}


def search(**changes: Any) -> Search:
    return Search(**{**BASE, **changes})


def found(asked: Search, values: Any, level: Any, seed: int = 1) -> Progress:
    """Run a whole search with the real randomizer."""
    bits, progress = SeededBits(seed), Progress()
    own = asked.own_round(len(values), bits)
    while not asked.finished(progress):
        who = (own == len(progress.decisions)) | (asked.split == "budget")
        statistic = asked.zero()
        reports = asked.answer(values[who], level[who], asked.threshold(progress), bits)
        asked.accumulate(statistic, level[who], reports)
        progress = asked.decide(progress, statistic)
    return progress


def users(n: int = 30_000) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.uniform(-0.3, 0.9, n), rng.integers(0, 2, n)


# -- Asking and answering -------------------------------------------------------------------------


def test_all_answers_of_one_user_together_are_private() -> None:
    for split, rounds in itertools.product(("users", "budget"), (1, 7, 27)):
        asked, parts = search(levels=MANY_LEVELS, split=split, rounds=rounds), 1
        if split == "budget":
            parts = rounds
        for level, epsilon in enumerate(MANY_LEVELS):
            flips = flip_threshold(exact(epsilon) / parts)
            with row(split, rounds, epsilon):
                assert asked.privacy_ratio(level) == Fraction(WORD - flips, flips) ** parts
                assert asked.is_private(level)
                assert asked.privacy_ratio(level) <= exp_bounds(exact(epsilon))[0]


@pytest.mark.parametrize("split", ["users", "budget"])
def test_an_answer_flips_below_its_threshold_and_only_there(split: str) -> None:
    asked = search(split=split)
    flips = flip_threshold(exact(4.0) / (6 if split == "budget" else 1))
    first, rest = divmod(flips, 2**56)

    def answer(value: float, byte: int, tie: int = 0) -> int:
        script = ScriptedBits([1], [byte], [tie << 8])
        return int(asked.answer([value], [1], 0.25, script)[0])

    assert sum(answer(0.0, byte) == 0 for byte in range(256) if byte != first) == first
    assert sum(answer(0.5, byte) == 1 for byte in range(256) if byte != first) == first
    assert (answer(0.0, first, rest), answer(0.0, first, rest - 1)) == (1, 0)


def test_the_question_is_whether_a_value_is_at_or_beyond() -> None:
    rows = (
        ("minimum", 0.25, 1),
        ("minimum", 0.2500001, 0),
        ("minimum", -9.0, 1),
        ("maximum", 0.25, 1),
        ("maximum", 0.2499999, 0),
        ("maximum", math.inf, 1),
    )
    for kind, value, yes in rows:
        with row(kind, value):
            asked = search(kind=kind, levels=(64,))
            assert asked.answer([value], [0], 0.25, SeededBits(1)).tolist() == [yes]


def test_what_cannot_be_answered_or_counted_is_refused() -> None:
    asked = search()
    questions: list[tuple[list[float], list[int], str]] = [
        ([math.nan], [0], "not a number"),
        ([1.0], [2], "expected 0 to 1"),
        ([1.0], [0, 1], "shape"),
    ]
    for values, level, message in questions:
        with row(values, level), pytest.raises(ValueError, match=message):
            asked.answer(values, level, 0.0)
    statistic = asked.zero()
    with pytest.raises(ReportError, match="bad_value"):
        asked.accumulate(statistic, [0], [2])
    with pytest.raises(ReportError, match="bad_level"):
        asked.accumulate(statistic, [2], [1])
    assert not statistic.any()
    with pytest.raises(ValueError, match="statistic of dtype"):
        asked.decide(Progress(), np.zeros(3, dtype=np.int64))
    with pytest.raises(ValueError, match="from 0 to answers"):
        asked.decide(Progress(), np.array([1, 0, 1, 2]))
    finished = search(rounds=1).decide(Progress(), asked.zero())
    with pytest.raises(ValueError, match="all 1 rounds"):
        search(rounds=1).threshold(finished)
    with pytest.raises(ValueError, match="all 1 rounds"):
        search(rounds=1).decide(finished, asked.zero())


# -- Deciding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["users", "budget"])
def test_a_search_closes_in_on_the_minimum_and_on_the_maximum(split: str) -> None:
    values, level = users()
    for kind, truth in (("minimum", values.min()), ("maximum", values.max())):
        asked = search(kind=kind, split=split)
        progress = found(asked, values, level)
        low, high = asked.interval(progress)
        assert high - low == 2 / 2**6
        result = asked.estimate(progress)
        assert result.lower <= truth <= result.upper
        assert (result.upper if kind == "minimum" else result.lower) in (low, high)
        assert abs(result.value - truth) < 0.15
        assert result.reports == 30_000 * (1 if split == "users" else 6)


def test_noise_alone_is_as_rarely_taken_for_somebody_as_promised() -> None:
    """The exact chance, from the binomial law of the flips."""
    kinds, sizes = ("law", "hoeffding", "paper"), (1, 30, 1000, 100_000)
    for critical, epsilon, n in itertools.product(kinds, (0.1, 1.0, 4.0, 16.0), sizes):
        asked = search(levels=(epsilon,), critical=critical, log_term=5.0)
        gamma, flip = asked.critical_share((n,)), 1 / (1 + math.exp(epsilon))
        yes = np.arange(n + 1)
        share = (1 + (2 * yes - n) / (n * (1 - 2 * flip))) / 2
        least = int(yes[share >= gamma].min()) if (share >= gamma).any() else n + 1
        chance = float(binom.sf(least - 1, n, flip))
        with row(critical, epsilon, n):
            assert chance <= asked.risk
            if critical == "law" and n * flip > 100:
                assert chance > asked.risk / 3
    # the paper's threshold is the paper's
    gamma = math.sqrt(4 * math.exp(2) * (1 + math.exp(2)) * 7 / ((math.exp(2) - 1) ** 2 * 4096))
    asked = search(levels=(2.0,), critical="paper", log_term=7.0)
    assert asked.critical_share((4096,)) == pytest.approx(gamma)


def test_a_round_without_answers_goes_inwards() -> None:
    asked = search()
    progress = asked.decide(Progress(), asked.zero())
    assert progress.decisions[0].outwards is False
    assert asked.interval(progress) == (0.0, 1.0)
    assert asked.estimate(progress).upper == 1.0
    assert msgspec.json.decode(msgspec.json.encode(progress), type=Progress) == progress


def test_a_decision_is_a_function_of_the_statistic_and_survives_storage() -> None:
    values, level = users(20_000)
    asked = search()
    progress = found(asked, values, level)
    replayed = Progress()
    for decision in progress.decisions:
        pairs = zip(decision.answers, decision.yes, strict=True)
        statistic = np.array([x for pair in pairs for x in pair], dtype=np.int64)
        stored = msgspec.json.encode(replayed)
        replayed = asked.decide(msgspec.json.decode(stored, type=Progress), statistic)
    assert replayed == progress


def test_every_round_halves_the_interval_around_its_threshold() -> None:
    for kind, ends in itertools.product(("minimum", "maximum"), ((-1000, -999), (0, 8), (-3, 997))):
        asked, progress = search(kind=kind, range=ends, rounds=21), Progress()
        for step in (True, False, False, True, True, True, False):
            low, high = asked.interval(progress)
            middle = asked.threshold(progress)
            decision = Decision(middle, (1, 1), (1, 1), 1.0 if step else 0.0, 0.5, step)
            progress = Progress((*progress.decisions, decision))
            lower_half = step == (kind == "minimum")
            expected = (low, middle) if lower_half else (middle, high)
            with row(kind, ends, len(progress.decisions)):
                assert asked.interval(progress) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_search_that_cannot_be_made_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"kind": "median"}, "kind = 'median'"),
        ({"split": "user"}, "'users'?"),
        ({"critical": "hofding"}, "'hoeffding'?"),
        ({"range": (1, 1)}, "lower one first"),
        ({"range": (0, math.inf)}, "finite"),
        ({"rounds": 0}, "1 to 50"),
        ({"beta": 1.0}, "between 0 and 1"),
        ({"log_term": 0.0}, "above 0"),
        ({"levels": (2, 1)}, "ascending"),
        ({"levels": ()}, "ascending"),
        ({"levels": (1.00005,)}, "4 decimal digits"),
    ]
    for changes, message in refused:
        with row(changes), pytest.raises(ValueError, match=message):
            search(**changes)


# -- The tail -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_the_exponent_of_the_tail_is_found_where_there_are_many_users(alpha: float) -> None:
    rng = np.random.default_rng(7)
    values = -0.8 + 1.8 * rng.random(200_000) ** (1 / alpha)
    asked = search(rounds=12, split="budget", levels=(16.0,))
    shape = tail(asked, found(asked, values, np.zeros(values.size, dtype=int)))
    assert isinstance(shape, Tail)
    assert shape.lower <= alpha <= shape.upper
    assert shape.upper < 4 * shape.lower


def test_of_few_users_nothing_is_told_about_the_tail() -> None:
    values, level = users(500)
    asked = search()
    assert tail(asked, Progress()) is None
    assert tail(asked, found(asked, values, level)) is None
