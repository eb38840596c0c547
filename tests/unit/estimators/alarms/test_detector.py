"""A detector sees moves soon, raises fewer false alarms than it promises, and can be continued."""

import itertools
import math
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.docs_tables.alarms import PANE, false_alarms, metric
from benchmarks.docs_tables.alarms import contrast as contrasts
from benchmarks.docs_tables.alarms import pane as draw
from estimators.alarms import Detector, Step, smallest_shift
from estimators.alarms.evidence import PaneMean
from estimators.estimate import Counts
from tests.support.reports.cases import metric_for
from tests.support.rows import row

ONE = metric((1.0,))
MANY = metric()
BY_LEVEL = (0.3, 0.25, 0.2, 0.15, 0.1)


def panes(mean: float, number: int, seed: int = 1, one: Any = MANY) -> list[Counts]:
    rng = np.random.default_rng(seed)
    return [draw(one, rng, PANE, mean) for _ in range(number)]


def summed(statistics: list[Counts]) -> Counts:
    result: Counts = np.sum(statistics, axis=0)
    return result


def taken(detector: Detector, statistics: list[Counts]) -> list[Step]:
    return [detector.update(each) for each in statistics]


@pytest.fixture
def detector() -> Detector:
    return Detector(MANY, 1e-3, baseline=summed(panes(0.2, 28)))


# -- False alarms ----------------------------------------------------------------------------------


def test_drifting_mixes_raise_fewer_alarms_than_promised_whatever_values_go_with_them() -> None:
    alpha, series, length = 0.05, 10, 100
    found = false_alarms(5, alpha, series, length, BY_LEVEL)
    assert found <= alpha * series * length / 2


@pytest.mark.slow
def test_a_year_of_hundreds_of_series_has_fewer_false_alarms_than_promised() -> None:
    """The mix of levels drifts until it is reversed. Promised are 146; about 60 and 6 are seen."""
    alpha, series, panes = 1e-3, 400, 365
    for baseline, means in ((0, (0.0,) * 5), (28, (0.0,) * 5), (28, BY_LEVEL)):
        with row(baseline, means):
            assert false_alarms(baseline, alpha, series, panes, means) <= alpha * series * panes


def test_an_alarm_is_raised_by_evidence_of_one_over_alpha_and_by_no_less() -> None:
    """A threshold that is off by 1% is found; the evidence of a pane does not depend on alpha."""
    rng, one = np.random.default_rng(3), MANY
    moved, known = draw(one, rng, 10_000, 0.07), draw(one, rng, 300_000, 0.0)
    baselines: list[dict[str, Any]] = [{"baseline_value": 0.0}, {"baseline": known}]
    for direction, baseline in itertools.product(("any", "up"), baselines):
        asked: dict[str, Any] = {"direction": direction, **baseline}
        alpha = math.exp(-Detector(one, 1e-9, **asked).update(moved).evidence)
        with row(direction, *baseline):
            assert 1e-9 < alpha < 0.1
            assert Detector(one, alpha * 1.01, **asked).update(moved).raised
            assert not Detector(one, alpha * 0.99, **asked).update(moved).raised


@pytest.mark.parametrize("least", [0.0, 0.05])
def test_a_stated_value_is_kept_to_its_promise_up_to_the_least_move(least: float) -> None:
    rng, alarms = np.random.default_rng(2), 0
    for _ in range(10):
        detector = Detector(ONE, 0.05, baseline_value=0.3, least=least)
        alarms += sum(detector.update(draw(ONE, rng, PANE, 0.3 + least)).raised for _ in range(100))
    assert 0 < alarms <= 0.05 * 1000


# -- Delays ----------------------------------------------------------------------------------------


def test_known_evidence_and_smallest_shifts_stay_as_they_are() -> None:
    statistics = [*panes(0.2, 2, 2), *panes(0.24, 2, 3)]
    for made, evidence, by_now, in_three in (
        (None, (-1.3969, -0.76696, 3.0864, 7.948), (0.09593, 0.06752, 0.05701, 0.09593), 0.057009),
        (28, (-2.5313, -1.9045, 1.0987, 4.5268), (0.10949, 0.07581, 0.06397, 0.05782), 0.063968),
    ):
        known = summed(panes(0.2, made)) if made else None
        one = Detector(MANY, 1e-3, baseline=known, baseline_value=None if made else 0.2)
        empty = one.update(MANY.zero())
        found: Any = [(one.update(each).evidence, smallest_shift(one)) for each in statistics]
        with row(made):
            assert (empty.evidence, empty.raised, empty.informative) == (-math.inf, False, False)
            assert np.transpose(found) == pytest.approx(np.array([evidence, by_now]), rel=1e-3)
            assert smallest_shift(one, 3) == pytest.approx(in_three, rel=1e-3)


def test_an_alarm_says_the_direction_and_when_it_began(detector: Detector) -> None:
    before, after = panes(0.2, 10, 2), panes(0.12, 10, 3)
    assert not any(step.raised for step in taken(detector, before))
    steps = taken(detector, after)
    first = next(number for number, step in enumerate(steps, 1) if step.raised)
    step = steps[first - 1]
    assert step.direction == "down"
    assert step.since is not None
    assert abs(step.since - first) <= 1
    assert step.evidence >= step.needed == pytest.approx(math.log(1000), abs=1e-5)
    assert steps[0].since is None is steps[0].direction


def test_after_an_alarm_it_begins_again_against_the_same_baseline(detector: Detector) -> None:
    moved, still = panes(0.4, 1), panes(0.2, 1, 5)
    assert [step.raised for step in taken(detector, [*moved, *still, *moved])] == [1, 0, 1]


def test_only_moves_in_the_direction_count() -> None:
    known = summed(panes(0.2, 28))
    for direction, mean in (("up", 0.1), ("down", 0.3)):
        one = Detector(MANY, 1e-3, baseline=known, direction=direction)  # type: ignore[arg-type]
        assert not any(step.raised for step in taken(one, panes(mean, 20, 2)))
        assert any(step.raised for step in taken(one, panes(0.4 - mean, 20, 2)))


def test_a_move_of_at_most_the_least_is_none() -> None:
    known = summed(panes(0.2, 100))
    raised = [
        any(step.raised for step in taken(one, panes(0.26, 20, 2)))
        for one in (Detector(MANY, 1e-3, baseline=known, least=x) for x in (0.07, 0.01))
    ]
    assert raised == [False, True]


# -- The least evidence over every baseline --------------------------------------------------------


@pytest.mark.parametrize("moved", [0.3, 0.36])
def test_the_evidence_is_at_most_that_against_any_baseline_and_hardly_below(moved: float) -> None:
    """The law of one level is exact, so that evidence is computed for each theta by itself."""
    known, later = draw(ONE, np.random.default_rng(1), 40_000, 0.3), panes(moved, 4, 2, ONE)
    detector = Detector(ONE, 1e-99, baseline=known)
    found = taken(detector, later)[-1].evidence
    theta = np.linspace(-1, 1, 20_001)

    def log(statistic: Counts, tilts: Any, sign: int) -> Any:
        counted = PaneMean.of(ONE, statistic, np.ones(1), None)
        assert counted is not None
        assert counted.arm.law is not None
        return np.stack(
            [
                tilt * sign * counted.mean
                - counted.arm.law.cumulant(sign * theta, np.full(theta.size, tilt)).value
                for tilt in tilts
            ]
        )

    precision = [1 / float(contrasts(ONE)[0]) ** -2 * n for n in (40_000, PANE)]
    tilts = np.sqrt(precision[0]) * np.array([0.5, 1, 2, 4, 8])
    of_known = np.concatenate([log(known, tilts, sign) for sign in (1, -1)])
    bets = np.full((22, theta.size), -np.inf)
    for statistic in later:
        gains = [log(statistic, precision[1] * np.ldexp(1.0, -np.arange(11)), s) for s in (1, -1)]
        bets = np.logaddexp(bets, 0) + np.concatenate(gains)
    direct = np.logaddexp.reduce(of_known) - math.log(10) + np.logaddexp.reduce(bets) - math.log(22)
    assert 0.98 * direct.min() - 0.1 <= found <= direct.min() + 1e-9


# -- Panes without evidence, and shares ------------------------------------------------------------


def test_a_pane_that_lacks_a_level_with_a_share_is_no_evidence(detector: Detector) -> None:
    before = taken(detector, panes(0.25, 1, 2))[0]
    lacking = panes(0.9, 1)[0].copy()
    MANY.table(lacking)[-1] = 0
    for empty in (lacking, MANY.zero()):
        step = detector.update(empty)
        assert not step.informative
        assert step.evidence == before.evidence
    assert before.informative
    assert not detector.update(panes(0.2, 1, 3)[0]).raised


def test_panes_of_hardly_any_reports_use_up_no_alarms() -> None:
    """With bets that cannot win, M would reach 1 / alpha at pane 1 / alpha by itself."""
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(6):
        detector = Detector(ONE, 0.01, baseline_value=0.0)
        alarms += sum(detector.update(draw(ONE, rng, 20, 0.0)).raised for _ in range(200))
    assert alarms <= 0.3 * 0.01 * 6 * 200
    assert detector.update(draw(ONE, rng, 1, 0.0)).informative
    alone = Detector(ONE, 0.5, baseline_value=0.0).update(draw(ONE, rng, 1, 0.0))
    assert (alone.evidence, alone.raised) == (-math.inf, False)


def test_shares_are_those_of_the_baseline_and_rare_levels_have_none() -> None:
    counts = np.array([10, 1000, 1000, 1000, 1000])
    known = draw(MANY, np.random.default_rng(1), counts, 0.2)
    shares = Detector(MANY, 1e-3, baseline=known).shares
    assert shares[0] == 0
    assert sum(shares) == pytest.approx(1)
    weights = counts * contrasts(MANY) ** 2
    assert shares[1:] == pytest.approx(weights[1:] / weights[1:].sum())


# -- State -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [True, False])
def test_a_detector_that_is_restored_before_every_pane_goes_on_bit_for_bit(stated: bool) -> None:
    made: dict[str, Any] = {"baseline_value": 0.2} if stated else {"baseline": panes(0.2, 1)[0]}
    statistics = [*panes(0.2, 20, 2), MANY.zero(), *panes(0.35, 10, 3)]
    whole = Detector(MANY, 1e-3, **made)
    steps, state = taken(whole, statistics), Detector(MANY, 1e-3, **made).state()
    assert any(step.raised for step in steps)
    for statistic, step in zip(statistics, steps, strict=True):
        again = Detector(MANY, 1e-3, **made)
        again.restore(state)
        assert again.update(statistic) == step
        state = again.state()
    assert state == whole.state()
    assert smallest_shift(again, 5) == smallest_shift(whole, 5)


def test_the_state_of_another_detector_is_refused() -> None:
    own: dict[str, Any] = {"metric": MANY, "alpha": 1e-3, "baseline": panes(0.2, 1)[0]}
    mine, others = Detector(**own), metric((1.0, 2.0, 3.0, 4.0, 5.0))
    changes: tuple[dict[str, Any], ...] = (
        {"alpha": 1e-4},
        {"least": 0.1},
        {"direction": "up"},
        {"baseline": panes(0.2, 1, 9)[0]},
        {"metric": others},
    )
    for changed in changes:
        with row(list(changed)), pytest.raises(ValueError, match="expected one of this detector"):
            mine.restore(Detector(**{**own, **changed}).state())


def test_what_is_no_state_is_refused_and_changes_nothing(detector: Detector) -> None:
    detector.update(panes(0.2, 1)[0])
    state = detector.state()
    for spoilt in (b"", b"x", bytes(100), bytes(len(state)), state[:-1], state + b"\0"):
        with row(spoilt[:9]), pytest.raises(ValueError, match="expected one of this detector"):
            detector.restore(spoilt)
    assert detector.state() == state
    assert len(state) < 16_000


# -- What a detector is made of --------------------------------------------------------------------


def test_what_makes_no_detector_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "one of the two"),
        ({"baseline_value": 0.1, "baseline": MANY.zero()}, "one of the two"),
        ({"baseline": MANY.zero()}, "no reports"),
        ({"baseline_value": 1.5}, "from -1 to 1"),
        ({"baseline_value": 0.1, "alpha": 0.0}, "rate between 0 and 1"),
        ({"baseline_value": 0.1, "least": -1.0}, "0 or more"),
        ({"baseline_value": 0.1, "category": 0}, "none else"),
    ]
    named = {"metric": metric_for("grr"), "baseline_value": 0.1}
    told = "expected one for a metric with named numbers"
    refused += [({**named, "category": category}, told) for category in (None, -1, 10)]
    for given, message in refused:
        with row(given), pytest.raises(ValueError, match=message):
            Detector(**{"metric": MANY, "alpha": 1e-3, **given})


@pytest.mark.parametrize("mechanism", ["randomized_response", "rappor", "oue", "grr"])
def test_an_e_value_has_a_mean_of_one_at_most_whatever_the_means_of_levels(mechanism: str) -> None:
    """By enumeration: two levels of three and four reports, bets against a weighted mean."""
    two, shares, counts = metric_for(mechanism, (0.5, 2.0)), np.array([0.3, 0.7]), np.array([3, 4])
    theta, tilts = np.array([-0.9, -0.2, 0.1, 0.6, 1.0]), np.array([0.1, 0.5, 2.0])
    category, signs = 0 if two.labels else None, cast("Any", two.randomizer).signs
    outcomes = list(np.ndindex(4, 5))
    logs, slopes = np.empty((2, 2, len(outcomes), theta.size, tilts.size))
    for number, ones in enumerate(outcomes):
        statistic = two.zero()
        table = two.table(statistic)
        table[:, 0], table[:, 1] = counts, ones
        found = PaneMean.of(two, statistic, shares, category)
        assert found is not None
        for side, sign in enumerate((1, -1)):
            logs[side, number], slopes[side, number] = found.e_values(theta, tilts, sign)
    worst = 0.0
    for means in itertools.product((-1.0, -0.3, 0.1, 0.8, 1.0), repeat=2):
        mean = shares @ np.array(means)
        chance = signs.q + (1 + np.array(means)) / 2 * signs.contrast
        likely = np.prod(binom.pmf(np.array(outcomes), counts, chance), axis=1)
        at = np.tensordot(likely, np.exp(logs), axes=(0, 1))
        line = np.exp(logs + slopes * (mean - theta)[:, None])
        on_line = np.tensordot(likely, line, axes=(0, 1))
        assert (at[0, theta >= mean] <= 1 + 1e-12).all()
        assert (at[1, theta <= mean] <= 1 + 1e-12).all()
        assert (on_line <= 1 + 1e-12).all()
        worst = max(worst, float(on_line.max()))
    assert worst > 0.99
