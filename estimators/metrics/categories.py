"""Domains of categories: named ones, and the open vocabulary of all strings."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from estimators.errors import meant
from estimators.estimate import Estimate
from estimators.metrics.domains import Domain, Keys, numbered

OPEN = "open"
"""In place of categories: any string may be reported, and asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Categories(Domain):
    """One of k categories, by name or by index.

    `categories` are their names, or k for "0" to "k - 1". ``"open"`` gives a :class:`Vocabulary`.
    """

    names: ClassVar[str] = "categories"

    categories: int | str | Sequence[str] = dataclasses.field(
        metadata={"expected": "two or more categories: names, or their number"}
    )
    watch: Sequence[str] | None = None
    unit = ends = (0.0, 1.0)

    @classmethod
    def of(cls, metric: str, keys: Mapping[str, Any]) -> Categories:
        """Return the domain of a definition: these categories, or an open vocabulary."""
        domain = Vocabulary if keys.get("categories") == OPEN else Categories
        return domain(metric=metric, **keys)

    def __post_init__(self) -> None:
        """Check the categories."""
        given = self.categories
        if self.watch is not None:
            self.refuse("watch", f"no watch unless categories = {OPEN!r}")
        if isinstance(given, str):
            self.refuse("categories", f"names, their number, or {OPEN!r}")
        names = numbered(given) if isinstance(given, int) else given
        if len(names) < 2:
            self.refuse("categories", "two or more categories: names, or their number")
        if len(set(names)) != len(names):
            self.refuse("categories", "each category once")
        self.set_labels(names)

    @property
    def meaning(self) -> dict[str, Any]:
        """The categories' names."""
        return {"categories": list(self.labels)}

    @property
    def opposite(self) -> tuple[str, str]:
        """The first category and the last."""
        return self.labels[0], self.labels[-1]

    @property
    def parameters(self) -> dict[str, int]:
        """The number of categories."""
        return {"categories": len(self.labels)}

    def to_unit(self, values: NDArray[Any]) -> NDArray[Any]:
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

    def _named(self, labels: Sequence[str | float]) -> tuple[tuple[str, ...], Keys]:
        """Return categories by name or index: their names and their indices."""
        indices = self.to_unit(np.asarray(labels))
        return tuple(self.labels[index] for index in indices.tolist()), indices

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.labels)}

    def from_unit(self, estimate: Estimate) -> Estimate:
        """Return the estimate unchanged, because frequencies have no unit."""
        return estimate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary(Categories):
    """Any string, without a list.

    For a mechanism a string is a key, the first 64 bits of its BLAKE2b hash. Two strings have the
    same key with probability 2^-64; they are then one value. By default an estimate is for the
    strings on `watch`.
    """

    def __post_init__(self) -> None:
        """Reject a string that is on watch twice."""
        if self.watch is not None and len(set(self.watch)) != len(self.watch):
            self.refuse("watch", "each string once")
        self.set_labels(self.watch or ())

    @property
    def meaning(self) -> dict[str, Any]:
        """The open vocabulary; the strings on watch do not affect reports."""
        return {"categories": OPEN}

    @property
    def opposite(self) -> tuple[str, str]:
        """Two strings."""
        first, second = (*self.labels, "one string", "another string")[:2]
        return first, second

    @property
    def parameters(self) -> dict[str, Any]:
        """No number of categories."""
        return {"categories": None}

    def to_unit(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return keys, dtype uint64."""
        strings = values.tolist()
        if strange := [text for text in strings if not isinstance(text, str)]:
            raise ValueError(f"value {strange[0]!r} of {self.metric!r}: expected a string")
        return np.array([string_key(text) for text in strings], dtype=np.uint64)

    def _named(self, labels: Sequence[str | float]) -> tuple[tuple[str, ...], Keys]:
        """Return strings and their keys."""
        keys = self.to_unit(np.asarray(labels, dtype=object))
        return tuple(map(str, labels)), keys

    @functools.cached_property
    def _of_all(self) -> Keys:
        return self._named(self.labels)[1]


def string_key(text: str) -> int:
    """Return the key of a string: the first 64 bits of the BLAKE2b hash of its UTF-8 bytes.

    Examples
    --------
    >>> hex(string_key("N725MQ"))
    '0x11908ece61f00b3b'
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
