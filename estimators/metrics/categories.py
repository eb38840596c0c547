"""Domains of categories: named categories, and the open vocabulary of all strings."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from estimators.discovery.learning import learn_code
from estimators.discovery.string_code import StringCode, as_words, normal_form, preset
from estimators.errors import meant, shortened
from estimators.estimate import Array, Estimate, Integers
from estimators.exact.randomness import Words
from estimators.limits import MOST_CATEGORIES
from estimators.metrics.axes import Axes
from estimators.metrics.denial import DenyRule, without_denied
from estimators.metrics.domains import LEAVE_OUT, Domain, Keys, Values, listing, numbered
from estimators.metrics.shares import MAX_SHARES, MOST_KEPT, ShareAmong, parse_share

CODE_KEYS = ("preset", "examples", "code")
"""The keys of a definition that choose the code of strings as bits, for discovery."""
DISCOVERING_MECHANISM, ANSWERING_MECHANISM = "prefix_tree", "projective_sketch"
"""The default mechanisms of an open vocabulary: with discovery, and without."""
SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
"""A surrogate: a string with an unpaired one is not Unicode text."""
NUMBER_NAME = re.compile(r"-?[0-9]+")
SHARE_CHARACTERS = ("/", "+", "..", ">")
"""Only a text with one of these names a share among; any other text names a category."""
WORK_PER_SHARE = 500
"""A share among takes as long to estimate as this many categories and all those of the metric."""
OPEN_VOCABULARY = "open"
"""The value of `categories` for which any string may be reported and queried."""
EXPECTED_CATEGORIES = (
    f"the names of 2 to {MOST_CATEGORIES} categories, their number, axes with their values, or "
    f"{OPEN_VOCABULARY!r}"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Categories(Domain):
    """One of k categories, by name or by index.

    `categories`: their names; or k, for the names "0" to "k - 1"; or the values of axes, whose
    product the categories are; or ``"open"``, for a :class:`Vocabulary`. `discover`: makes an open
    vocabulary a :class:`CodedVocabulary`, with the code of `preset`, `examples` or `code`. `deny`:
    the rule for strings that devices do not report, a :class:`estimators.metrics.denial.DenyRule`.
    """

    names: ClassVar[str] = "categories"
    lossy_kinds: ClassVar[str] = "USiu"

    categories: int | str | Sequence[str] | Mapping[str, Sequence[str]] = dataclasses.field(
        metadata={"expected": EXPECTED_CATEGORIES}
    )
    watch: Sequence[str] | None = None
    discover: bool | None = None
    preset: str | None = None
    examples: Sequence[str] | None = None
    code: str | None = None
    deny: Mapping[str, Any] | None = None
    unit = ends = (0.0, 1.0)

    @classmethod
    def of(cls, metric: str, keys: Mapping[str, Any]) -> Categories:
        """Return the domain of a definition: these categories, or an open vocabulary."""
        if keys.get("categories") != OPEN_VOCABULARY:
            return Categories(metric=metric, **keys)
        return (CodedVocabulary if keys.get("discover") else Vocabulary)(metric=metric, **keys)

    @classmethod
    def implied(cls, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys that a definition implies: the mechanism, for an open vocabulary."""
        if keys.get("discover"):
            return {"mechanism": DISCOVERING_MECHANISM}
        if keys.get("categories") != OPEN_VOCABULARY or keys.get("trust", "local") != "local":
            return {}
        return {"mechanism": ANSWERING_MECHANISM}

    def __post_init__(self) -> None:
        categories = self.categories
        for key, words in (("watch", "watch"), ("discover", "discovery"), ("deny", "deny")):
            if getattr(self, key) not in (None, False):
                self.refuse(key, f"no {words} unless categories = {OPEN_VOCABULARY!r}")
        self._need_no_code()
        if isinstance(categories, str):
            self.refuse("categories", EXPECTED_CATEGORIES)
        if isinstance(categories, Mapping):
            try:
                categories = Axes(categories).labels
            except ValueError as error:
                self.refuse("categories", str(error))
        count = categories if isinstance(categories, int) else len(categories)
        if not 2 <= count <= MOST_CATEGORIES:
            self.refuse("categories", EXPECTED_CATEGORIES)
        names = numbered(categories) if isinstance(categories, int) else categories
        if len(set(names)) != len(names):
            self.refuse("categories", "each category once")
        self.set_labels(names)

    @functools.cached_property
    def axes(self) -> Axes | None:
        """The axes whose product the categories are; None if they are a list."""
        return Axes(self.categories) if isinstance(self.categories, Mapping) else None

    def _need_no_code(self) -> None:
        for key in CODE_KEYS:
            if getattr(self, key) is not None:
                self.refuse(key, f"no {key} without discover = true")

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

    def as_array(self, values: Values) -> Array:
        """Return categories as an array; with axes, mappings from axes to values are categories."""
        if self.axes is not None:
            values = self.axes.labelled(values, self.metric)
        return super().as_array(values)

    def to_unit(self, values: Array) -> Array:
        """Return the indices of categories, dtype int64; raise ValueError for unknown ones."""
        if values.dtype.kind == "O" and {*map(type, values.tolist())} == {int}:
            values = np.asarray(values.tolist())  # many times as fast as one by one
        if values.dtype.kind in "iu":
            self._refuse_indices(values)
            is_invalid = (values < 0) | (values >= len(self.labels))
            if is_invalid.any():
                self._index(values[is_invalid].tolist()[0])  # raises
            return values.astype(np.int64)
        names = values.tolist()
        try:
            indices = [self._indices[name] for name in names]
        except (KeyError, TypeError):  # an unknown name, or a list, which cannot be a key
            if values.dtype.kind == "f":  # pandas makes floats of indices if some are missing
                names = values[np.isnan(values)].tolist() or names
            indices = [self._index(name) for name in names]
        return np.asarray(indices, dtype=np.int64)

    @functools.cached_property
    def has_number_names(self) -> bool:
        """Whether a name is a number other than its index, which makes integers ambiguous."""
        names = enumerate(self.labels)
        return any(NUMBER_NAME.fullmatch(name) and name != str(index) for index, name in names)

    def _refuse_indices(self, values: Sequence[Any] | Array) -> None:
        if self.has_number_names and len(values):
            raise ValueError(
                f"category {values[0]} of {self.metric!r}: an integer may be an index or one of "
                "the names: expected a name, as str() makes"
            )

    def from_indices(self, indices: Integers) -> Array:
        """Return categories as a device accepts them: indices, or names if integers are ambiguous.

        `indices`: the indices of the categories.
        """
        return np.array(self.labels, dtype=object)[indices] if self.has_number_names else indices

    def _index(self, value: object) -> int:
        """Return the index of a category, given by name or index; raise ValueError if unknown."""
        if isinstance(value, str) and value in self._indices:
            return self._indices[value]
        if isinstance(value, Integral) and not isinstance(value, bool):
            self._refuse_indices([value])
            if 0 <= (index := int(value)) < len(self.labels):
                return index
            expected = f"expected 0 to {len(self.labels) - 1}"
        else:
            expected = meant(value if isinstance(value, str) else "", self.labels)
        remedy = "" if isinstance(value, str | Integral) else listing(value) + LEAVE_OUT
        if isinstance(value, float) and value.is_integer():  # an index, as pandas makes it
            remedy = f", or an index, as int() makes{LEAVE_OUT}"
        raise ValueError(f"category {shortened(value)} of {self.metric!r}: {expected}{remedy}")

    def _named(self, labels: Sequence[str | float]) -> tuple[tuple[str, ...], Keys]:
        """Return the names and the indices of categories, each given by its name or index.

        If some labels are shares among, the indices are objects: integers and :class:`ShareAmong`.
        Raises ValueError if a label has no meaning, or if there are too many shares among.
        """
        if self.axes is not None:
            max_labels = len(self.labels) + MAX_SHARES + 1  # with more, too many are shares among
            labels = [*itertools.islice(self.axes.spread(labels), max_labels)]
        texts = [label for label in labels if isinstance(label, str) and label not in self._indices]
        marks = ("",) if self.axes is not None else SHARE_CHARACTERS
        if any(mark in text for text in texts for mark in marks):
            if len(texts) > MAX_SHARES:
                raise ValueError(
                    f"{len(texts)} shares among of {self.metric!r}: expected at most {MAX_SHARES} "
                    "in a question"
                )
            shares = {text: self._parse(text) for text in texts}
            return self._with_shares([shares.get(str(label), label) for label in labels])
        indices = self.to_unit(self.as_array(labels))
        return tuple(self.labels[index] for index in indices.tolist()), indices

    def _with_shares(self, labels: Sequence[Any]) -> tuple[tuple[str, ...], Keys]:
        """Return the names and keys of labels, some of which are shares among."""
        names: list[str] = []
        keys = np.empty(len(labels), dtype=object)
        for position, label in enumerate(labels):
            if isinstance(label, ShareAmong):
                name, keys[position] = label.text, label
            else:
                (name,), (keys[position],) = self._named([label])
            names.append(name)
        if len(set(names)) < len(names):
            raise ValueError(f"categories = {names} of {self.metric!r}: expected each once")
        return tuple(names), keys

    @functools.cached_property
    def _parse(self) -> Callable[[str], ShareAmong]:
        """A parser of shares among, which caches the last ones."""
        parse = functools.partial(
            parse_share, metric=self.metric, indices=self._indices, axes=self.axes
        )
        return functools.lru_cache(MAX_SHARES if len(self.labels) <= MOST_KEPT else 0)(parse)

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.labels)}

    def work_of(self, labels: Sequence[str]) -> int:
        """Return the work of estimating the labels, in categories; a share among counts as many."""
        shares = sum(label not in self._indices for label in labels)
        return len(labels) + (WORK_PER_SHARE + len(self.labels)) * shares

    def from_unit(self, estimate: Estimate) -> Estimate:
        """Return the estimate unchanged, because frequencies have no unit."""
        return estimate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary(Categories):
    """Any string, without a list.

    A mechanism sees a string as its key, its BLAKE2b hash of 64 bits. Two strings have the same key
    with probability 2^-64, and are then counted together. By default an estimate is for the strings
    on `watch`.
    """

    def __post_init__(self) -> None:
        if self.watch is not None and len(set(self.watch)) != len(self.watch):
            self.refuse("watch", "each string once")
        self._need_no_code()
        self.set_labels(self.watch or ())
        try:
            self.deny_rule  # noqa: B018
        except ValueError as error:
            self.refuse("deny", str(error))

    @functools.cached_property
    def deny_rule(self) -> DenyRule | None:
        """The rule for strings that devices do not report; None if they report all strings."""
        return None if self.deny is None else DenyRule.of(self.deny)

    @property
    def meaning(self) -> dict[str, Any]:
        """The open vocabulary and its deny rule; the strings on watch do not affect reports."""
        rule = self.deny_rule
        return {"categories": OPEN_VOCABULARY} | ({} if rule is None else {"deny": rule.meaning})

    def reported(self, values: Array) -> Array:
        """Return strings as devices report them: with "other" in place of denied strings."""
        rule = self.deny_rule
        return values if rule is None else without_denied(values, [rule])[0]

    @property
    def opposite(self) -> tuple[str, str]:
        """Two different strings."""
        first, second = (*self.labels, "one string", "another string")[:2]
        return first, second

    @property
    def parameters(self) -> dict[str, Any]:
        """The mechanism's `categories`: None, for an open vocabulary."""
        return {"categories": None}

    def to_unit(self, values: Array) -> Array:
        """Return the keys of strings, dtype uint64."""
        keys = [string_key(text) for text in self._checked(values.tolist())]
        return np.array(keys, dtype=np.uint64)

    def _checked(self, values: Sequence[Any]) -> Sequence[str]:
        """Return strings; raise ValueError for a value that is not a string of Unicode text."""
        if strange := [value for value in values if not isinstance(value, str)]:
            expected = f"a string{listing(strange[0])}{LEAVE_OUT}"
        elif strange := [*filter(SURROGATE_PATTERN.search, values)]:
            expected = "whole Unicode characters"
        else:
            return values
        raise ValueError(f"value {shortened(strange[0])} of {self.metric!r}: expected {expected}")

    def _named(self, labels: Sequence[str | float]) -> tuple[tuple[str, ...], Keys]:
        """Return strings and their keys."""
        return tuple(map(str, labels)), self.to_unit(np.asarray(labels, dtype=object))

    def work_of(self, labels: Sequence[str]) -> int:
        """Return the number of strings."""
        return len(labels)

    @functools.cached_property
    def _default_keys(self) -> Keys:
        return self._named(self.labels)[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodedVocabulary(Vocabulary):
    """Any string, in Unicode's normal form C, with the bits of a public code.

    Exactly one of `preset`, `examples` and `code` determines the code.
    """

    def _need_no_code(self) -> None:
        """Accept the keys of a code, which all other vocabularies refuse."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sources = [key for key in CODE_KEYS if getattr(self, key) is not None]
        if len(sources) != 1:
            key = sources[1] if sources else "preset"
            self.refuse(key, "one of `preset`, `examples` and `code`, and no other")
        try:
            if self.examples is not None:
                object.__setattr__(self, "code", learn_code(self.examples).packed())
                object.__setattr__(self, "examples", None)
            self.string_code  # noqa: B018
        except ValueError as error:
            self.refuse(sources[0], str(error).removeprefix("expected "))

    @functools.cached_property
    def string_code(self) -> StringCode:
        """The code of strings as bits."""
        return StringCode.unpacked(self.code or "") if self.preset is None else preset(self.preset)

    @property
    def meaning(self) -> dict[str, Any]:
        """The open vocabulary, its deny rule, and the digest of its code."""
        return super().meaning | {"discover": self.string_code.digest}

    @property
    def parameters(self) -> dict[str, Any]:
        """The mechanism's `categories`: None, for an open vocabulary; and its `code`."""
        return {"categories": None, "code": self.string_code}

    def to_unit(self, values: Array) -> Array:
        """Return the key and the 128 bits of each string, dtype uint64, shape (n, 3)."""
        texts = self._checked(values.tolist())
        normal = {text: normal_form(text) for text in dict.fromkeys(texts)}
        distinct = dict.fromkeys(normal.values())
        rows = np.empty((len(distinct), 3), dtype=np.uint64)
        rows[:, 0] = [string_key(text) for text in distinct]
        rows[:, 1:] = as_words([self.string_code.encode(text)[0] for text in distinct])
        row_of = {text: index for index, text in enumerate(distinct)}
        rows_of_texts = {text: row_of[form] for text, form in normal.items()}
        return rows[np.fromiter(map(rows_of_texts.__getitem__, texts), np.intp, len(texts))]

    def keys_of(self, strings: Sequence[str]) -> Words:
        """Return the keys of the strings' normal form C, dtype uint64."""
        keys = [string_key(normal_form(text)) for text in self._checked(strings)]
        return np.array(keys, dtype=np.uint64)

    def _named(self, labels: Sequence[str | float]) -> tuple[tuple[str, ...], Keys]:
        """Return strings and their keys, which are those of their normal form C."""
        return tuple(map(str, labels)), self.keys_of(list(labels))  # type: ignore[arg-type]


def string_key(text: str) -> int:
    """Return the key of a string: the BLAKE2b hash of 64 bits of its UTF-8 bytes, little-endian.

    >>> hex(string_key("N725MQ"))
    '0x11908ece61f00b3b'
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
