"""What a definition of a distribution may say, and who can do what with such a metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators import DefinitionError, DistributionEstimate, LocalMetric, compare, define
from estimators.exact.randomness import SeededBits
from tests.support.rows import row


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
    for quantiles in ([0.0], [1.0], [0.5, 0.5], ["x"], [float("nan")]):
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
    statistic, level = metric.zero(), np.zeros(3000, dtype=np.uint8)
    values = [50] * 1000 + [100] * 1000 + [5000] * 1000
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
    found = metric.estimate(statistic)
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
    statistic, level = metric.zero(), np.zeros(2000, dtype=np.uint8)
    values = [2.0] * 1000 + [20.0] * 600 + [200.0] * 400
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
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
