"""The event data of a decided comparison."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET

from aggregator.features.comparisons.answers import ComparedArm
from aggregator.features.comparisons.compared import ArmAnswer, Compared
from aggregator.features.comparisons.definitions import ComparisonDefinition
from aggregator.features.comparisons.stored import ComparisonDecided
from aggregator.reading.serialization import Number, plain
from aggregator.reading.slices.slice_answers import values
from aggregator.timestamps import iso


def decided(
    definition: ComparisonDefinition, compared: Compared, index: int, at: str, incomplete: int
) -> ComparisonDecided:
    """Return the event data of a decision at the end of a pane.

    Parameters
    ----------
    definition : ComparisonDefinition
    compared : Compared
        With a comparison.
    index : int
        The index of the decided category or coordinate.
    at : str
        The pane's end.
    incomplete : int
        The number of panes with reports that were in no table of slices.
    """
    comparison = compared.comparison
    assert comparison is not None  # noqa: S101
    labels = comparison.labels
    metric = compared.a.window.metric
    return ComparisonDecided(
        comparison=definition.name,
        metric=metric.name,
        unit=compared.unit,
        of=definition.of,
        category=labels[index] if labels else UNSET,
        at=at,
        value=_number(compared.value, index),
        lower=_number(compared.lower, index),
        upper=_number(compared.upper, index),
        p_value=_number(compared.p_value, index),
        bound=compared.bound,
        beta=definition.beta,
        covers=compared.covers,
        law=compared.law,
        split=definition.split,
        a=_arm(compared.a, index, at),
        b=_arm(compared.b, index, at),
        rest=compared.query.rest,
        incomplete=incomplete,
    )


def _arm(arm: ArmAnswer, index: int, at: str) -> ComparedArm:
    return ComparedArm(
        metric=arm.metric,
        where=values(arm.where),
        start=iso(arm.window.start_ms),
        end=at,
        value=_number(arm.estimate.value, index),
        reports=arm.estimate.reports,
    )


def _number(numbers: object, index: int) -> Number:
    number = plain(np.ravel(np.asarray(numbers, dtype=np.float64))[index])
    assert not isinstance(number, list)  # noqa: S101
    return number
