"""`auto`: what it chooses, and how it reports."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import ReportError
from estimators.exact.piecewise_shapes import shape_at
from estimators.mechanisms import AutoFrequency, RandomizedResponse, mechanism_class
from estimators.mechanisms.auto import FREQUENCY_CANDIDATES
from tests.support.reports.cases import metric_for
from tests.support.rows import row

EPSILONS = [Fraction(x, 4) for x in range(1, 33)]


def auto(epsilons: list[Fraction], **options: Any) -> Any:
    build: Any = mechanism_class("auto", "frequency" if "categories" in options else "mean")
    return build(epsilons, **options)


def test_a_mean_has_the_mechanism_of_the_smaller_variance_for_its_spread() -> None:
    """Of data with mean 0: at the value 0 for signs, whose variance is the same everywhere."""
    signs = RandomizedResponse(EPSILONS).facts.variances
    noise = np.array([float(shape_at(epsilon).worst_variance) for epsilon in EPSILONS])
    two = np.array(EPSILONS) < Fraction("0.42")  # both are the same there
    for spread in ("0", "1/3", "0.6", "0.85", "1"):
        better = signs < noise + float(Fraction(spread))
        expected = np.where(better | two, "randomized_response", "windows").tolist()
        with row(spread):
            assert auto(EPSILONS, spread=spread).level_mechanisms == expected
    assert expected == auto(EPSILONS, values="two").level_mechanisms
    assert set(expected) == {"randomized_response"}


def test_frequencies_have_the_least_variance_that_fits() -> None:
    for categories in (2, 3, 16, 100, 1000):
        built = [candidate(EPSILONS, categories=categories) for candidate in FREQUENCY_CANDIDATES]
        for report_bytes in (2, 16, 125):
            mechanism = auto(EPSILONS, categories=categories, report_bytes=report_bytes)
            fitting = [x.facts.variances for x in built if x.width <= report_bytes]
            width = max(child.width for child in mechanism.children)
            with row(categories, report_bytes):
                assert mechanism.facts.variances == pytest.approx(
                    np.min(fitting, axis=0), rel=1e-12
                )
                assert mechanism.width == width <= report_bytes


def test_what_fills_a_report_up_has_to_be_zero() -> None:
    randomizer = metric_for("auto_frequency", (0.5, 4.0), categories=10).randomizer
    assert isinstance(randomizer, AutoFrequency)
    widths = [child.width for child in randomizer.children]
    narrow = int(np.argmin(widths))
    assert widths[narrow] < randomizer.width
    wire = bytearray(randomizer.width)
    wire[0] = 3
    randomizer.check(bytes([narrow]), bytes(wire))
    wire[-1] = 1
    with pytest.raises(ReportError, match="expected zeros") as refused:
        randomizer.check(bytes([narrow]), bytes(wire))
    assert refused.value.reason == "bad_value"


def test_the_choice_is_shown_and_part_of_what_a_batch_means() -> None:
    metric = metric_for("auto_mean", (0.25, 4.0))
    assert repr(metric.randomizer) == "AutoMean(randomized_response, windows)"
    assert metric_for("auto_mean", (0.25, 4.0)).revision == metric.revision
    meaning = json.loads(metric.canonical)
    assert meaning["chosen"] == ["randomized_response", "windows"]
    assert meaning["constants"]["window"] == [1, 8]
    assert meaning["constants"]["z"] == [[-1, 1], list(shape_at(Fraction(4)).z)]
