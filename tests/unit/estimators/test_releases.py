"""Releases of trusted collections: what leaves, what it costs, its weights, and its bounds."""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import (
    DefinitionError,
    LocalMetric,
    ReportError,
    TrustedMetric,
    define,
    load_metrics,
)
from estimators.bounds import Law
from estimators.central.collection import TrueFrequency, TrueMean
from estimators.central.release import LARGEST_WEIGHT, ReleaseNoise
from estimators.central.release_bounds import ValueLaw, _bins, _log_tail
from estimators.central.release_weights import RELEASE_WEIGHTINGS, noise_scale, report_weights
from estimators.exact.randomness import SeededBits
from tests.support.reports.cases import summed
from tests.support.rows import row

LEVELS = [0.1, 0.5, 2.0]
DOMAINS: dict[str, dict[str, Any]] = {"mean": {"range": (-60, 180)}, "frequency": {"categories": 4}}
LOCAL_MEAN, LOCAL_FREQUENCY = 519519715, 1896076492
every_kind = pytest.mark.parametrize("kind", DOMAINS)


def trusted(kind: str, **changes: Any) -> TrustedMetric:
    definition = {"name": "m", "kind": kind, "trust": "central", "levels": LEVELS}
    metric: TrustedMetric = define(**{**definition, **DOMAINS.get(kind, {}), **changes})
    return metric


def collected(metric: TrustedMetric, n: int = 6000) -> Any:
    rng = np.random.default_rng(1)
    level = rng.integers(0, len(metric.levels), n).astype(np.uint8)
    size = len(metric.category_names)
    values = rng.integers(0, size, n) if size else rng.uniform(-60, 180, n)
    return summed(metric, values, level), values, level


# -- What a user loses -----------------------------------------------------------------------------

EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(2))


def exponents(noise: ReleaseNoise, before: list[int], after: list[int]) -> set[Fraction]:
    """Return ln of the ratio of the probabilities of every output near two vectors of sums."""
    reach = range(min(before + after) - 2, max(before + after) + 3)
    return {
        noise.rate
        * sum(abs(y - b) - abs(y - a) for y, a, b in zip(out, before, after, strict=True))
        for out in itertools.product(reach, repeat=len(before))
    }


def largest_losses(
    noise: ReleaseNoise, values: int, sums: Callable[[Sequence[int]], list[int]]
) -> Any:
    """Return what each of three users can lose: all data, all changes of one value, all outputs."""
    largest = [Fraction(0)] * 3
    for held in itertools.product(range(values), repeat=3):
        for user, value in itertools.product(range(3), range(values)):
            changed = [value if i == user else v for i, v in enumerate(held)]
            largest[user] = max(largest[user], *exponents(noise, sums(held), sums(changed)))
    return tuple(largest)


def mean_and_noise(
    weights: tuple[int, ...],
) -> tuple[ReleaseNoise, Callable[[Sequence[int]], list[int]]]:
    """Return noise of these weights, and the weighted sum of values on a grid of 4."""
    noise, mean = ReleaseNoise(EPSILONS, weights, 1), TrueMean(EPSILONS, grid=4)

    def sums(held: Sequence[int]) -> list[int]:
        found: list[int] = mean.weighted_sums(np.array(held)[:, None], noise).tolist()
        return found

    return noise, sums


@pytest.mark.parametrize("weights", [(1, 2, 3), (1, 1, 1), (3, 2, 1), (1, 5, 20)])
def test_outputs_of_a_mean_are_as_likely_within_each_users_loss(weights: tuple[int, ...]) -> None:
    noise, sums = mean_and_noise(weights)
    assert largest_losses(noise, 5, sums) == noise.losses
    assert all(loss <= epsilon for loss, epsilon in zip(noise.losses, EPSILONS, strict=True))
    assert any(loss == epsilon for loss, epsilon in zip(noise.losses, EPSILONS, strict=True))


def test_a_loss_is_that_of_one_report_and_ten_of_one_person_lose_ten_times_it() -> None:
    """What `privacy` says is of a report: the collector does not know whose they are."""
    for weights in ((1, 2, 3), (3, 2, 1)):
        noise, sums = mean_and_noise(weights)
        for level, loss in enumerate(noise.losses):
            ten = [10 * 4 * (i == level) for i in range(3)]
            assert max(exponents(noise, sums([0, 0, 0]), sums(ten))) == 10 * loss


def test_every_output_of_a_frequency_is_as_likely_within_each_users_loss() -> None:
    noise, frequency = ReleaseNoise(EPSILONS, (1, 1, 2), 2), TrueFrequency(EPSILONS, categories=3)
    users = np.eye(3, dtype=np.int64)
    found = largest_losses(
        noise, 3, lambda held: frequency.weighted_sums(users[list(held)], noise).tolist()
    )
    assert found == noise.losses
    assert all(loss <= epsilon for loss, epsilon in zip(noise.losses, EPSILONS, strict=True))


def test_the_rounded_sum_moves_by_no_more_than_the_weight() -> None:
    """Also where the other users' sum is not a whole number of units."""
    rng = np.random.default_rng(2)
    collection = TrueMean(EPSILONS)
    for _ in range(500):
        noise = ReleaseNoise(EPSILONS, tuple(rng.integers(1, LARGEST_WEIGHT, 3).tolist()), 1)
        sums = rng.integers(0, 2**50, 3)
        level, step = int(rng.integers(3)), int(rng.integers(0, collection.grid + 1))
        moved = sums.copy()
        moved[level] += step
        change = np.abs(
            collection.weighted_sums(moved[:, None], noise)
            - collection.weighted_sums(sums[:, None], noise)
        )
        assert change[0] <= noise.weights[level]


def test_the_quantile_of_the_noise_is_the_least_one() -> None:
    rates = (Fraction(1, 10_000), Fraction(1, 3), Fraction(5))
    for rate, log_p in itertools.product(rates, (-1.0, -3.0, -7.0, -40.0)):
        t = ReleaseNoise((rate,), (1,), 1).quantile(log_p)
        log_tails = -float(rate) * np.array([t, t - 1]) - math.log1p(math.exp(-rate))
        assert log_tails[0] <= log_p * (1 - 1e-9), (rate, log_p)
        assert t in (0, 1) or log_tails[1] > log_p, (rate, log_p)


# -- What comes out --------------------------------------------------------------------------------


@every_kind
def test_a_release_is_near_the_truth_and_says_what_every_level_loses(kind: str) -> None:
    metric = trusted(kind)
    statistic, values, _ = collected(metric, 60_000)
    truth = values.mean() if kind == "mean" else np.bincount(values, minlength=4) / values.size
    width = 240 if kind == "mean" else 1
    for policy in RELEASE_WEIGHTINGS[kind]:
        with row(policy):
            released = metric.release(statistic, SeededBits(7), weights=policy)
            assert np.all(np.abs(released.value - truth) < 0.03 * width)
            assert np.all((released.lower <= truth) & (truth <= released.upper))
            assert np.all((released.lower < released.value) & (released.value < released.upper))
            assert np.all(np.asarray(released.upper) - released.lower < 0.08 * width)
            assert (released.reports, released.bound) == (60_000, "fixed")
            assert (released.labels, released.policy) == (metric.labels, policy)
            assert 0 < released.effective_reports < 60_000
            assert released.weights.sum() == pytest.approx(1)
            assert released.heterogeneity is None
            privacy = released.privacy
            assert privacy is not None
            assert np.all((privacy > 0) & (privacy <= np.array(LEVELS)))
            assert privacy.max() >= 0.1
            if released.saturation is not None:
                assert privacy == pytest.approx(np.minimum(LEVELS, released.saturation), rel=1e-5)
            shape = released.weights / metric.counts(statistic)
            assert privacy / privacy[0] == pytest.approx(shape / shape[0])


@every_kind
def test_each_call_draws_anew_and_the_same_bits_give_the_same_release(kind: str) -> None:
    metric = trusted(kind)
    statistic, _, _ = collected(metric)
    first, second = metric.release(statistic), metric.release(statistic)
    assert np.all(first.value != second.value)
    one, two = (metric.release(statistic, SeededBits(4)) for _ in range(2))
    assert np.array_equal(one.value, two.value)
    assert np.array_equal(one.lower, two.lower)
    sample = metric.release(statistic, SeededBits(4), target="sample")
    assert np.array_equal(one.value, sample.value)
    assert np.all((one.lower < sample.lower) & (sample.upper < one.upper))


@every_kind
def test_a_release_at_another_beta_has_the_bounds_it_would_have_been_drawn_with(kind: str) -> None:
    metric = trusted(kind)
    statistic, *_ = collected(metric)
    for weights in ("uniform-minimum", metric.policies[0]):
        with row(weights):
            drawn = [metric.release(statistic, SeededBits(3), weights, b) for b in (0.05, 1e-3)]
            shown = metric.with_beta(drawn[0], 1e-3)
            for name in ("value", "lower", "upper"):
                np.testing.assert_allclose(getattr(shown, name), getattr(drawn[1], name), atol=1e-9)
    empty = metric.with_beta(metric.release(metric.zero()), 1e-3)
    assert np.isnan(empty.lower).all()


@every_kind
def test_levels_without_reports_cost_and_count_nothing(kind: str) -> None:
    metric = trusted(kind)
    nothing = metric.release(metric.zero())
    low, high = metric.range or (0, 1)
    assert np.all(np.isnan(nothing.value))
    assert np.all((np.asarray(nothing.lower) == low) & (np.asarray(nothing.upper) == high))
    assert nothing.privacy is not None
    assert not nothing.privacy.any()
    released = metric.release(summed(metric, np.arange(500) % 4, 2), SeededBits(1))
    assert released.privacy is not None
    assert released.privacy.tolist() == [0, 0, pytest.approx(2)]
    assert released.weights.tolist() == [0, 0, 1]


# -- That nothing else leaves ----------------------------------------------------------------------


@every_kind
def test_an_estimate_of_a_trusted_metric_is_refused_and_none_passes_for_private(kind: str) -> None:
    metric = trusted(kind)
    statistic, _, _ = collected(metric)
    assert not hasattr(metric, "estimate")
    with pytest.raises(ValueError, match="only releases may be shown"):
        LocalMetric.require(metric)
    with pytest.raises(ValueError, match="only releases leave"):
        metric.randomizer.estimate(statistic.reshape(3, -1), None)  # type: ignore[arg-type]
    assert not any(metric.randomizer.is_private(level) for level in range(3))
    with pytest.raises(ValueError, match="not private"):
        metric.randomizer.privacy_ratio(0)


# -- As every metric -------------------------------------------------------------------------------


def test_trust_is_part_of_the_revision_and_changes_no_other() -> None:
    """The two numbers are those of before there was a choice."""
    local = define(name="m", kind="mean", mechanism="laplace", range=(0, 1), levels=[0.5, 1])
    assert local.revision == LOCAL_MEAN
    categories = define(name="f", kind="frequency", mechanism="grr", categories=3, levels=[1])
    assert categories.revision == LOCAL_FREQUENCY
    metric = trusted("mean", range=(0, 1), levels=[0.5, 1])
    assert metric.revision not in (0, LOCAL_MEAN)
    assert metric.mechanism == "true_value"


def test_a_trusted_metric_that_cannot_be_is_explained() -> None:
    vector = {"kind": "vector_mean", "range": None, "dimension": 2, "radius": 1}
    strings = {"kind": "frequency", "range": None, "categories": "open"}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"trust": "centrl"}, "trust", "'central'?"),
        ({"mechanism": "laplace"}, "mechanism", "none where trust is central"),
        (vector, "kind", "mean or"),
        ({"options": {"grid": 1000}}, "options", "a power of two"),
        ({"options": {"grid": 2**31}}, "options", "at most 2^30"),
        (strings, "categories", "their number"),
    ]
    for changes, key, expected in cases:
        with row(changes):
            with pytest.raises(DefinitionError) as refused:
                trusted(**{"kind": "mean", **changes})
            assert refused.value.key == f"m.{key}"
            assert expected in refused.value.expected
    metric = trusted("frequency")
    for statistic in (metric.zero(), collected(metric)[0]):
        with pytest.raises(ValueError, match=r"weights = 'hpm-a': did you mean 'hpf-a'"):
            metric.release(statistic, weights="hpm-a")


def test_a_metric_is_trusted_only_if_its_definition_says_so(tmp_path: Any) -> None:
    file = tmp_path / "metrics.toml"
    table = '[metrics.m]\nkind = "mean"\nrange = [0, 1]\nlevels = [1]\n'
    file.write_text(table + 'trust = "central"\n')
    assert load_metrics(file)["m"].trust == "central"
    for text in (table, table + 'trust = "local"\n'):
        file.write_text(text)
        assert isinstance(load_metrics(file)["m"], LocalMetric)


@pytest.mark.parametrize(("kind", "beyond"), [("mean", 2**30 + 1), ("frequency", 4)])
def test_reports_survive_the_wire_and_add_up(kind: str, beyond: int) -> None:
    metric = trusted(kind)
    statistic, values, level = collected(metric, 400)
    reports = metric.randomize(values, level)
    wire = metric.randomizer.encode(reports)
    metric.randomizer.check(level.tobytes(), wire)
    assert np.array_equal(metric.randomizer.decode(wire), reports)
    found = metric.zero()
    for part in (slice(0, 150), slice(150, 400)):
        metric.accumulate(found, level[part], reports[part])
    assert np.array_equal(found, statistic)
    assert np.array_equal(metric.counts(statistic), np.bincount(level, minlength=3))
    with pytest.raises(ReportError, match="bad_value"):
        metric.accumulate(found, [0], [beyond])


GRID = 8
#: Chances of the values -1, -3/4, ..., 1: signs, almost constant, skewed, even, three-point.
DISTRIBUTIONS = {
    "signs": {0: 0.3, 16: 0.7},
    "rare": {0: 0.98, 16: 0.02},
    "narrow": {9: 0.5, 10: 0.5},
    "skewed": {7: 0.95, 16: 0.05},
    "even": dict.fromkeys(range(17), 1 / 17),
    "three": {0: 0.1, 8: 0.8, 16: 0.1},
}


def sums(distribution: dict[int, float], users: tuple[int, ...], weights: tuple[int, ...]) -> Any:
    """Return the exact law of sum d_l sum x, as chances of 0, 1, ... eighths above the least."""
    law = np.ones(1)
    for n, weight in zip(users, weights, strict=True):
        one = np.zeros(16 * weight + 1)
        for value, chance in distribution.items():
            one[value * weight] = chance
        for _ in range(n):
            law = np.convolve(law, one)
    return law


def test_no_law_of_values_has_a_larger_tail() -> None:
    for name, (users, weights) in itertools.product(
        DISTRIBUTIONS, [((60,), (1,)), ((40, 15), (1, 3))]
    ):
        with row(name, users, weights):
            distribution = DISTRIBUTIONS[name]
            law = sums(distribution, users, weights)
            total = sum(n * d for n, d in zip(users, weights, strict=True))
            tails = np.cumsum(law[::-1])[::-1]
            places = np.arange(law.size) / (GRID * total) - 1
            mean = sum(p * v for v, p in distribution.items()) / GRID - 1
            known = (np.array(users, float), np.array(weights) / total, np.ones(len(users)))
            kinds: list[Law] = [ValueLaw(*known)]
            are_signs = set(distribution) == {0, 16}
            if are_signs:
                kinds.append(Law(*known))
            for kind in kinds:
                bound = np.exp(_log_tail(kind, np.full(places.size, mean), places - 1e-12))
                assert np.all(bound >= tails * (1 - 1e-9))
                if are_signs:  # others have less variance than the bound has to allow for
                    assert (bound[tails < 1e-3] < 0.1).all()


def test_the_bins_of_the_noise_hold_all_of_it() -> None:
    for rate in [Fraction(1, 1000), Fraction(1, 3), Fraction(4)]:
        with row(rate):
            noise = ReleaseNoise((rate,), (1,), 1)
            ends, chances = _bins(noise, math.log(0.01))
            assert chances.sum() == pytest.approx(1)
            assert np.all(chances > 0)
            drawn = noise.draw(SeededBits(1), 100_000)
            tally = np.histogram(drawn, np.append(-np.inf, ends + 0.5))[0] / 100_000
            assert np.abs(tally - chances).max() < 0.008


@pytest.mark.parametrize(
    ("kind", "n", "epsilon", "excess"),
    [
        ("mean", 10_000, 0.02, 1.15),
        ("mean", 100_000, 1.0, 1.03),
        ("frequency", 1000, 0.05, 1.05),
        ("frequency", 100_000, 1.0, 1.02),
    ],
)
def test_bounds_are_near_exact_quantiles(kind: str, n: int, epsilon: float, excess: float) -> None:
    domain: dict[str, Any] = {"range": (0, 1)} if kind == "mean" else {"categories": 2}
    metric = define(name="m", kind=kind, trust="central", levels=[epsilon], **domain)
    statistic, numbers = summed(metric, np.arange(n) % 2), 1 if kind == "mean" else 2
    for target, spread in (("population", 0.5 / math.sqrt(n)), ("sample", 0.0)):
        released = metric.release(statistic, SeededBits(5), target=target)
        rng = np.random.default_rng(1)
        both = rng.laplace(scale=numbers / (n * epsilon), size=300_000)
        both += rng.normal(scale=spread, size=both.size)
        exact = np.quantile(both, 1 - 0.025 / numbers)
        half = (np.atleast_1d(released.upper)[0] - np.atleast_1d(released.lower)[0]) / 2
        with row(target):
            assert 0.99 < half / exact < excess


def test_bounds_have_room_for_the_rounding_on_the_device() -> None:
    metric = trusted("mean", range=(0, 1), options={"grid": 2})
    statistic = summed(metric, np.full(100_000, 0.26))
    for target in ("population", "sample"):
        released = metric.release(statistic, SeededBits(1), target=target)
        assert released.value == pytest.approx(0.5, abs=0.01)
        assert released.lower <= 0.26, target


WEIGHTS = {
    "hpm-a": [0.411, 1.698, 3.731],
    "hpm-c": [0.956, 1.102, 1.102],
    "hpm-u": [0.452, 2.261, 2.313],
    "hpm-ct": [0.963, 1.086, 1.086],
    "hpm-ut": [0.452, 2.261, 2.313],
    "adpm": [0.399, 1.995, 3.216],
    "proportional": [0.270, 1.351, 5.405],
    "uniform-minimum": [1, 1, 1],
}


def test_weights_are_those_of_least_error() -> None:
    """By policy, times the number of reports; minimizers that were compared with others."""
    epsilons, counts = np.array([0.1, 0.5, 2.0]), np.array([70.0, 20.0, 10.0])
    for policy, expected in WEIGHTS.items():
        found = report_weights(policy, epsilons, counts, 0.05).per_report
        assert 100 * found == pytest.approx(np.array(expected), rel=2e-3), policy


def test_no_weights_leak_more_than_the_least_epsilon_allows() -> None:
    for kind in ["mean", "frequency"]:
        with row(kind):
            epsilons, counts = np.array([0.05, 0.5, 1.0, 8.0]), np.array([100.0, 5, 800, 1])
            for name, policy in RELEASE_WEIGHTINGS[kind].items():
                found = policy(epsilons, counts, math.log(20))
                losses = found.per_report / noise_scale(epsilons, found.per_report)
                assert np.all(losses <= epsilons * (1 + 1e-12)), name
                assert losses.max() > 0
                if found.saturation is not None:
                    assert losses == pytest.approx(np.minimum(epsilons, found.saturation)), name
