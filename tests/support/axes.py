"""A metric of two axes, and what its devices refuse, in the same words in every language."""

from typing import Any

from tests.support.metrics import frequency_metric

AXES = {"used_x": ["no", "yes"], "crashed": ["no", "yes"]}
CRASH = frequency_metric("crash", "grr", AXES, [16], pane="1h", lateness="2d")
MISTAKES: list[tuple[Any, str]] = [
    ({"used_x": "yes", "crash": "no"}, "axis crash of crash: expected one of used_x, crashed"),
    ({"used_x": "maybe", "crashed": "no"}, "used_x=maybe of crash: expected one of no, yes"),
    ({"used_x": 1, "crashed": "no"}, "used_x=1 of crash: expected one of no, yes"),
    ({"used_x": "yes"}, "axis crashed of crash is missing: expected one of no, yes"),
    ({}, "axis used_x of crash is missing: expected one of no, yes"),
]
"""Values that are no category, and the message of the refusal."""
LIES: list[Any] = [
    {"used_x": ["no", "yes"], "crashed": ["yes", "no"]},
    {"crashed": ["no", "yes"], "used_x": ["no", "yes"]},
    {"used_x": ["no", "yes"]},
    {"used_x": ["no", "yes"], "crashed": ["no", "yes"], "more": ["a", "b"]},
    {f"a{index}": ["no", "yes"] for index in range(18)},
]
"""Axes whose combinations are not the categories of `CRASH` in their order."""
