"""Checks of the values in a definition."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar, get_type_hints

import msgspec

from estimators.durations import milliseconds
from estimators.errors import meant, nearest, readable
from estimators.limits import LARGEST_LEVEL, LEVEL_DIGITS, MOST_LEVELS
from estimators.mechanisms import Mechanism

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}")
LONGEST_DURATION = "2922000d"
"""The longest duration: today's time plus this duration still fits into Redis and int64."""
_IMPLICIT_PARAMETERS = ("self", "epsilons")
"""Parameters of mechanisms that no definition can set."""
Built = TypeVar("Built")


def check_name(name: str) -> None:
    """Raise ValueError, with what was expected, unless `name` is a valid name of a metric."""
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError("a lower-case letter, then up to 63 lower-case letters, digits or _")


def check_levels(levels: Sequence[float]) -> None:
    """Raise ValueError, with what was expected, unless these are valid levels."""
    if not 1 <= len(levels) <= MOST_LEVELS:
        raise ValueError(f"1 to {MOST_LEVELS} epsilons")
    for epsilon in levels:
        if not 0 < epsilon <= LARGEST_LEVEL:
            raise ValueError(f"epsilons above 0 and at most {LARGEST_LEVEL}, found {epsilon}")
        if round(epsilon, LEVEL_DIGITS) != epsilon:
            raise ValueError(f"at most {LEVEL_DIGITS} decimal digits, found {epsilon}")
    if any(a >= b for a, b in pairwise(levels)):
        raise ValueError("ascending epsilons, each once")


def check_duration(text: str | None) -> None:
    """Raise ValueError, with what was expected, unless `text` is a duration above zero, or None."""
    if text is None:
        return
    check_lateness(text)
    if not milliseconds(text):
        raise ValueError("a duration above zero")


def check_lateness(text: str) -> None:
    """Raise ValueError, with what was expected, unless `text` is a duration, which may be zero."""
    if milliseconds(text) > milliseconds(LONGEST_DURATION):
        raise ValueError(f"a duration of at most {LONGEST_DURATION}, 8,000 years")


def check_number(reports: int | None) -> None:
    """Raise ValueError, with what was expected, unless `reports` is a valid number, or None."""
    if reports is not None and reports < 1:
        raise ValueError("a number of reports, 1 or more")


def check_options(
    options: Mapping[str, Any], mechanism: type[Mechanism], parameters: Mapping[str, Any]
) -> None:
    """Raise ValueError, with what was expected, for an option that a mechanism cannot have.

    `options`: the definition's options, of which names and types are checked; `mechanism`: the
    class of the mechanism; `parameters`: the parameters that the domain sets.
    """
    names = inspect.signature(mechanism.__init__).parameters.keys()
    allowed = names - {*_IMPLICIT_PARAMETERS, *parameters}
    for name, value in options.items():
        if name not in allowed:
            raise ValueError(f"no option {name!r}: {meant(name, allowed)}")
        try:
            msgspec.convert(value, _parameter_types(mechanism.__init__)[name])
        except msgspec.ValidationError as error:
            why = readable(error).replace(" | null", "")
            if isinstance(value, int | float) and why.startswith("str"):
                why = f'text, as in {name} = "{value}"'  # numbers in text are exact decimals
            raise ValueError(f"{name} = {value!r}: expected {why}") from None


def read_table(table: Mapping[str, Any], built: type[Built]) -> Built:
    """Return an object of a dataclass whose fields are the keys of a definition's table.

    `table`: the values by key; `built`: the dataclass. Raises ValueError with what was expected.
    """
    keys = get_type_hints(built)
    for key in table:
        if key not in keys:
            raise ValueError(f"a known key: {nearest(key, keys)}")
    try:
        return msgspec.convert(dict(table), built)
    except msgspec.ValidationError as error:
        raise ValueError(readable(error)) from None


_parameter_types = functools.cache(get_type_hints)
