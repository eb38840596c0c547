"""What a metric's definition must be, so that it can be counted and explained."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, get_type_hints

import msgspec

from estimators.central import COLLECTIONS, TrueValues
from estimators.durations import milliseconds
from estimators.errors import DefinitionError, meant, nearest, readable
from estimators.extremes.search import CRITICAL, MOST_ROUNDS, SPLITS
from estimators.mechanisms import MECHANISMS, Mechanism, RandomizedResponse
from estimators.metrics.domains import KINDS, OPEN

if TYPE_CHECKING:
    from estimators.metrics.metric import Metric

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
TRUSTS = ("local", "central")
MAX_LEVELS, LEVEL_DIGITS = 255, 4
NUMBERS_OF_REPORTS = ("minimum_reports", "max_batch_reports", "max_key_reports", "round_reports")
DURATIONS = ("pane", "lateness", "retention", "round_time")
ROUND_KEYS = ("rounds", "split", "beta", "critical", "round_reports", "round_time")
"""The keys of a definition that belong to a minimum or maximum alone."""
_GIVEN = ("self", "epsilons")
"""What a mechanism takes of no definition's options."""


def check(metric: Metric) -> None:
    """Refuse a definition that could not be counted or explained.

    Raises
    ------
    DefinitionError
        Naming the key, what was found there and what was expected.
    """
    if not NAME.fullmatch(metric.name):
        _refuse(
            metric, "name", "a lower-case letter, then up to 63 lower-case letters, digits or _"
        )
    if metric.kind not in KINDS:
        _refuse(metric, "kind", nearest(str(metric.kind), KINDS))
    if metric.trust not in TRUSTS:
        _refuse(metric, "trust", nearest(str(metric.trust), TRUSTS))
    _check_mechanism(metric)
    _check_levels(metric)
    if "categories" in metric.domain.parameters:
        _check_vocabulary(metric)
    _check_times(metric)
    _check_rounds(metric)
    if metric.memoized and not metric.mechanism_class.memoizable:
        fitting = [name for name, m in MECHANISMS.items() if m.memoizable]
        _refuse(metric, "memoized", f"false, or one of the mechanisms {', '.join(fitting)}")
    for key in NUMBERS_OF_REPORTS:
        if (least := getattr(metric, key)) is not None and least < 1:
            _refuse(metric, key, "a number of reports, 1 or more")
    try:
        metric.randomizer  # noqa: B018
    except (TypeError, ValueError) as error:
        _refuse(metric, "options", f"options of {metric.mechanism_class.name}: {error}")


def check_options(
    options: Mapping[str, Any], kind: type[Mechanism], parameters: Mapping[str, Any]
) -> None:
    """Refuse an option that a kind of mechanism does not have, or that is of another type.

    Raises
    ------
    ValueError
        Naming the option, and what was expected.
    """
    own = type(kind.__new__(kind, **parameters))  # a mechanism may have a class for each kind
    known = inspect.signature(own.__init__).parameters.keys() - {*_GIVEN, *parameters}
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"no option {name!r}: {meant(name, known)}")
        try:
            msgspec.convert(value, get_type_hints(own.__init__)[name])
        except msgspec.ValidationError as error:
            why = readable(error).replace(" | null", "")
            raise ValueError(f"{name} = {value!r}: expected {why}") from None


def _refuse(metric: Metric, key: str, expected: str) -> NoReturn:
    raise DefinitionError(f"{metric.name}.{key}", getattr(metric, key), expected)


def _check_mechanism(metric: Metric) -> None:
    named = metric.mechanism
    if metric.trust == "central":
        if metric.kind not in COLLECTIONS:
            _refuse(metric, "kind", f"{' or '.join(COLLECTIONS)} where trust is central")
        if named not in ("", TrueValues.name):
            _refuse(metric, "mechanism", "none where trust is central: devices send true values")
    elif metric.has_rounds:
        if named not in ("", RandomizedResponse.name):
            expected = f"none, or {RandomizedResponse.name!r}: answers are bits"
            _refuse(metric, "mechanism", expected)
    elif named not in MECHANISMS:
        _refuse(metric, "mechanism", nearest(str(named), MECHANISMS))
    elif metric.kind not in MECHANISMS[named].kinds:
        fitting = [name for name, m in MECHANISMS.items() if metric.kind in m.kinds]
        expected = f"a mechanism for kind {metric.kind!r}: {', '.join(fitting)}"
        _refuse(metric, "mechanism", expected)


def _check_levels(metric: Metric) -> None:
    levels = metric.levels
    if not 1 <= len(levels) <= MAX_LEVELS:
        _refuse(metric, "levels", f"1 to {MAX_LEVELS} epsilons")
    for epsilon in levels:
        if not 0 < epsilon <= 64:
            _refuse(metric, "levels", f"epsilons above 0 and at most 64, found {epsilon}")
        if round(epsilon, LEVEL_DIGITS) != epsilon:
            _refuse(metric, "levels", f"at most {LEVEL_DIGITS} decimal digits, found {epsilon}")
    if any(a >= b for a, b in pairwise(levels)):
        _refuse(metric, "levels", "ascending epsilons, each once")


def _check_vocabulary(metric: Metric) -> None:
    is_open = metric.domain.parameters["categories"] is None
    if is_open and metric.trust == "central":
        _refuse(metric, "categories", "names, or their number, where trust is central")
    if is_open and not metric.mechanism_class.open_vocabulary:
        fitting = [name for name, m in MECHANISMS.items() if m.open_vocabulary]
        _refuse(metric, "mechanism", f"one for an open vocabulary: {', '.join(fitting)}")
    if not is_open and not metric.mechanism_class.closed_vocabulary:
        _refuse(metric, "categories", f"{OPEN!r} for {metric.mechanism}, which needs no list")


def _check_times(metric: Metric) -> None:
    for key in DURATIONS:
        text = getattr(metric, key)
        if text is None and key == "retention":
            continue
        try:
            length = milliseconds(text)
        except ValueError as error:
            _refuse(metric, key, str(error))
        if length == 0 and key != "lateness":
            _refuse(metric, key, "a duration above zero")


def _check_rounds(metric: Metric) -> None:
    """Refuse what only belongs to a search, and a search that could not be made."""
    if not metric.has_rounds:
        for key in ROUND_KEYS:
            if getattr(metric, key) != getattr(type(metric), key):
                expected = f"no {key} for kind {metric.kind!r}: it is not asked in rounds"
                _refuse(metric, key, expected)
        return
    if metric.memoized:
        _refuse(metric, "memoized", "false: a device answers a round once")
    for key, known in (("split", SPLITS), ("critical", CRITICAL)):
        if getattr(metric, key) not in known:
            _refuse(metric, key, nearest(str(getattr(metric, key)), known))
    if not 0 < metric.beta < 1:
        _refuse(metric, "beta", "a probability between 0 and 1")
    if metric.rounds is None or not 1 <= metric.rounds <= MOST_ROUNDS:
        _refuse(metric, "rounds", f"the number of rounds, 1 to {MOST_ROUNDS}")
