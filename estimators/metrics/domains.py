"""The domains of metrics: their values, converted to and from the mechanism's units.

A mechanism has its own units: a mean in [-1, 1], a category as an index, a vector in the unit ball.
The fields of a domain's class are its keys in a definition.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
from abc import ABC, abstractmethod
from array import ArrayType
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from estimators.errors import DefinitionError, meant, shortened
from estimators.estimate import Array, Estimate, Floats
from estimators.limits import MOST_COORDINATES

Values: TypeAlias = ArrayLike | Mapping[str, str] | Sequence[str | Mapping[str, str]]
"""Values of an application: numbers, categories, vectors, or mappings from axes to values."""

Keys = Array
MOST_DIMENSIONS = 64
"""The most dimensions of a numpy array, which takes what is nested deeper as objects."""
PLAIN_TYPES = frozenset({float, int, bool, str, bytes, type(None)})
"""Types of single values that numpy never takes for an array."""
TRUTH_TYPES = (bool, np.bool_)
EXPECTED_RANGE = "two numbers: the lowest and the highest value"
EXPECTED_RADIUS = "the largest length of a vector, above zero and finite"
LEAVE_OUT = "; leave out what was not measured"


def as_numbers(values: Array, metric: str) -> Floats:
    """Return values as a new array of float64.

    Raises ValueError, with the metric's name, if a value is not a number.

    >>> as_numbers(np.array([12, "fast"], dtype=object), "delay")
    Traceback (most recent call last):
    ValueError: value 'fast' of 'delay': expected a number; leave out what was not measured
    """
    unchecked = [] if values.dtype.kind in "biuf" else values.ravel().tolist()
    invalid = [number for number in unchecked if not isinstance(number, float | int)]
    if values.dtype.kind in "mM":  # times, which would lose their unit as integers
        invalid = [*values.ravel()[:1]]
    if not invalid:
        try:
            numbers = values.astype(np.float64)
        except OverflowError:  # an integer that is too large for a float
            invalid = [max(unchecked, key=abs)]
        else:
            invalid = numbers[np.isnan(numbers)].tolist()
    if invalid:
        message = f"value {shortened(invalid[0])} of {metric!r}: expected a number"
        remedy = conversion(invalid[0])
        if isinstance(invalid[0], datetime.timedelta | np.timedelta64):
            remedy = ", as value / datetime.timedelta(seconds=1) makes"
        raise ValueError(f"{message}{remedy}{LEAVE_OUT}")
    return numbers


def conversion(value: object) -> str:
    """Return advice on converting an object to a number or a list; "" if there is none."""
    if isinstance(value, str | bytes):
        with contextlib.suppress(ValueError):
            return ", as float() makes" * math.isfinite(float(value))
        return ""
    if isinstance(value, Mapping) and value:
        return " or a list of them, as list(value.values()) makes"
    if hasattr(value, "as_py"):  # a scalar of pyarrow
        return ", as .as_py() makes"
    if isinstance(value, Real | Decimal) and not isinstance(value, float | int):
        return ", as float() makes"
    return listing(value)


def listing(value: object) -> str:
    """Return advice on turning a collection into a list, or bytes into text; "" for others."""
    if isinstance(value, bytes):
        return ", as .decode() makes"
    is_many = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | list)
    return " or a list of them, as list() makes" if is_many else ""


def as_given(values: object, lossy: str = "US") -> Array:
    """Return values as an array; an array of objects if numpy would convert some of the values.

    `lossy`: the kinds of arrays to which numpy would convert some values of a list.

    >>> as_given([1, "x"]), as_given([1, True], lossy="iu")
    (array([1, 'x'], dtype=object), array([1, True], dtype=object))
    """
    array = np.asarray(values)
    is_converted = array.dtype.kind in lossy and not hasattr(values, "__array__")
    return np.asarray(values, dtype=object) if is_converted else array


def refuse_misread(values: object, label: str, depth: int = 0, *, truths: bool = True) -> None:
    """Raise ValueError for values that numpy would misread: masked ones, and bytes as numbers.

    Parameters
    ----------
    values : object
        The application's value, array, or sequence of these, which may be nested.
    label : str
        What the values are, for the message.
    depth : int
        How many sequences contain `values`, each inside the next.
    truths : bool
        Whether a list may contain True and False, which numpy reads as 1 and 0.
    """
    is_array = hasattr(values, "__array__")
    whole = np.asanyarray(values) if is_array and not isinstance(values, np.generic) else values
    mask = getattr(whole, "mask", None)
    if isinstance(mask, np.ndarray | np.bool_) and mask.any():
        message = f"{label}: {np.count_nonzero(mask)} of {mask.size} are masked"
        raise ValueError(f"{message}: leave out what was not measured (compressed() does)")
    is_text = isinstance(values, str | bytes)
    if not (is_array or is_text or isinstance(values, ArrayType | np.generic)):
        with contextlib.suppress(TypeError):  # the object has no buffer
            if memoryview(values).format[-1] in "bBc":  # type: ignore[arg-type]
                raise ValueError(
                    f"{label}: a {type(values).__name__} of bytes: expected numbers or texts, as "
                    "list(), .decode() or .as_py() makes"
                )
    is_sequence = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if not is_sequence or is_array or depth == MOST_DIMENSIONS or is_text:
        return
    types = {*map(type, values)} if isinstance(values, Iterable) else set()
    if not (truths or types.isdisjoint(TRUTH_TYPES)):
        raise ValueError(f"{label}: True or False is among them: expected no truth value")
    if not PLAIN_TYPES.issuperset(types):
        for part in values:  # type: ignore[attr-defined]
            refuse_misread(part, label, depth + 1, truths=truths)


def titles_of(values: object) -> list[str]:
    """Return the titles of a table's columns, of a series' index, or of a named tuple's fields.

    >>> from typing import NamedTuple
    >>> titles_of([NamedTuple("Point", [("y", int), ("x", int)])(1, 2)]), titles_of([1, 2])
    (['y', 'x'], [])
    """
    for name in ("column_names", "columns", "index", "_fields"):
        titles = getattr(values, name, None)
        if titles is not None and not callable(titles):
            return [*map(str, titles)]
    is_list = isinstance(values, list | tuple) and len(values) > 0
    return titles_of(values[0]) if is_list else []  # type: ignore[index]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Domain(ABC):
    """The values of a metric.

    The fields of a subclass are keys of a definition. The metadata of a field without a default
    says what is `expected`. `metric`: the name of the metric, for messages. `labels`: the names of
    an estimate's numbers; empty if there is only one number; `names`: what answers call the labels:
    ``"categories"``, ``"coordinates"`` or ``"quantiles"``; empty if there is only one number.
    """

    names: ClassVar[str] = ""
    of_numbers: ClassVar[bool] = False
    """Whether a value is a single number."""
    lossy_kinds: ClassVar[str] = "US"
    """The kinds of numpy's arrays that lose the types of a list's values."""

    metric: str = ""
    labels: tuple[str, ...] = dataclasses.field(default=(), init=False)

    @classmethod
    def of(cls, metric: str, keys: Mapping[str, Any]) -> Self:
        """Return the domain that a definition describes.

        Raises DefinitionError, with the key, the value and what was expected.
        """
        return cls(metric=metric, **keys)

    @classmethod
    def implied(cls, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys and values that a definition implies; its own choices override them."""
        return {}

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The parameters that the domain passes to the mechanism, by name."""

    @property
    @abstractmethod
    def unit(self) -> tuple[float, float]:
        """The offset and the length of the mechanism's unit, both in the metric's unit."""

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """The least and the largest possible true value of an estimate's number."""

    @property
    @abstractmethod
    def meaning(self) -> dict[str, Any]:
        """The domain's part of the canonical form of a definition, as plain values for JSON."""

    @property
    @abstractmethod
    def opposite(self) -> tuple[Any, Any]:
        """Two values for which the ratio of a report's probabilities is the largest possible."""

    @abstractmethod
    def to_unit(self, values: Array) -> Array:
        """Return values in the mechanism's units; raise ValueError if a value is invalid."""

    def as_array(self, values: Values) -> Array:
        """Return all of an application's values as an array.

        Raises ValueError if some values are masked, or if rows differ in length.
        """
        refuse_misread(values, f"values of {self.metric!r}")
        try:
            array = as_given(values, self.lossy_kinds)
        except ValueError:
            self._refuse_shape(f"values {shortened(values)} of")
        if array.dtype.names:
            raise ValueError(
                f"values of {self.metric!r}: records of {', '.join(array.dtype.names)}: expected "
                f"one field, as values[{array.dtype.names[0]!r}] is, or rows of numbers, as "
                "numpy.lib.recfunctions.structured_to_unstructured makes"
            )
        return array

    def _refuse_shape(self, values: str) -> NoReturn:
        dimension = getattr(self, "dimension", None)
        expected = "one value or a flat array of them"
        if dimension is not None:
            expected = f"one vector of {dimension} numbers or rows of them"
        raise ValueError(f"{values} {self.metric!r}: expected {expected}") from None

    def rows(self, value: Values) -> Array:
        """Return an application's value or values as an array with an item or row for each value.

        Raises ValueError if the shape is not that of the metric's values, or if the array is not of
        numbers where the metric needs numbers.
        """
        values = self.as_array(value)
        dimension = getattr(self, "dimension", None)
        is_fitting = values.ndim < 2 if dimension is None else values.shape[-1:] == (dimension,)
        if not is_fitting or values.ndim > 2:
            shape = f"values of shape {values.shape} for"
            self._refuse_shape(shape if values.ndim else f"value {shortened(value)} of")
        titles = titles_of(value)
        if dimension is not None and titles != [*self.labels] and {*titles} == {*self.labels}:
            raise ValueError(
                f"columns {shortened(titles)} for {self.metric!r}: expected the order of its "
                f"coordinates, {shortened([*self.labels])}"
            )
        if self.of_numbers or dimension is not None:
            values = as_numbers(values, self.metric)
        return values.reshape(-1 if dimension is None else (-1, dimension))

    def reported(self, values: Array) -> Array:
        """Return the values that a device randomizes; only vocabularies replace some."""
        return values

    def clipped(self, values: Array) -> Array:
        """Return values as a device reports them: within the domain, in the metric's unit."""
        offset, scale = self.unit
        return offset + scale * self.to_unit(values)

    def from_unit(self, estimate: Estimate) -> Estimate:
        """Return a mechanism's estimate in the metric's unit."""
        return estimate.rescaled(*self.unit)

    def select(self, labels: Sequence[str | float] | None) -> tuple[tuple[str, ...], Keys | None]:
        """Return the names of an answer's numbers, and the mechanism's indices or keys of them.

        `labels`: the requested categories, or quantiles of a distribution; None for the default
        numbers. Raises ValueError if a label is not in the domain, or if the domain has no labels.
        """
        if labels is None:
            return self.labels, self._default_keys
        if self.names != "categories":
            raise ValueError(f"categories = {list(labels)}: metric {self.metric!r} has none")
        if isinstance(labels, str) or len(set(labels)) != len(labels):
            raise ValueError(
                f"categories = {labels!r} of {self.metric!r}: expected a list, each once"
            )
        return self._named(labels)

    def work_of(self, labels: Sequence[str]) -> int:
        """Return the work of estimating the numbers with these labels: 1 for a plain number."""
        return len(labels)

    @property
    def _default_keys(self) -> Keys | None:
        """The keys of the numbers in an answer by default; None for all, which need no keys."""
        return None

    def _named(self, labels: Sequence[str | float]) -> tuple[tuple[str, ...], Keys]:
        """Return the names of labels, and their indices or keys; raise ValueError if unknown."""
        if unknown := [label for label in labels if label not in self.labels]:
            hint = meant(str(unknown[0]), self.labels)
            raise ValueError(f"category {unknown[0]!r} of {self.metric!r}: {hint}")
        return tuple(map(str, labels)), np.array([self.labels.index(str(x)) for x in labels])

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise DefinitionError for the value of a `key`, with what was `expected`."""
        raise DefinitionError(f"{self.metric}.{key}", getattr(self, key), expected)

    def set_labels(self, labels: Sequence[str]) -> None:
        """Set the labels of this frozen object, for `__post_init__` of a subclass."""
        object.__setattr__(self, "labels", tuple(labels))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueRange(Domain):
    """Numbers in `range`; a device clips other numbers to it."""

    of_numbers: ClassVar[bool] = True

    range: Sequence[float] = dataclasses.field(metadata={"expected": EXPECTED_RANGE})

    def __post_init__(self) -> None:
        if len(self.range) != 2:
            self.refuse("range", EXPECTED_RANGE)
        low, high = self.range
        if not (math.isfinite(high - low) and low < high):
            self.refuse("range", "two finite numbers, the lower one first")
        if not math.isfinite(2 / (high - low)):  # the ends are too near: 0 * infinity is NaN
            self.refuse("range", "two numbers that are at least 2e-308 apart")

    @property
    def parameters(self) -> dict[str, int]:
        """No parameters, because a mechanism sees every interval as [-1, 1]."""
        return {}

    @property
    def unit(self) -> tuple[float, float]:
        """The middle of the interval, and half its width."""
        low, high = self.range
        return (low + high) / 2, (high - low) / 2

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval."""
        return self.range[0], self.range[1]

    @property
    def meaning(self) -> dict[str, Any]:
        """The two ends of the interval."""
        return {"range": [float(x) for x in self.range]}

    @property
    def opposite(self) -> tuple[float, float]:
        """The two ends of the interval, the higher one first."""
        return self.range[1], self.range[0]

    def clipped(self, values: Array) -> Array:
        """Return numbers, clipped to the interval."""
        return np.clip(values, *self.ends)

    def to_unit(self, values: Array) -> Array:
        """Return numbers clipped to the range and mapped to [-1, 1]."""
        numbers = as_numbers(values, self.metric)
        low, high = self.range
        np.clip(numbers, low, high, out=numbers)
        numbers -= low
        numbers *= 2 / (high - low)
        numbers -= 1
        return numbers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ball(Domain):
    """Vectors of length at most `radius`; longer vectors are shortened.

    `coordinates`: the names of the coordinates; if only their number `dimension` is given, the
    names are "0" to "`dimension` - 1".
    """

    names: ClassVar[str] = "coordinates"

    dimension: int | None = None
    coordinates: Sequence[str] | None = None
    radius: float = dataclasses.field(metadata={"expected": EXPECTED_RADIUS})

    def __post_init__(self) -> None:
        dimension, names = self.dimension, self.coordinates
        if names is None:
            if dimension is None or not 1 <= dimension <= MOST_COORDINATES:
                self.refuse("dimension", f"a number of coordinates, 1 to {MOST_COORDINATES}")
            names = numbered(dimension)
        elif len(set(names)) != len(names) or not 1 <= len(names) <= MOST_COORDINATES:
            self.refuse("coordinates", f"1 to {MOST_COORDINATES} names, each once")
        elif dimension is not None and dimension != len(names):
            self.refuse("dimension", f"{len(names)}, as there are coordinates, or nothing")
        if not (self.radius > 0 and math.isfinite(self.radius)):
            self.refuse("radius", EXPECTED_RADIUS)
        self.set_labels(names)
        object.__setattr__(self, "dimension", len(names))

    @property
    def parameters(self) -> dict[str, int]:
        """The dimension."""
        return {"dimension": len(self.labels)}

    @property
    def unit(self) -> tuple[float, float]:
        """Zero, and the radius."""
        return 0.0, self.radius

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value of a coordinate: minus the radius, and the radius."""
        return -self.radius, self.radius

    @property
    def meaning(self) -> dict[str, Any]:
        """The coordinates, and the radius."""
        return {"coordinates": list(self.labels), "radius": float(self.radius)}

    @property
    def opposite(self) -> tuple[Floats, Floats]:
        """Vectors of full length in opposite directions."""
        size = len(self.labels)
        vector = np.full(size, self.radius / np.sqrt(size))
        return vector, -vector

    def to_unit(self, values: Array) -> Array:
        """Return vectors in the unit ball, one in each row; longer vectors are shortened.

        Raises ValueError if a number is not finite.
        """
        vectors = as_numbers(values, self.metric)
        if not np.isfinite(vectors).all():
            odd = vectors[~np.isfinite(vectors)][0]
            raise ValueError(f"value {odd} of {self.metric!r}: expected finite numbers{LEAVE_OUT}")
        if vectors.ndim != 2 or not vectors.size:
            return vectors
        # first divided by the largest coordinate, so that squares do not overflow
        scale = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), self.radius)
        vectors = vectors / scale
        length = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
        too_long = (scale > self.radius) | (length > 1)
        return np.asarray(np.where(too_long, vectors / np.maximum(length, 0.5), vectors))


def numbered(count: int) -> tuple[str, ...]:
    """Return the names "0" to "`count` - 1", for categories or coordinates without names."""
    return tuple(str(index) for index in range(count))
