"""Categories as the product of axes: one more way to write a list, for devices and questions."""

import itertools
import re
from typing import Any

import numpy as np
import pytest

from estimators import DefinitionError, define
from estimators.metrics.axes import Axes
from tests.support.axes import AXES, CRASH, MISTAKES
from tests.support.metrics import frequency_metric
from tests.support.rows import row

FLAT: Any = frequency_metric("crash", "grr", list(CRASH.labels), [16], pane="1h", lateness="2d")
A, B, C, D = CRASH.labels


def test_a_metric_of_axes_is_that_of_its_list_and_is_asked_by_name() -> None:
    """The same revision, the same numbers, whatever order a text names the axes in."""
    assert CRASH.canonical == FLAT.canonical
    statistic = np.array([1000, 500, 30, 400, 70])
    cases = [
        ("crashed=yes", [f"{B} + {D}"]),
        ("crashed = yes/used_x=yes", [f"{D} / {C} + {D}"]),
        ("used_x=yes, crashed=no + used_x=no", [f"{C} + {A} + {B}"]),
        ("crashed=yes, used_x=no", [B]),
        ("used_x", [f"{A} + {B}", f"{C} + {D}"]),
        ("crashed / used_x=no", [f"{A} / {A} + {B}", f"{B} / {A} + {B}"]),
        ("crashed, used_x", [A, C, B, D]),
        ("crashed=yes, used_x", [B, D]),
    ]
    for text, flat in cases:
        with row(text):
            own: Any = CRASH.estimate(statistic, categories=[text])
            other = FLAT.estimate(statistic, categories=flat)
            assert [own.value.tolist(), own.lower.tolist()] == [
                other.value.tolist(), other.lower.tolist(),
            ]  # fmt: skip
    rates = define(
        name="m", kind="frequency", categories=AXES, levels=[1], shares=["crashed=yes / used_x"]
    )
    assert rates.share_names == ("crashed=yes / used_x=no", "crashed=yes / used_x=yes")
    with pytest.raises(ValueError, match="1 by definition"):
        CRASH.estimate(statistic, categories=["crashed=yes / crashed=yes"])


def test_a_condition_is_the_set_of_its_categories() -> None:
    """All conditions of three axes, against a search through the categories."""
    axes = Axes({"age": ["1", "2", "3"], "b": ["x", "y"], "c": ["u", "v"]})
    cells = [*itertools.product(*map(range, axes.shape))]
    options = [[(None, ""), *itertools.product(range(size), ("", ".."))] for size in axes.shape]
    for chosen in itertools.product(*options):
        named = [
            f"{axis}={values[index]}{later}"
            for (axis, values), (index, later) in zip(axes.values.items(), chosen, strict=True)
            if index is not None
        ]
        if not named:
            continue
        expected = [
            all(
                index is None or place == index or (later and place > index)
                for place, (index, later) in zip(cell, chosen, strict=True)
            )
            for cell in cells
        ]
        condition = axes.condition(",".join(reversed(named)))
        assert condition is not None
        assert condition.text == ", ".join(named)
        assert [bool(condition.members >> index & 1) for index in range(12)] == expected


def test_a_device_gives_a_value_of_each_axis_or_is_told_what_was_expected() -> None:
    domain = CRASH.domain
    given: Any = [{"crashed": "no", "used_x": "yes"}, D]
    assert domain.to_unit(domain.rows(given)).tolist() == [2, 3]
    assert domain.to_unit(domain.rows(given[0])).tolist() == [2]
    for value, words in MISTAKES:
        with row(value), pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
            domain.rows([value])
    with pytest.raises(ValueError, match="category"):
        FLAT.domain.to_unit(FLAT.domain.rows(given))


def test_mistaken_texts_and_definitions_are_refused_with_what_was_expected() -> None:
    for text, words in (
        ("crash=yes", "axis crash of crash: expected one of used_x, crashed"),
        ("crashed=yes / used_x=maybe", "used_x=maybe of crash: expected one of no, yes"),
        ("crashed=yes, crashed=no", "each axis once, as in 'used_x=no'"),
        ("yes", "expected AXIS=VALUE"),
    ):
        with row(text), pytest.raises(ValueError, match=re.escape(words)):
            CRASH.domain.select([text])
    many = define(
        name="m", kind="frequency", levels=[1],
        categories={"a": [f"{i}" for i in range(40)], "b": [f"{i}" for i in range(40)]},
    )  # fmt: skip
    with pytest.raises(ValueError, match="expected at most 32"):
        many.domain.select(["a / b"])
    for axes, words in (
        ({}, "axes with 2 to 1048576 categories"),
        ({"a": ["x"]}, "two values or more of axis a"),
        ({"a": ["x", "x"]}, "each once"),
        ({"A": ["x", "y"]}, "found 'A'"),
        ({"a": ["x", "y, z"]}, "found 'y, z'"),
        ({"a": ["x", "y.."]}, r"found 'y..'"),
        ({"a": ["x", ""]}, "not empty"),
        ({"a": ["x", " y"]}, "found ' y'"),
        ({f"a{index}": ["x", "y"] for index in range(21)}, "axes with 2 to"),
    ):
        with row(axes), pytest.raises(DefinitionError, match=re.escape(words)):
            define(name="m", kind="frequency", categories=axes, levels=[1])
    with pytest.raises(DefinitionError, match="categories"):
        define(name="m", kind="frequency", categories={"a": 5}, levels=[1])
    assert define(name="m", kind="frequency", categories=AXES, levels=[1]).axes is not None
