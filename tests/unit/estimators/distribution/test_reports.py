"""Definitions and reports of distributions: constants, the law of a report, and sums."""

import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import (
    DefinitionError,
    DistributionEstimate,
    LocalMetric,
    ReportError,
    compare,
    define,
)
from estimators.exact.randomness import SeededBits
from estimators.exact.thresholds import WORD, exp_bounds
from estimators.mechanisms import DyadicHadamard
from estimators.mechanisms.dyadic_hadamard.constants import keep_threshold, level_constants
from estimators.mechanisms.dyadic_hadamard.haar import cumulated, haar_sums, masses, split_tree
from estimators.mechanisms.dyadic_hadamard.scores import haar_bounds, haar_moments, score_range
from estimators.question import Question
from tests.support.reports.cases import MANY_LEVELS, ScriptedBits, exact, summed
from tests.support.rows import row

#: Published: c, m and 2^16 times the probabilities of the depths, for 256 bins.
CONSTANTS = {
    0.5: (0, 1, [0, 3945, 5917, 6900, 7383, 7585, 7537, 7019, 19250]),
    1.0: (0, 2, [0, 0, 10663, 6801, 7276, 7475, 7428, 6918, 18975]),
    2.0: (1, 2, [0, 0, 0, 12096, 7706, 8208, 8294, 7787, 21445]),
    4.0: (3, 2, [0, 0, 0, 0, 0, 16471, 10254, 10151, 28660]),
}
#: Published: v, at epsilon 0.5, 1, 2 and 4.
VARIANCES = {
    64: (56.1, 12.9, 2.54, 0.44),
    256: (96.2, 21.9, 4.33, 0.64),
    1024: (147.7, 33.5, 6.69, 0.86),
    4096: (210.4, 47.5, 9.62, 1.16),
}


def test_the_constants_are_those_that_were_published() -> None:
    for epsilon, (blocks, hashes, chances) in CONSTANTS.items():
        found = level_constants(exact(epsilon), 8)
        assert (found.block_bits, found.hash_bits) == (blocks, hashes)
        assert list(found.chances) == chances
    for bins, variances in VARIANCES.items():
        for epsilon, published in zip((0.5, 1, 2, 4), variances, strict=True):
            variance = level_constants(exact(epsilon), bins.bit_length() - 1).variance
            assert abs(variance - published) < (0.051 if published > 10 else 0.0051), bins


def test_probabilities_of_depths_sum_to_one() -> None:
    for epsilon, height in itertools.product(MANY_LEVELS, (1, 2, 5, 8, 12)):
        with row(epsilon, height):
            found = level_constants(exact(epsilon), height)
            assert sum(found.chances) == 2**16
            assert min(found.chances) >= 0
            assert not any(found.chances[: found.block_bits + found.hash_bits])
            assert found.chances[height] > 0  # otherwise the last splits would be unknown
            assert found.symbols <= 512


def test_the_threshold_is_the_largest_that_is_private() -> None:
    """Floor, in exact arithmetic: one more would exceed e^epsilon, or leave no noise."""
    for epsilon, symbols in itertools.product(MANY_LEVELS, (2, 4, 8, 32, 512)):
        threshold = keep_threshold(exact(epsilon), symbols)
        ratios = [
            1 + Fraction(symbols * t, WORD - t) for t in (threshold, threshold + 1) if t < WORD
        ]
        low, high = exp_bounds(exact(epsilon))
        assert ratios[0] <= low, (epsilon, symbols)
        assert threshold + 1 == WORD or ratios[1] > high, (epsilon, symbols)


def reports_of(mechanism: DyadicHadamard) -> np.ndarray[Any, Any]:
    """Return every report of the first level, packed."""
    level, found = mechanism.levels[0], []
    for depth in level.depths:
        rows = range(1, 1 << (depth - level.block_bits))
        pairs = [(first, 0) for first in rows]
        if level.hash_bits == 2:
            pairs = [(first, second) for first in rows for second in rows if first != second]
        found += [
            depth | first << 4 | second << 16 | symbol << 28
            for first, second in pairs
            for symbol in range(level.symbols)
        ]
    words = np.array(found, dtype="<u8")
    return words.view(np.uint8).reshape(-1, 8)[:, :5].copy()


@functools.cache
def enumerated(
    bins: int, epsilon: float
) -> tuple[DyadicHadamard, list[Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return every report's Haar sums and scores, and its probability for each bin."""
    mechanism = DyadicHadamard([exact(epsilon)], bins=bins)
    level, reports = mechanism.levels[0], reports_of(mechanism)
    depth = reports[:, 0] & 15
    rows = (1 << (depth.astype(int) - level.block_bits)) - 1
    pairs = rows * (rows - 1 if level.hash_bits == 2 else 1)
    missed = (1 - level.honest) / level.symbols
    base = np.array(level.chances)[depth] / 2**16 / pairs * missed
    law = np.stack(
        [base * np.exp(mechanism.log_likelihood(reports, 0, x)) for x in range(bins)], axis=1
    )
    sums, scores = [], []
    for report in reports:
        table = np.zeros((1, mechanism.columns), dtype=np.int64)
        mechanism.accumulate(table, np.zeros(1, dtype=np.uint8), report[None])
        assert mechanism.find_error(table) is None
        sums.append(split_tree(haar_sums((level,), table)[0]))
        scores.append(cumulated(masses(sums[-1])[-1]) - np.arange(bins + 1) / bins)
    return mechanism, sums, np.array(scores), law


ENUMERATED = [(4, 1.0), (8, 0.5), (16, 1.0), (16, 2.0), (32, 4.0)]
each_enumerated = pytest.mark.parametrize(("bins", "epsilon"), ENUMERATED)


@each_enumerated
def test_every_report_of_a_level_has_the_stated_law(bins: int, epsilon: float) -> None:
    """Its scores are unbiased for every value, and of the stated variance over all bins."""
    mechanism, _, scores, law = enumerated(bins, epsilon)
    assert np.allclose(law.sum(axis=0), 1, rtol=0, atol=1e-12)
    ratio = float((law.max(axis=1) / law.min(axis=1)).max())
    assert ratio == pytest.approx(float(mechanism.privacy_ratio(0)), rel=1e-12)
    edges = np.arange(bins + 1)
    truth = (np.arange(bins)[:, None] < edges).astype(float) - edges / bins
    assert np.allclose(law.T @ scores, truth, rtol=0, atol=1e-11)
    variance = (law.mean(axis=1) @ scores**2)[1:-1].mean()
    assert mechanism.levels[0].variance == pytest.approx(variance, rel=1e-11)
    table = np.zeros((1, mechanism.columns), dtype=np.int64)
    mechanism.accumulate(table, np.zeros(1, dtype=np.uint8), reports_of(mechanism)[:1])
    answer = mechanism.estimate(table, Question(bound="normal"))
    centre = np.clip(scores[0] + edges / bins, 0, 1) - edges / bins
    worst = (law.T @ (scores - centre)[:, 1:-1] ** 2).max()
    assert answer.effective_reports == pytest.approx(1 / (4 * worst), rel=1e-9)


def shell(bins: int, edge: int, value: int) -> int:
    """Return the shell of a value as seen from an edge: the depth at which their paths part."""
    return bins.bit_length() - 1 - (edge ^ value).bit_length()


@each_enumerated
def test_moments_and_bounds_of_scores_are_those_of_all_reports(bins: int, epsilon: float) -> None:
    """The closed forms of the second moment, the mean, and the extreme scores."""
    mechanism, _, scores, law = enumerated(bins, epsilon)
    tables = mechanism.tree
    stated_second, stated_mean = tables.of_level(0)
    lowest, highest = score_range(mechanism.levels[0])
    second, mean = law.T @ scores**2, law.T @ scores
    assert lowest == pytest.approx(scores.min(axis=0)[1:-1], rel=1e-11)
    assert highest == pytest.approx(scores.max(axis=0)[1:-1], rel=1e-11)
    assert tables.added(np.array([2.0]))[0] == pytest.approx(2 * stated_second)
    for edge in range(1, bins):
        for value in range(bins):
            where = edge - 1, shell(bins, edge, value)
            assert stated_second[where] == pytest.approx(second[value, edge], rel=1e-11)
            assert stated_mean[where] == pytest.approx(mean[value, edge], abs=1e-11)
        centred = np.abs(scores[:, edge, None] - mean[:, edge]).max()
        assert centred <= tables.centred[0, edge - 1] * (1 + 1e-12)


@each_enumerated
def test_moments_of_haar_sums_are_those_of_all_reports(bins: int, epsilon: float) -> None:
    mechanism, sums, _, law = enumerated(bins, epsilon)
    height = mechanism.height
    users = np.random.default_rng(bins).dirichlet(np.full(bins, 0.3))
    nodes = [users.reshape(1 << depth, -1).sum(axis=1) for depth in range(height + 1)]
    moments = split_tree(haar_moments(mechanism.levels, nodes)[0])
    chance = law @ users
    for split in range(height):
        found = np.array([each[split] for each in sums])
        assert np.allclose(chance @ found**2, moments[split], rtol=1e-11)
        assert np.allclose(chance @ found, nodes[split + 1][0::2] - nodes[split + 1][1::2])
    squares, largest = haar_bounds(mechanism.levels[0], height)
    for split in range(height):
        found = np.array([each[split] for each in sums])
        assert np.abs(found).max(axis=0) == pytest.approx(largest[split])
        assert ((law.T @ found**2).max(axis=0) <= squares[split] * (1 + 1e-12)).all()


@each_enumerated
def test_the_whole_law_is_drawn(bins: int, epsilon: float) -> None:
    """Pearson's statistic of 200,000 reports of one bin: above its limit once in 10^6 seeds."""
    from scipy.stats import chi2

    mechanism, _, _, law = enumerated(bins, epsilon)
    value, n = bins - 2, 200_000
    seed = SeededBits(int(100 * epsilon) + bins)
    drawn = mechanism.randomize(np.full(n, value), np.zeros(n, dtype=np.uint8), seed)

    def words(reports: Any) -> Any:
        wide = np.zeros((len(reports), 8), dtype=np.uint8)
        wide[:, :5] = reports
        return wide.view("<u8").reshape(-1)

    known = words(reports_of(mechanism))
    order = np.argsort(known)
    place = np.searchsorted(known[order], words(drawn))
    counts = np.bincount(place, minlength=known.size)
    expected = n * law[order, value]
    often = expected > 5
    statistic = ((counts - expected)[often] ** 2 / expected[often]).sum()
    assert (known[order][place] == words(drawn)).all()
    assert statistic < chi2.isf(1e-6, often.sum())


@pytest.mark.parametrize("level", range(len(MANY_LEVELS)))
def test_the_symbol_is_kept_below_the_threshold_and_only_there(level: int) -> None:
    epsilons = [exact(epsilon) for epsilon in MANY_LEVELS]
    mechanism = DyadicHadamard(epsilons, bins=256)
    constants = mechanism.levels[level]
    first, rest = divmod(constants.threshold, 2**56)
    two = [0] if constants.hash_bits == 2 else []

    def symbol(byte: int, tie: int, other: int) -> int:
        ties = [tie << 8] if byte == first else []
        script = ScriptedBits([0xFFFF], [0], two, [byte], ties, [other])
        report = mechanism.randomize(np.array([200]), np.array([level]), script)
        assert not script.words
        return int.from_bytes(report[0].tobytes(), "little") >> 28

    own = {symbol(byte, rest - 1, other) for byte in (0, first) if byte <= first
           for other in range(constants.symbols) if rest or byte < first}  # fmt: skip
    assert len(own) == 1
    others = [symbol(first, rest, other) for other in range(constants.symbols)]
    assert sorted(others) == list(range(constants.symbols))
    if first < 255:
        others = [symbol(255, 0, other) for other in range(constants.symbols)]
        assert sorted(others) == list(range(constants.symbols))
    assert mechanism.privacy_ratio(level) == constants.ratio
    assert constants.ratio <= exp_bounds(epsilons[level])[0]


def word(depth: int, first: int, second: int, symbol: int) -> bytes:
    return (depth | first << 4 | second << 16 | symbol << 28).to_bytes(5, "little")


def test_a_report_that_no_value_can_have_is_refused() -> None:
    mechanism = DyadicHadamard([Fraction(1, 2), Fraction(1)], bins=256)
    mechanism.check(bytes([0, 1]), word(8, 255, 0, 1) + word(8, 255, 254, 3))
    for why, level, report in (
        ("a depth without a probability", 0, word(0, 0, 0, 0)),
        ("a depth without a probability", 1, word(1, 1, 0, 0)),
        ("deeper than the tree", 0, word(9, 1, 0, 0)),
        ("no row", 0, word(8, 0, 0, 0)),
        ("a row that is too long", 0, word(3, 8, 0, 0)),
        ("a second row, of a level with one", 0, word(8, 1, 1, 0)),
        ("no second row", 1, word(8, 1, 0, 0)),
        ("the same row twice", 1, word(8, 7, 7, 0)),
        ("a second row that is too long", 1, word(3, 1, 8, 0)),
        ("symbols that the levels do not have", 0, word(8, 1, 0, 2)),
        ("symbols that the levels do not have", 1, word(8, 1, 2, 4)),
    ):
        with row(why), pytest.raises(ReportError, match="bad_value"):
            mechanism.check(bytes([0, level]), word(8, 255, 0, 1) + report)


def test_sums_that_no_reports_can_have_are_named() -> None:
    metric = define(name="m", kind="distribution", range=(0, 1), bins=16, levels=[0.5, 2])
    mechanism: Any = metric.randomizer
    table = metric.table(summed(metric, np.linspace(0, 1, 1000), np.arange(1000) % 2))
    assert mechanism.find_error(table) is None
    for change, why in (
        ((0, 0, 1), "over all depths"),
        ((0, 16 + 3, 10_000), "larger than its number"),
        ((1, 1, 1), "larger than its number"),
        ((1, 0, 1), "over all depths"),
        ((0, 0, -(10**6)), "negative number"),
    ):
        broken = table.copy()
        broken[change[0], change[1]] += change[2]
        assert why in str(mechanism.find_error(broken))
    table[0, 16 + 3] = -(2**63)  # has no absolute value
    assert "larger than its number" in str(mechanism.find_error(table))


def test_values_at_edges_and_beyond_fall_into_the_right_bins() -> None:
    metric = define(name="m", kind="distribution", range=(0, 4), bins=4, levels=[1])
    values = np.array([-9.0, 0.0, 0.99, 1.0, 3.0, 3.99, 4.0, 9.0, math.inf, -math.inf])
    assert metric.domain.to_unit(values).tolist() == [0, 0, 0, 1, 3, 3, 3, 3, 3, 0]
    with pytest.raises(ValueError, match="value nan of"):
        metric.domain.to_unit(np.array([math.nan]))
    logs = define(name="m", kind="distribution", range=(1, 1000), bins=3, scale="log", levels=[1])
    assert np.allclose(logs.domain.limits, [1, 10, 100, 1000])  # type: ignore[attr-defined]
    assert logs.domain.to_unit(np.array([0.5, 5, 50, 500, 5000])).tolist() == [0, 0, 1, 2, 2]


def distribution(**keys: Any) -> LocalMetric:
    found: LocalMetric = define(**{"name": "m", "kind": "distribution", "levels": [1, 2], **keys})
    return found


def test_a_range_is_all_that_is_needed() -> None:
    metric = distribution(range=(0, 1))
    assert metric.mechanism == "dyadic_hadamard"
    assert metric.labels == ("0.5", "0.9", "0.99")
    assert np.array_equal(metric.domain.limits, np.arange(257) / 256)  # type: ignore[attr-defined]
    asked = [0.3, 0.1 + 0.2, 1 - 1e-16]
    other = distribution(range=(0, 1), quantiles=asked)
    assert other.labels == ("0.3", "0.30000000000000004", "0.9999999999999999")
    assert other.estimate(other.zero(), quantiles=asked).labels == other.labels
    wrong: list[list[Any]] = [[0.0], [1.0], [0.5, 0.5], ["x"], [float("nan")]]
    for quantiles in wrong:
        with row(quantiles), pytest.raises(ValueError, match="between 0 and 1, each once"):
            metric.estimate(metric.zero(), quantiles=quantiles)


def test_a_definition_that_cannot_be_is_refused_by_its_key() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "m.range is missing: expected two finite numbers"),
        ({"range": (1, 0)}, "m.range = (1, 0): expected two finite numbers"),
        ({"range": (0, 1), "bins": 1}, "m.bins = 1: expected a number of bins, 2 to 4096"),
        ({"range": (0, 1), "bins": 4097}, "m.bins = 4097: expected a number of bins, 2 to 4096"),
        ({"range": (0, 1), "scale": "log"}, "expected a range that begins above 0"),
        ({"range": (0, 1), "scale": "logs"}, "m.scale = 'logs'"),
        ({"range": (1, 1 + 1e-14)}, "m.bins is missing: expected bins that are wider"),
        ({"range": (1e-300, 1e300), "scale": "log"}, "expected ends that are at most 1e308 times"),
        ({"edges": [0, float("nan"), 1]}, "m.edges = [0, nan, 1]: expected finite numbers"),
        ({"edges": [0, 1]}, "m.edges = [0, 1]: expected 3 to 4097 ascending numbers"),
        ({"edges": [0, 1, 1]}, "m.edges = [0, 1, 1]: expected 3 to 4097 ascending numbers"),
        ({"edges": [0, 1, 2], "bins": 2}, "m.bins = 2: expected no bins beside edges"),
        ({"edges": [0, 1, 2], "range": (0, 2)}, "expected no range beside edges"),
        ({"edges": [0, 1, 2], "scale": "log"}, "expected no scale beside edges"),
        ({"range": (0, 1), "quantiles": [0.5, 0.5]}, "expected one or more quantiles, each once"),
        ({"range": (0, 1), "quantiles": [1]}, "m.quantiles = [1]: expected numbers between 0"),
        ({"range": (0, 1), "memoized": True}, "m.memoized = True"),
        ({"range": (0, 1), "mechanism": "grr"}, "m.mechanism = 'grr'"),
        ({"range": (0, 1), "trust": "central"}, "m.kind = 'distribution'"),
        ({"range": (0, 1), "categories": ["a", "b"]}, "expected no categories"),
    ]
    for keys, told in cases:
        with row(keys):
            with pytest.raises(DefinitionError) as refused:
                distribution(**keys)
            assert told in str(refused.value)


def test_the_revision_is_of_bins_and_constants_not_of_quantiles() -> None:
    metric = distribution(range=(0, 1), bins=16)
    same = distribution(range=(0, 1), bins=16, quantiles=[0.25])
    assert same.revision == metric.revision
    assert '"constants":{"block_bits":' in metric.canonical
    others = [
        distribution(range=(0, 1), bins=32),
        distribution(range=(0, 2), bins=16),
        distribution(range=(1, 2), bins=16),
        distribution(range=(1, 2), bins=16, scale="log"),
        distribution(edges=[0, 1, 2]),
        distribution(range=(0, 1), bins=16, levels=[1]),
        metric,
    ]
    assert len({each.revision for each in others}) == len(others)


def test_edges_of_ones_own_are_the_edges_of_the_answer() -> None:
    metric = distribution(edges=[0, 100, 250, 1000], levels=[8], quantiles=[0.5])
    values = [50] * 1000 + [100] * 1000 + [5000] * 1000
    found = metric.estimate(summed(metric, values))
    assert isinstance(found, DistributionEstimate)
    assert found.edges.tolist() == [0, 100, 250, 1000]
    assert np.allclose(found.cdf, [0, 1 / 3, 2 / 3, 1], rtol=0, atol=0.1)
    assert found.quantiles[0, 0] == 0.5
    assert 100 <= found.quantiles[0, 2] < found.quantiles[0, 1] < found.quantiles[0, 3] <= 250
    assert found.numbers.value.tolist() == found.quantiles[:, 1].tolist()  # type: ignore[union-attr]


THIRDS: dict[str, Any] = {"range": (1, 1000), "bins": 3, "scale": "log", "levels": [4]}
"""Of which 10 and 100 are edges, but for rounding."""


def test_an_edge_is_known_by_its_number_however_it_was_rounded() -> None:
    metric = distribution(**THIRDS)
    statistic = summed(metric, [2.0] * 1000 + [20.0] * 600 + [200.0] * 400)
    found = metric.estimate(statistic)
    assert isinstance(found, DistributionEstimate)
    assert found.edges[1] != 10 != found.edges[2] / 10
    assert found.below(10)[1:] == (found.cdf_lower[1], found.cdf_upper[1])
    assert found.below(10) == pytest.approx(found.below(float(found.edges[1])))
    assert found.shares_below([10, 100]).value == pytest.approx(found.cdf[1:3])
    same = compare(metric, statistic, statistic, below=[10, 100])
    assert same.labels == ("below 10", "below 100")
    with pytest.raises(ValueError, match=r"below = 11: expected an edge .* such as 10 or 100"):
        compare(metric, statistic, statistic, below=[11])


def test_nothing_is_said_of_shares_beyond_the_range() -> None:
    """Devices clip to it: how many were beyond is unknown."""
    metric = distribution(**THIRDS)
    found = metric.estimate(metric.zero())
    assert isinstance(found, DistributionEstimate)
    assert (found.below(1), found.below(1000)) == ((0, 0, 0), (1, 1, 1))
    for value in (0.5, 1000.5, float("nan"), float("inf"), -float("inf")):
        told = f"below = {value}: expected a number from 1 to 1000"
        with row(value), pytest.raises(ValueError, match=told):
            found.below(value)
