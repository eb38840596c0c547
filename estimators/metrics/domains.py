"""What values a metric may have, and how they and the answers pass to and from the mechanism.

A mechanism works in units of its own: a mean in [-1, 1], a category as an index, a vector in the
unit ball.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from estimators.errors import DefinitionError, meant
from estimators.estimate import Estimate

LARGEST_DIMENSION = 2**14
OPEN = "open"
"""In place of categories: any string may be reported, and asked for."""

Keys = NDArray[Any]


class Domain(Protocol):
    """The values of a metric."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What the numbers of an estimate are called; empty where there is only one."""

    @property
    def parameters(self) -> dict[str, Any]:
        """What the mechanism has to know."""

    @property
    def unit(self) -> tuple[float, float]:
        """The value that a mechanism's 0 stands for, and the length of its 1."""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest that a number of an estimate can truly be."""

    def own_units(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values in the mechanism's units; ValueError names one that cannot be used."""

    def asked(self, labels: Sequence[str | int] | None) -> tuple[tuple[str, ...], Keys | None]:
        """Return what an answer's numbers are called, and the same in the mechanism's units.

        Parameters
        ----------
        labels : sequence of str or int, or None
            The categories that are asked for; None for all there are.
        """

    def restored(self, estimate: Estimate) -> Estimate:
        """Return a mechanism's estimate in the metric's unit."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`; others are clipped."""

    metric: str
    low: float
    high: float
    labels: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, int]:
        """Nothing: every interval is [-1, 1] to a mechanism."""
        return {}

    @property
    def unit(self) -> tuple[float, float]:
        """The middle of the interval, and half its width."""
        return (self.low + self.high) / 2, (self.high - self.low) / 2

    @property
    def ends(self) -> tuple[float, float]:
        """The interval's."""
        return self.low, self.high

    def own_units(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return numbers in [-1, 1]."""
        numbers = values.astype(np.float64)
        if np.isnan(numbers).any():
            raise ValueError(f"a value of {self.metric!r} is not a number: leave it out")
        np.clip(numbers, self.low, self.high, out=numbers)
        numbers -= self.low
        numbers *= 2 / (self.high - self.low)
        numbers -= 1
        return numbers

    def asked(self, labels: Sequence[str | int] | None) -> tuple[tuple[str, ...], Keys | None]:
        """Return nothing: there is one number."""
        return _whole(self.metric, labels, self.labels)

    def restored(self, estimate: Estimate) -> Estimate:
        """Return an estimate in [low, high]."""
        return estimate.rescaled(*self.unit)


@dataclasses.dataclass(frozen=True)
class Ball:
    """Vectors of length up to `radius`; longer ones are shortened."""

    metric: str
    labels: tuple[str, ...]
    radius: float

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return len(self.labels)

    @property
    def parameters(self) -> dict[str, int]:
        """The dimension."""
        return {"dimension": self.dimension}

    @property
    def unit(self) -> tuple[float, float]:
        """Zero, and the radius."""
        return 0.0, self.radius

    @property
    def ends(self) -> tuple[float, float]:
        """The ball's in each direction."""
        return -self.radius, self.radius

    def own_units(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return rows in the unit ball."""
        vectors = values.astype(np.float64)
        if not np.isfinite(vectors).all():
            raise ValueError(f"a value of {self.metric!r} is not finite: leave it out")
        if vectors.ndim != 2 or not vectors.size:
            return vectors
        # by its largest coordinate first: squares must not overflow
        scale = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), self.radius)
        vectors = vectors / scale
        length = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
        too_long = (scale > self.radius) | (length > 1)
        shortened: NDArray[Any] = np.where(too_long, vectors / np.maximum(length, 0.5), vectors)
        return shortened

    def asked(self, labels: Sequence[str | int] | None) -> tuple[tuple[str, ...], Keys | None]:
        """Return the coordinates, all of them."""
        return _whole(self.metric, labels, self.labels)

    def restored(self, estimate: Estimate) -> Estimate:
        """Return an estimate in the ball."""
        return estimate.rescaled(*self.unit)


@dataclasses.dataclass(frozen=True)
class Categories:
    """One of k categories, by name or by index."""

    metric: str
    labels: tuple[str, ...]
    unit = ends = (0.0, 1.0)

    @property
    def parameters(self) -> dict[str, int]:
        """The number of categories."""
        return {"categories": len(self.labels)}

    def own_units(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return indices, dtype int64."""
        if values.dtype.kind in "iu":
            outside = (values < 0) | (values >= len(self.labels))
            if outside.any():
                raise ValueError(
                    f"category {values[outside].ravel()[0]} of {self.metric!r}: "
                    f"expected 0 to {len(self.labels) - 1}"
                )
            return values.astype(np.int64)
        try:
            indices = [self._indices[name] for name in values.tolist()]
        except KeyError as error:
            name = error.args[0]
            raise ValueError(
                f"category {name!r} of {self.metric!r}: {meant(str(name), self.labels)}"
            ) from None
        return np.asarray(indices, dtype=np.int64)

    def asked(self, labels: Sequence[str | int] | None) -> tuple[tuple[str, ...], Keys | None]:
        """Return categories by name or index: their names and their indices."""
        if labels is None:
            return self.labels, None
        _each_once(self.metric, labels)
        indices = self.own_units(np.asarray(labels))
        return tuple(self.labels[index] for index in indices.tolist()), indices

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.labels)}

    def restored(self, estimate: Estimate) -> Estimate:
        """Return the estimate as it is: frequencies have no unit."""
        return estimate


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Any string: nobody lists them.

    To a mechanism a string is a key, the first 64 bits of its BLAKE2b hash. Two strings have the
    same key with probability 2^-64; they are then one value.

    Parameters
    ----------
    metric : str
    labels : tuple of str
        What an estimate is about where nothing else is asked for.
    """

    metric: str
    labels: tuple[str, ...]
    unit = ends = (0.0, 1.0)

    @property
    def parameters(self) -> dict[str, Any]:
        """No number of categories."""
        return {"categories": None}

    def own_units(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return keys, dtype uint64."""
        strings = values.tolist()
        if strange := [text for text in strings if not isinstance(text, str)]:
            raise ValueError(f"value {strange[0]!r} of {self.metric!r}: expected a string")
        return np.array([string_key(text) for text in strings], dtype=np.uint64)

    def asked(self, labels: Sequence[str | int] | None) -> tuple[tuple[str, ...], Keys | None]:
        """Return strings and their keys."""
        if labels is None:
            return self.labels, self._watched
        _each_once(self.metric, labels)
        keys = self.own_units(np.asarray(labels, dtype=object))
        return tuple(map(str, labels)), keys

    @functools.cached_property
    def _watched(self) -> Keys:
        return self.own_units(np.asarray(self.labels, dtype=object))

    def restored(self, estimate: Estimate) -> Estimate:
        """Return the estimate as it is: frequencies have no unit."""
        return estimate


def string_key(text: str) -> int:
    """Return the key of a string: the first 64 bits of the BLAKE2b hash of its UTF-8 bytes.

    Examples
    --------
    >>> hex(string_key("N725MQ"))
    '0x11908ece61f00b3b'
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _whole(
    metric: str, labels: Sequence[str | int] | None, known: tuple[str, ...]
) -> tuple[tuple[str, ...], None]:
    if labels is not None:
        raise ValueError(f"categories = {list(labels)}: metric {metric!r} has none")
    return known, None


def _each_once(metric: str, labels: Sequence[str | int]) -> None:
    if isinstance(labels, str) or len(set(labels)) != len(labels):
        raise ValueError(f"categories = {labels!r} of {metric!r}: expected a list, each once")


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(index) for index in range(count))


Refuse = Callable[[str, str], DefinitionError]


def _interval(metric: str, given: Mapping[str, Any], refuse: Refuse) -> Domain:
    ends: Sequence[float] | None = given["range"]
    if ends is None or len(ends) != 2:
        raise refuse("range", "two numbers: the lowest and the highest value")
    low, high = ends
    if not (math.isfinite(high - low) and low < high):
        raise refuse("range", "two finite numbers, the lower one first")
    return Interval(metric, low, high)


def _ball(metric: str, given: Mapping[str, Any], refuse: Refuse) -> Domain:
    dimension, names, radius = given["dimension"], given["coordinates"], given["radius"]
    if names is None:
        if dimension is None or not 1 <= dimension <= LARGEST_DIMENSION:
            raise refuse("dimension", f"a number of coordinates, 1 to {LARGEST_DIMENSION}")
        names = _numbered(dimension)
    elif len(set(names)) != len(names) or not 1 <= len(names) <= LARGEST_DIMENSION:
        raise refuse("coordinates", f"1 to {LARGEST_DIMENSION} names, each once")
    elif dimension is not None and dimension != len(names):
        raise refuse("dimension", f"{len(names)}, as there are coordinates, or nothing")
    if radius is None or not (radius > 0 and math.isfinite(radius)):
        raise refuse("radius", "the largest length of a vector, above zero and finite")
    return Ball(metric, tuple(names), radius)


def _categories(metric: str, given: Mapping[str, Any], refuse: Refuse) -> Domain:
    named, watched = given["categories"], given["watch"]
    if named == OPEN:
        if watched is not None and len(set(watched)) != len(watched):
            raise refuse("watch", "each string once")
        return Vocabulary(metric, tuple(watched or ()))
    if watched is not None:
        raise refuse("watch", f"no watch unless categories = {OPEN!r}")
    if isinstance(named, str):
        raise refuse("categories", f"names, their number, or {OPEN!r}")
    names = _numbered(named) if isinstance(named, int) else tuple(named or ())
    if len(names) < 2:
        raise refuse("categories", "two or more categories: names, or their number")
    if len(set(names)) != len(names):
        raise refuse("categories", "each category once")
    return Categories(metric, names)


KINDS: dict[str, Callable[[str, Mapping[str, Any], Refuse], Domain]] = {
    "mean": _interval,
    "vector_mean": _ball,
    "frequency": _categories,
    "minimum": _interval,
    "maximum": _interval,
}
"""What is estimated, and the domain of its values."""

KEYS = {
    "range": ("mean", "minimum", "maximum"),
    "categories": ("frequency",),
    "watch": ("frequency",),
    "dimension": ("vector_mean",),
    "coordinates": ("vector_mean",),
    "radius": ("vector_mean",),
}
"""The keys of a definition that describe a domain, and the kinds they belong to."""


def domain_of(metric: str, kind: str, given: Mapping[str, Any]) -> Domain:
    """Return the domain that a definition describes.

    Parameters
    ----------
    metric, kind : str
    given : mapping
        The values of :data:`KEYS`, None where there is none.

    Raises
    ------
    DefinitionError
        Naming the key, the value and what was expected.
    """

    def refuse(key: str, expected: str) -> DefinitionError:
        return DefinitionError(f"{metric}.{key}", given[key], expected)

    for key, kinds in KEYS.items():
        if kind not in kinds and given[key] is not None:
            raise refuse(key, f"no {key} for kind {kind!r}")
    return KINDS[kind](metric, given, refuse)
