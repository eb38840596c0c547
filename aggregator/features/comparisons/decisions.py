"""What is decided of a living comparison, as its event has it."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET

from aggregator.features.comparisons.answers import ComparedArm
from aggregator.features.comparisons.compared import ArmAnswer, Compared
from aggregator.features.comparisons.definitions import ComparisonDefinition
from aggregator.features.comparisons.stored import ComparisonDecided
from aggregator.reading.serialization import Number, plain
from aggregator.reading.slices.answers import values
from aggregator.timestamps import iso


def decided(
    definition: ComparisonDefinition, found: Compared, place: int, at: str, incomplete: int
) -> ComparisonDecided:
    """Return what is decided at the end of a pane.

    Parameters
    ----------
    definition : ComparisonDefinition
    found : Compared
        With a comparison.
    place : int
        Of the number that is decided: a category, a coordinate.
    at : str
        The pane's end.
    incomplete : int
        Panes up to it some of whose reports were in no table of slices.
    """
    comparison = found.comparison
    assert comparison is not None  # noqa: S101
    labels = comparison.labels
    metric = found.a.window.metric
    return ComparisonDecided(
        comparison=definition.name,
        metric=metric.name,
        unit=found.unit,
        of=definition.of,
        category=labels[place] if labels else UNSET,
        at=at,
        value=_number(found.value, place),
        lower=_number(found.lower, place),
        upper=_number(found.upper, place),
        p_value=_number(found.p_value, place),
        bound=found.bound,
        beta=definition.beta,
        covers=found.covers,
        law=found.law,
        split=definition.split,
        a=_arm(found.a, place, at),
        b=_arm(found.b, place, at),
        rest=found.query.rest,
        incomplete=incomplete,
    )


def _arm(arm: ArmAnswer, place: int, at: str) -> ComparedArm:
    return ComparedArm(
        metric=arm.metric,
        where=values(arm.where),
        start=iso(arm.window.start_ms),
        end=at,
        value=_number(arm.estimate.value, place),
        reports=arm.estimate.reports,
    )


def _number(numbers: object, place: int) -> Number:
    found = plain(np.ravel(np.asarray(numbers, dtype=np.float64))[place])
    assert not isinstance(found, list)  # noqa: S101
    return found
