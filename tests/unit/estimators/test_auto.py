"""`auto`: what it chooses, how it reports, and the law of levels that are not alike."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import DefinitionError, ReportError
from estimators.bounds import LaplaceNoise, Law
from estimators.exact import discrete_laplace
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import Auto, Laplace, RandomizedResponse, mechanism_class
from estimators.mechanisms.auto import CANDIDATES
from estimators.mechanisms.shared.packed import PackedBits
from tests.support.reports.cases import exact, metric_for

EPSILONS = [Fraction(x, 4) for x in range(1, 33)]


def auto(epsilons: list[Fraction], **options: Any) -> Any:
    build: Any = mechanism_class("auto", "frequency" if "categories" in options else "mean")
    return build(epsilons, **options)


@pytest.mark.parametrize("grid", [1, 16, 1024])
def test_a_mean_has_the_mechanism_of_the_smaller_worst_variance(grid: int) -> None:
    """Of a report at a fixed value: at zero for signs, half-way on the grid for noise."""
    signs = RandomizedResponse(EPSILONS).facts.variances
    rate = np.array([float(e) for e in EPSILONS]) / (2 * grid)
    noise = (discrete_laplace.variance(rate) + 1 / 4) / grid**2
    expected = np.where(signs <= noise, "randomized_response", "laplace")
    assert auto(EPSILONS, grid=grid).level_mechanisms == expected.tolist()


def test_signs_and_noise_cross_at_an_epsilon_of_2_324() -> None:
    chosen = auto([exact(e) for e in (0.0001, 2.323, 2.325, 64)]).level_mechanisms
    assert chosen == ["randomized_response"] * 2 + ["laplace"] * 2


def test_noise_that_does_not_fit_is_not_chosen() -> None:
    assert auto([Fraction(4)], report_bytes=4).level_mechanisms == ["laplace"]
    assert auto([Fraction(4)], report_bytes=3).level_mechanisms == ["randomized_response"]


def test_a_mean_of_signs_alone_takes_one_byte() -> None:
    assert metric_for("auto_mean", (0.5, 1)).randomizer.width == 1
    assert metric_for("auto_mean", (0.5, 3)).randomizer.width == 4


@pytest.mark.parametrize("categories", [2, 3, 16, 100, 1000])
@pytest.mark.parametrize("report_bytes", [2, 16, 125])
def test_frequencies_have_the_least_variance_that_fits(categories: int, report_bytes: int) -> None:
    mechanism = auto(EPSILONS, categories=categories, report_bytes=report_bytes)
    built = [candidate(EPSILONS, categories=categories) for candidate in CANDIDATES]
    fitting = [x for x in built if x.width <= report_bytes]
    least = np.min([x.facts.variances for x in fitting], axis=0)
    assert mechanism.facts.variances == pytest.approx(least, rel=1e-12)
    assert mechanism.width == max(child.width for child in mechanism.children) <= report_bytes


def test_of_two_alike_the_smaller_report_is_chosen() -> None:
    """At epsilon = 8 the best subset of 1,000 categories is one category, as in grr."""
    mechanism = auto([Fraction(8)], categories=1000, report_bytes=125)
    assert mechanism.level_mechanisms == ["grr"]
    assert mechanism.width == 2


def test_mechanisms_that_do_not_fit_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(PackedBits, "__init__", refuse)
    assert auto([Fraction(1)], categories=10**6).level_mechanisms == [
        "projective_geometry_response"
    ]


def test_the_smallest_possible_report_is_named() -> None:
    with pytest.raises(DefinitionError, match="expected 2 or more for 1000 categories"):
        metric_for("auto_frequency", categories=1000, options={"report_bytes": 1})
    with pytest.raises(DefinitionError, match="report_bytes = 0: expected 1 or more"):
        metric_for("auto_frequency", options={"report_bytes": 0})
    with pytest.raises(DefinitionError, match="expected a power of two"):
        metric_for("auto_mean", (0.5,), options={"grid": 0})


@pytest.mark.parametrize("case", ["auto_mean", "auto_frequency"])
def test_what_fills_a_report_up_has_to_be_zero(case: str) -> None:
    changes: dict[str, Any] = {"categories": 10} if case == "auto_frequency" else {}
    randomizer = metric_for(case, (0.5, 4.0), **changes).randomizer
    assert isinstance(randomizer, Auto)
    widths = [child.width for child in randomizer.children]
    narrow = int(np.argmin(widths))
    assert widths[narrow] < randomizer.width
    wire = bytearray(randomizer.width)
    wire[0] = 1 if case == "auto_mean" else 3
    randomizer.check(bytes([narrow]), bytes(wire))
    wire[-1] = 1
    with pytest.raises(ReportError, match="expected zeros") as refused:
        randomizer.check(bytes([narrow]), bytes(wire))
    assert refused.value.reason == "bad_value"


def test_the_choice_is_shown_and_part_of_what_a_batch_means() -> None:
    metric = metric_for("auto_mean", (1.0, 4.0))
    assert repr(metric.randomizer) == "AutoMean(randomized_response, laplace)"
    other = metric_for("auto_mean", (1.0, 4.0), description="")  # one of its own: it is changed
    assert other.revision == metric.revision
    randomizer = other.randomizer
    assert isinstance(randomizer, Auto)
    for name in ("revision", "fingerprint", "canonical"):
        other.__dict__.pop(name, None)  # kept since it was asked for first
    randomizer.children = [randomizer.children[0]] * 2
    assert other.revision != metric.revision


# -- Levels of signs and of noise together -------------------------------------------------------

CONTRAST = np.array([0.4, 1.0])
RATE = np.array([np.inf, 0.5])
COUNTS = np.array([3.0, 4.0])
COEFFICIENT = np.array([0.375, 0.1375])  # times counts and contrast, they sum to 1
GRID = 4


def mixed(*, free: bool = False) -> Law:
    return Law(COUNTS, COEFFICIENT, CONTRAST, RATE, 1 / GRID, free)


@settings(deadline=None)
@given(values=st.lists(st.floats(-1, 1), min_size=7, max_size=7), tilt=st.floats(0.01, 1))
def test_the_cumulant_of_mixed_levels_bounds_all_values(values: list[float], tilt: float) -> None:
    """Fixed values, each of them different: signs from the exact law, noise from its series."""
    law = mixed(free=True)
    tilt *= law.steepest
    x = np.array(values)
    z = tilt * np.repeat(COEFFICIENT, COUNTS.astype(int))
    signs = np.log(np.cosh(z[:3]) + 0.4 * x[:3] * np.sinh(z[:3])).sum()
    y = np.arange(-2000, 2001)
    odds = -RATE[1] * np.abs(y)
    noise = np.log(np.exp(odds + tilt * COEFFICIENT[1] / GRID * y).sum() / np.exp(odds).sum())
    weight = np.repeat(COEFFICIENT * CONTRAST, COUNTS.astype(int))
    theta = float(weight @ x / weight.sum())
    rest = (z[3:] * x[3:]).sum() + 4 * noise
    total = law.cumulant(np.array([theta]), np.array([tilt])).value[0]
    assert signs + rest <= total + 1e-9
    alone = LaplaceNoise(COUNTS, COEFFICIENT, RATE, 1 / GRID, CONTRAST)
    centred = signs - tilt * COEFFICIENT[0] * 0.4 * x[:3].sum() + 4 * noise
    assert centred <= alone.cumulant(np.array([tilt]))[0] + 1e-9


@settings(deadline=None)
@given(values=st.tuples(st.floats(-1, 1), st.floats(-1, 1)), share=st.floats(0.01, 0.99))
def test_the_moments_of_mixed_levels_are_enclosed(
    values: tuple[float, float], share: float
) -> None:
    """Users of one law on two values; the noise's moments from its series."""
    shares = np.array([share, 1 - share])
    theta = float(shares @ values)
    spread = float(shares @ (np.array(values) - theta) ** 2)
    z = np.arange(-400, 401)
    chance = np.exp(-RATE[1] * np.abs(z))
    chance /= chance.sum()
    noisy = np.abs(np.array(values)[:, None] - theta + z / GRID)
    mean = 0.4 * theta
    variances = np.array([1 - mean**2, spread + chance @ z**2 / GRID**2])
    thirds = np.array([1 - mean**4, shares @ noisy**3 @ chance])
    variance, third = COUNTS @ (COEFFICIENT**2 * variances), COUNTS @ (COEFFICIENT**3 * thirds)
    for free in (False, True):
        law = mixed(free=free)
        moments = law.moments(np.array([theta]))
        inside = (moments.least_variance <= variance + 1e-12) & (
            variance <= moments.largest_variance + 1e-12
        )
        assert np.any(inside & (third <= moments.third + 1e-12))
        assert variance <= law.largest_variance(np.array([theta]))[0] + 1e-12
        assert variance <= law.worst_variance + 1e-12


def test_one_level_has_the_bounds_of_its_mechanism() -> None:
    """A metric with one level of laplace is that of laplace, to the last digit of rounding."""
    both = metric_for("auto_mean", (4.0,)), metric_for("laplace", (4.0,))
    assert isinstance(both[1].randomizer, Laplace)
    level, values = np.zeros(500, dtype=np.uint8), np.linspace(-1, 1, 500)
    for target in ("population", "sample"):
        for bound in ("fixed", "anytime", "normal"):
            found = []
            for metric in both:
                statistic = metric.zero()
                reports = metric.randomize(values, level, SeededBits(4))
                metric.accumulate(statistic, level, reports)
                estimate = metric.estimate(statistic, target=target, bound=bound)
                found.append([estimate.value, estimate.lower, estimate.upper])
            assert found[0] == pytest.approx(found[1], abs=1e-12)
