"""What every mechanism has to pass, by being listed in MECHANISMS."""

import copy
import functools
import json
from typing import Any, NamedTuple

import numpy as np
import pytest

from estimators import LocalMetric, ReportError, define
from estimators.exact.randomness import SeededBits
from estimators.exact.thresholds import exp_bounds
from estimators.mechanisms import mechanism_class
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords
from tests.support.reports import cases
from tests.support.rows import row

#: Bytes of a report and cells of the statistic a level, as documented; 10 categories.
SIZES = {
    "randomized_response": (1, 2),
    "windows": (1, 1 + 30),
    "laplace": (4, 4),
    "rappor": (2, 1 + cases.CATEGORIES),
    "grr": (1, 1 + cases.CATEGORIES),
    "oue": (2, 1 + cases.CATEGORIES),
    "subset_selection": (2, 1 + cases.CATEGORIES),
    "hadamard_response": (1, 1 + 32),
    "projective_geometry_response": (1, 1 + 15),
    "recursive_hadamard": (1, 1 + 32),
    "projection": (1, 1 + 16),
    "count_sketch": (2, 1 + 65536),
    "projective_sketch": (2, 1 + 16383),
    "prefix_tree": (4, 1 + 70644 + 8 * 1407),
    "caps": (cases.DIMENSION, 1 + 2 * cases.DIMENSION),
    "lifted_caps": (cases.DIMENSION + 1, 1 + 2 * (cases.DIMENSION + 1)),
    "hemisphere": (2 * cases.DIMENSION, 1 + cases.DIMENSION),
    "dyadic_hadamard": (5, 2 * 16),
    "auto_frequency": (2, 1 + cases.CATEGORIES),
    "auto_mean": (1, 1 + 30),
    "repetition_frequency": (4 * 2, 1 + cases.CATEGORIES),
    "repetition_mean": (4, 2),
}
HISTOGRAMS = [name for name, (_, kind) in cases.CASES.items() if kind == "frequency"]
BOUNDS = ("fixed", "anytime", "normal")
TARGETS = ("population", "sample")
WEIGHTS = ("optimal", "paper", "uniform", "proportional")

#: What is a share; the others are between -1 and 1.
SHARES = ("frequency", "distribution")


def unknown(metric: LocalMetric, numbers: Any) -> Any:
    """Return the numbers that are estimated: F is known at the first edge and at the last."""
    return numbers[1:-1] if metric.kind == "distribution" else numbers


def own_value(metric: LocalMetric, estimate: Any) -> Any:
    """Return the numbers that an estimate's bounds are for; F ascends before it is compared."""
    return unknown(metric, estimate.shown if metric.kind == "distribution" else estimate.value)


class Drawn(NamedTuple):
    metric: LocalMetric
    level: Any
    reports: Any
    statistic: Any


@functools.cache
def population(name: str, n: int, seed: int = 1) -> Drawn:
    metric = cases.metric_for(name)
    level = np.random.default_rng(seed).integers(0, len(cases.LEVELS), n).astype(np.uint8)
    reports = metric.randomize(cases.values_for(metric, n, seed), level, SeededBits(seed))
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    return Drawn(metric, level, reports, statistic)


def test_reports_have_their_documented_size_and_survive_the_wire() -> None:
    for name in cases.CASES:
        metric, level, reports, statistic = population(name, 300)
        with row(name):
            assert (metric.randomizer.width, metric.randomizer.columns) == SIZES[name]
            assert metric.zero().shape == (len(cases.LEVELS) * SIZES[name][1],)
            assert metric.zero().dtype == np.int64
            wire = metric.randomizer.encode(reports)
            metric.randomizer.check(level.tobytes(), wire)
            back = metric.randomizer.decode(wire)
            assert back.dtype == metric.randomizer.dtype
            assert back.shape == (300, *metric.randomizer.shape)
            assert np.array_equal(back, reports)
            again = copy.deepcopy(metric)
            assert type(again.randomizer) is type(metric.randomizer)
            assert np.array_equal(again.estimate(statistic).value, metric.estimate(statistic).value)
            text = mechanism_class(*cases.CASES[name]).__doc__ or ""
            assert ">>>" in text
            assert "Source:" in text


def test_accumulation_is_additive_and_free_of_order() -> None:
    for name in cases.CASES:
        for seed, cut in ((1, 0), (2, 1), (3, 137), (4, 400)):
            metric, level, reports, whole = population(name, 400, seed)
            first, second, shuffled = metric.zero(), metric.zero(), metric.zero()
            metric.accumulate(first, level[:cut], reports[:cut])
            metric.accumulate(second, level[cut:], reports[cut:])
            order = np.random.default_rng(seed).permutation(400)
            metric.accumulate(shuffled, level[order], reports[order])
            with row(name, cut):
                assert np.array_equal(first + second, whole)
                assert np.array_equal(shuffled, whole)
                counts = np.bincount(level, minlength=len(cases.LEVELS))
                assert np.array_equal(metric.counts(whole), counts)


def test_what_the_check_lets_through_can_be_counted() -> None:
    """Random bytes, zeros, and reports of which one bit is another."""
    rng, let_through = np.random.default_rng(1), 0
    for name in cases.CASES:
        metric, level, reports, _ = population(name, 300)
        width, wire = metric.randomizer.width, metric.randomizer.encode(reports)
        batches = [(level[:n].tobytes(), bytes(n * width)) for n in (0, 1, 5)]
        for place in range(100):
            alone = bytearray(wire[place * width : (place + 1) * width])
            alone[int(rng.integers(width))] ^= 1 << int(rng.integers(8))
            batches.append((level[place : place + 1].tobytes(), bytes(alone)))
            batches.append((level[place : place + 1].tobytes(), rng.bytes(width)))
        for levels, values in batches:
            with row(name, levels, values):
                try:
                    metric.randomizer.check(levels, values)
                except ReportError as error:
                    assert error.reason == "bad_value"  # noqa: PT017
                    continue
                let_through += 1
                index, found = np.frombuffer(levels, np.uint8), metric.randomizer.decode(values)
                checked, again = metric.zero(), metric.zero()
                metric.accumulate_checked(checked, index, found)
                assert metric.counts(checked).sum() == len(levels)
                metric.accumulate(again, index, found)
                assert np.array_equal(again, checked)
    assert let_through > 1000


def test_a_wrong_length_or_level_is_refused_and_nothing_is_added() -> None:
    for name in cases.CASES:
        metric, level, reports, _ = population(name, 300)
        wire = metric.randomizer.encode(reports)
        unheard = level.copy()
        unheard[7] = len(cases.LEVELS)
        for levels, values, reason in (
            (level, wire[:-1], "bad_length"),
            (level, wire + b"\0", "bad_length"),
            (unheard, wire, "bad_level"),
        ):
            with row(name, reason):
                with pytest.raises(ReportError) as refused:
                    metric.randomizer.check(levels.tobytes(), values)
                assert refused.value.reason == reason
        statistic = metric.zero()
        with row(name), pytest.raises(ReportError, match="bad_level"):
            metric.accumulate(statistic, unheard, reports)
        assert not statistic.any()


def test_every_level_is_private() -> None:
    for name in cases.CASES:
        randomizer = cases.metric_for(name, cases.MANY_LEVELS).randomizer
        for level, epsilon in enumerate(cases.MANY_LEVELS):
            with row(name, epsilon):
                assert randomizer.is_private(level)
                assert 1 < randomizer.privacy_ratio(level) <= exp_bounds(cases.exact(epsilon))[1]


def test_an_estimate_says_what_it_rests_on_and_lies_within_its_bounds() -> None:
    for name in cases.CASES:
        metric, level, reports, _ = population(name, 5000)
        low, high = (0, 1) if metric.kind in SHARES else (-1, 1)
        statistic, statistics = metric.zero(), []
        for part in np.array_split(np.arange(5000), [5, 100]):
            metric.accumulate(statistic, level[part], reports[part])
            statistics.append(statistic.copy())
        for bound, target, weights in (
            *(("fixed", "population", weights) for weights in WEIGHTS),
            *(("fixed", "sample", weights) for weights in ("optimal", "uniform")),
            *(("anytime", target, "optimal") for target in TARGETS),
            ("normal", "population", "optimal"),
        ):
            asked: dict[str, Any] = {"bound": bound, "target": target, "weights": weights}
            for estimate in metric.estimate_each(statistics, beta=0.1, **asked):
                count = int(estimate.counts.sum())
                value = np.clip(own_value(metric, estimate), low, high)
                lower, upper = unknown(metric, estimate.lower), unknown(metric, estimate.upper)
                told = (estimate.bound, estimate.target, estimate.policy, estimate.beta)
                with row(name, count, *asked.values()):
                    assert np.all((lower <= value) & (value <= upper))
                    assert np.all((low <= lower) & (lower <= upper) & (upper <= high))
                    assert estimate.reports == count
                    if count == 5000:
                        assert 0 < estimate.effective_reports < count
                        assert estimate.weights.sum() == pytest.approx(1)
                    assert (*told, estimate.levels) == (*asked.values(), 0.1, cases.LEVELS)


def test_an_estimate_among_many_is_that_of_its_statistic_alone() -> None:
    for name in cases.CASES:
        metric, level, reports, whole = population(name, 5000)
        statistic = metric.zero()
        metric.accumulate(statistic, level[:300], reports[:300])
        statistics = [whole, statistic, metric.zero()]
        questions: list[dict[str, Any]] = [{}, {"weights": "uniform", "bound": "anytime"}]
        questions += [{"target": "sample", "bound": bound} for bound in ("fixed", "anytime")]
        for asked in questions:
            with row(name, *asked.values()):
                for number, estimate in enumerate(metric.estimate_each(statistics, **asked)):
                    alone = vars(metric.estimate(statistics[number], **asked))
                    for key, value in vars(estimate).items():
                        if isinstance(value, float | np.ndarray):
                            assert value == pytest.approx(alone[key], abs=1e-9, nan_ok=True)
                            if metric.randomizer.is_exact_together and not asked:
                                assert np.array_equal(value, alone[key], equal_nan=True)


def test_bounds_narrow_with_beta_and_widen_for_all_times() -> None:
    for name in cases.CASES:
        metric, _, _, whole = population(name, 5000)
        least = -1.0 if metric.kind == "mean" else 0.0
        for bound in BOUNDS:
            wide, narrow = (metric.estimate(whole, beta=beta, bound=bound) for beta in (0.01, 0.2))
            with row(name, bound):
                assert np.all(wide.lower <= narrow.lower)
                assert np.all(narrow.upper <= wide.upper)
        for weights in ("optimal", "uniform"):
            fixed, anytime, automatic = (
                metric.estimate(whole, bound=bound, weights=weights)
                for bound in ("fixed", "anytime", "auto")
            )
            lower, upper = unknown(metric, anytime.lower), unknown(metric, anytime.upper)
            most = 1.0 if metric.kind == "distribution" else np.inf  # near its end F may be 1
            with row(name, weights):
                assert np.all((lower < unknown(metric, fixed.lower)) | (lower == least))
                assert np.all((upper > unknown(metric, fixed.upper)) | (upper == most))
                assert np.all(automatic.lower == fixed.lower)
                assert automatic.bound == "fixed"


def test_nothing_is_known_before_the_first_report() -> None:
    for name in cases.CASES:
        metric = cases.metric_for(name)
        estimate = metric.estimate(metric.zero())
        low, high = (0, 1) if metric.kind in SHARES else (-1, 1)
        with row(name):
            assert np.all(np.isnan(estimate.value))
            assert np.all(unknown(metric, estimate.lower) == low)
            assert np.all(unknown(metric, estimate.upper) == high)
            assert (estimate.reports, estimate.effective_reports) == (0, 0)
            assert not estimate.weights.any()


@pytest.mark.parametrize(
    ("levels", "sizes", "targets"),
    [
        ((0, 6, 10), (1, 2), TARGETS[:1]),
        pytest.param(range(len(cases.MANY_LEVELS)), (1, 2, 3), TARGETS, marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_the_first_reports_already_have_bounds(levels: Any, sizes: Any, targets: Any) -> None:
    for name in cases.CASES:
        metric = cases.metric_for(name, cases.MANY_LEVELS)
        for level in levels:
            for n in sizes:
                statistic = cases.summed(metric, cases.values_for(metric, n), level, seed=n)
                for bound in BOUNDS:
                    for target in targets:
                        estimate = metric.estimate(statistic, target=target, bound=bound)
                        with row(name, cases.MANY_LEVELS[level], n, bound, target):
                            assert np.all(np.isfinite(estimate.value))
                            assert np.all(estimate.lower <= estimate.upper)


def test_what_is_asked_for_or_largest_has_its_value_and_its_bounds() -> None:
    for name in HISTOGRAMS:
        metric, _, _, statistic = population(name, 5000)
        for bound, target in [(bound, "population") for bound in BOUNDS] + [("fixed", "sample")]:
            asked: dict[str, Any] = {"bound": bound, "target": target}
            whole = metric.estimate(statistic, **asked)
            labels = (whole.labels[7], whole.labels[2])
            some = metric.estimate(statistic, **asked, categories=labels)
            alone = metric.estimate(statistic, **asked, categories=labels, simultaneous=False)
            pointwise = metric.estimate(statistic, **asked, simultaneous=False)
            widths = [np.asarray(e.upper) - np.asarray(e.lower) for e in (alone, some)]
            widths.append((np.asarray(whole.upper) - np.asarray(whole.lower))[[7, 2]])
            with row(name, bound, target):
                assert some.labels == labels
                assert np.allclose(some.value, np.asarray(whole.value)[[7, 2]], rtol=0, atol=1e-12)
                assert np.all(widths[0] < widths[1])
                assert np.all(widths[1] < widths[2])
                # categories with nearly the same sum may share a limit
                away = np.abs(np.asarray(pointwise.lower)[[7, 2]] - alone.lower)
                assert np.all(away < 0.02 * widths[0])
        whole = metric.estimate(statistic)
        order, top = np.argsort(-np.asarray(whole.value), kind="stable"), whole.top(3)
        with row(name):
            assert top.labels == tuple(whole.labels[i] for i in order[:3])
            assert np.array_equal(top.upper, np.asarray(whole.upper)[order[:3]])
            assert whole.top(100).labels == tuple(whole.labels[i] for i in order)
            assert whole.top(0).labels == ()


OPEN = {"projective_sketch": {"kind": "frequency", "categories": "open"}}


@pytest.mark.parametrize("file", ["mechanisms", "projective_sketch"])
def test_the_same_random_words_give_the_reports_of_the_vectors(file: str) -> None:
    for vector in json.loads((ROOT / "tests" / "vectors" / f"{file}.json").read_text()):
        keys = {"name": "asked", **OPEN.get(file, {}), **vector["definition"]}
        metric = LocalMetric.require(define(**keys))
        for value, level, words, report in vector["cases"]:
            with row(vector["definition"], value, level):
                assert metric.fingerprint.hex() == vector["fingerprint"]
                prepared = PreparedWords(np.array([int(word, 16) for word in words], np.uint64))
                values = np.array([value], dtype=object) if isinstance(value, str) else [value]
                found = metric.randomize(values, [level], prepared)
                encoded = metric.randomizer.encode(found).hex()
                assert (encoded, prepared.used) == (report, len(words))
