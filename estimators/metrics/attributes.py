"""Attributes: public properties of devices, by which a metric's reports are also summed."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from estimators.errors import ReportError, nearest
from estimators.estimate import Integers
from estimators.limits import MOST_ATTRIBUTES
from estimators.metrics.validation import check_name

OTHER_VALUE: Final = "other"
"""On the wire and in answers: the value of an attribute whose sent value is not declared."""
NO_VALUE: Final = "none"
"""In answers: the value of an attribute that was not sent."""
MOST_BYTES = 64
"""The most bytes of an attribute's name or value."""

Codes = Integers
Attributes = tuple[tuple[str, str], ...]
"""The attributes of a batch: pairs of name and value, sorted by name."""


def check_attribute(name: str, values: Sequence[str]) -> None:
    """Raise ValueError, with what was expected, if an attribute's declaration is invalid.

    `name`: the attribute's name; `values`: its declared values.
    """
    check_name(name)
    if not values:
        raise ValueError("one value or more")
    for value in values:
        if not 1 <= len(value.encode()) <= MOST_BYTES or not value.isprintable():
            raise ValueError(f"values of 1 to {MOST_BYTES} printable bytes, found {value!r}")
        if value in (OTHER_VALUE, NO_VALUE):
            raise ValueError(
                f"values besides {OTHER_VALUE!r} and {NO_VALUE!r}, which every attribute has"
            )
    if len(set(values)) < len(values):
        raise ValueError("every value once")


@dataclasses.dataclass(frozen=True)
class Slicing:
    """How a metric's reports are divided into slices: a slice has one value for each attribute.

    The code of a slice is the number in mixed radix whose digits are the indices of its values; the
    last attribute has the lowest digit. Indices go to declared values, then `other`, then `none`.

    Parameters
    ----------
    attributes : mapping of str to sequence of str
        The declared values of each attribute, in the order of the metric's `by`.
    pane_ms : int
        The length of a slice's panes in event time, in ms.

    Examples
    --------
    >>> slicing = Slicing({"country": ("DE", "FR"), "version": ("1",)}, 3_600_000)
    >>> slicing.size, slicing.code({"country": "FR"}), slicing.code({"country": "GB"})
    (12, 5, 8)
    >>> slicing.slice(5), slicing.slice(6)
    ({'country': 'FR', 'version': None}, {'country': 'other', 'version': '1'})
    """

    attributes: Mapping[str, Sequence[str]]
    pane_ms: int

    @functools.cached_property
    def value_counts(self) -> tuple[int, ...]:
        """How many values each attribute has, including `other` and `none`."""
        return tuple(len(values) + 2 for values in self.attributes.values())

    @property
    def size(self) -> int:
        """The number of slices."""
        return math.prod(self.value_counts)

    @property
    def bits(self) -> float:
        """The most bits that attributes reveal about a device: log2 of the number of slices."""
        return math.log2(self.size)

    @functools.cached_property
    def key(self) -> str:
        """A hash of the attributes, their values and `pane_ms`: 32 bits, in hexadecimal."""
        meaning = [[name, list(values)] for name, values in self.attributes.items()]
        text = json.dumps([meaning, self.pane_ms], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @functools.cached_property
    def code_cache(self) -> dict[bytes, int]:
        """A cache that readers of batches fill: from a batch's encoded attributes to the code."""
        return {}

    @functools.cached_property
    def _indices(self) -> dict[str, dict[str, int]]:
        return {
            name: {value: index for index, value in enumerate(values)}
            for name, values in self.attributes.items()
        }

    def code(self, attributes: Mapping[str, str]) -> int:
        """Return the code of a device's slice.

        `attributes`: the device's values by name; names that the metric does not use are ignored.
        """
        code = 0
        for (name, indices), size in zip(self._indices.items(), self.value_counts, strict=True):
            value = attributes.get(name)
            index = size - 1 if value is None else indices.get(value, size - 2)
            code = code * size + index
        return code

    def slice(self, code: int) -> dict[str, str | None]:
        """Return the value of each attribute in a slice; None if the attribute was not sent."""
        values: dict[str, str | None] = {}
        for name, size in reversed([*zip(self.attributes, self.value_counts, strict=True)]):
            code, index = divmod(code, size)
            values[name] = self.words(name)[index]
        return dict(reversed(values.items()))

    def words(self, name: str) -> tuple[str | None, ...]:
        """Return an attribute's values in the order of their indices; the last one is None."""
        return (*self.attributes[name], OTHER_VALUE, None)

    def digits(self, codes: Codes) -> dict[str, Codes]:
        """Return for each attribute the indices of its values in n slices, shape (n,)."""
        digits = dict(zip(self.attributes, np.unravel_index(codes, self.value_counts), strict=True))
        return {name: digit.astype(np.int64) for name, digit in digits.items()}

    def coarsen(self, attributes: Mapping[str, str]) -> Attributes:
        """Return a device's attributes, sorted by name, with `other` for undeclared values.

        Attributes that the metric does not use are omitted.
        """
        return tuple(
            (name, attributes[name] if attributes[name] in self._indices[name] else OTHER_VALUE)
            for name in sorted(self.attributes)
            if name in attributes
        )


def sent_attributes(slicing: Slicing | None, attributes: Mapping[str, str] | None) -> Attributes:
    """Check a device's attributes, and return the attributes that it sends.

    `slicing`: the metric's slices; None if it has none, so nothing is sent; `attributes`: the
    device's values by name, declared or not. Raises ValueError, with the value, if an attribute is
    not text or is too long, or if there are too many.

    >>> slicing = Slicing({"version": ("1",), "country": ("DE", "FR")}, 3_600_000)
    >>> sent_attributes(slicing, {"version": "1", "country": "LI", "device": "phone"})
    (('country', 'other'), ('version', '1'))
    >>> sent_attributes(None, {"country": "DE"})
    ()
    """
    device_values = {} if attributes is None else attributes
    if not isinstance(device_values, Mapping):
        raise ValueError(
            f"attributes = {device_values!r}: expected values by name, {{'country': 'DE'}}"
        )
    if len(device_values) > MOST_ATTRIBUTES:
        raise ValueError(f"{len(device_values)} attributes: expected {MOST_ATTRIBUTES} at most")
    for name, value in device_values.items():
        for text in (name, value):
            if not isinstance(text, str):
                raise ValueError(
                    f"attribute {name!r} = {value!r}: expected texts; leave out what is not known"
                )
            if len(text.encode(errors="replace")) > MOST_BYTES:
                raise ValueError(
                    f"attribute {name[:80]!r} = {value[:80]!r}: expected texts of {MOST_BYTES} "
                    "bytes at most"
                )
    return () if slicing is None else slicing.coarsen(device_values)


def check_number(attributes: int) -> None:
    """Raise ReportError("bad_attributes") if a batch has more attributes than it may have."""
    if attributes > MOST_ATTRIBUTES:
        detail = f"{attributes} attributes: expected {MOST_ATTRIBUTES} at most"
        raise ReportError("bad_attributes", detail)


def check_sent(attributes: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Check the attributes of a batch, and return them by name; `attributes`: as received.

    Raises ReportError (``bad_attributes``) for too many attributes, a repeated name, names that are
    not sorted, or a text that is too long.
    """
    check_number(len(attributes))
    for text in (text for pair in attributes for text in pair):
        if len(text.encode()) > MOST_BYTES:
            detail = f"{text[:20]!r}... of {len(text.encode())} bytes: expected {MOST_BYTES}"
            raise ReportError("bad_attributes", f"{detail} at most")
    names = [name for name, _ in attributes]
    if any(first >= second for first, second in itertools.pairwise(names)):
        raise ReportError("bad_attributes", f"{names}: expected names in order, each once")
    return dict(attributes)


def check_declared(attributes: Mapping[str, object], declared: Sequence[str]) -> None:
    """Raise ValueError if an attribute is not among the names in `declared`."""
    for name in attributes:
        if name not in declared:
            raise ValueError(f"attribute {name!r}: expected {nearest(name, declared)}")
