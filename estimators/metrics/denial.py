"""Deny rules: the strings that a device replaces by another, public string.

A rule is a function of the string alone, and comes before the randomizer. So a report is as private
as its level says, whatever the rule is and whether it denies the string or not.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from estimators.errors import nearest
from estimators.estimate import Array
from estimators.metrics.attributes import OTHER_VALUE
from estimators.metrics.validation import read_table

Deny = Callable[[str], bool]
"""A function of a string in Unicode's normal form C: whether devices must not report it."""
MAX_RULE_STRINGS = 1_000
"""The most patterns, and the most strings, of a rule."""
LONGEST_PATTERN = 200
LONGEST_LENGTH = 2**20
_LOWER_CASE = str.maketrans({chr(c): chr(c + 32) for c in range(ord("A"), ord("Z") + 1)})
_EMAIL_PATTERN = re.compile(r"[^ @]@[^ @]*\.[^ @.0-9]")
_DIGITS_PATTERN = re.compile(r"[0-9](?:[ ./()+-]{0,2}[0-9]){8}")
_QUERY_PATTERN = re.compile(r"\?[^ ]|#[^ #]*=")
_GROUPS_PATTERN = re.compile(r"[0-9]+(?:[ .-][0-9]+)*")
_CARD_LENGTHS = range(13, 20)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DenyRule:
    """A rule that Python and the module for browsers evaluate alike, in linear time.

    The rule looks at a string's normal form C, and treats the letters A to Z like a to z. It denies
    a string if at least one of its parameters does.

    Parameters
    ----------
    longer_than : int, optional
        Denies strings with more characters (code points).
    presets : sequence of str
        Names of :data:`DENY_PRESETS`, each of which denies some strings.
    patterns : sequence of str
        Deny strings that match as a whole: ``*`` stands for any characters, ``?`` for one. Up to
        1,000 patterns, each of at most 200 characters.
    strings : sequence of str
        Denies exactly these strings, up to 1,000. They are published with the definition.

    Raises
    ------
    ValueError
        If the rule is empty, or a parameter is out of range.

    Examples
    --------
    >>> rule = DenyRule(longer_than=40, presets=["email"], patterns=["/users/*"])
    >>> [rule(text) for text in ("/home", "/Users/17", "ann@example.org", "x" * 41)]
    [False, True, True, True]
    """

    longer_than: int | None = None
    presets: Sequence[str] = ()
    patterns: Sequence[str] = ()
    strings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.meaning:
            raise ValueError(f"one or more of {', '.join(_RULE_KEYS)}")
        if self.longer_than is not None and not 0 <= self.longer_than <= LONGEST_LENGTH:
            raise ValueError(f"longer_than: 0 to {LONGEST_LENGTH} characters")
        for name in self.presets:
            if name not in DENY_PRESETS:
                raise ValueError(f"presets: {nearest(name, DENY_PRESETS)}")
        for key in ("patterns", "strings"):
            if len(getattr(self, key)) > MAX_RULE_STRINGS:
                raise ValueError(f"{key}: at most {MAX_RULE_STRINGS}")
        if any(not 1 <= len(pattern) <= LONGEST_PATTERN for pattern in self.patterns):
            raise ValueError(f"patterns: each of 1 to {LONGEST_PATTERN} characters")

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> DenyRule:
        """Return the rule that the table `deny` of a definition describes.

        Raises ValueError with what was expected.
        """
        return read_table(table, cls)

    @property
    def meaning(self) -> dict[str, Any]:
        """The rule's part of the canonical form of a definition, as plain values for JSON."""
        lists = {key: list(getattr(self, key)) for key in _RULE_KEYS[1:]}
        longest = {} if self.longer_than is None else {"longer_than": self.longer_than}
        return longest | {key: value for key, value in lists.items() if value}

    @functools.cached_property
    def _folded(self) -> tuple[frozenset[str], list[re.Pattern[str]]]:
        """The rule's strings, and its patterns as regular expressions, all in lower case."""
        globs = (folded(pattern).replace("[", "[[]") for pattern in self.patterns)
        patterns = [re.compile(fnmatch.translate(glob)) for glob in globs]
        return frozenset(map(folded, self.strings)), patterns

    def __call__(self, text: str) -> bool:
        """Return whether a string is denied."""
        normal = folded(text)
        if self.longer_than is not None and len(normal) > self.longer_than:
            return True
        strings, globs = self._folded
        return (
            normal in strings
            or any(DENY_PRESETS[name](normal) for name in self.presets)
            or any(glob.match(normal) for glob in globs)
        )


_RULE_KEYS = tuple(field.name for field in dataclasses.fields(DenyRule))


def folded(text: str) -> str:
    """Return a string's normal form C, with the letters A to Z in lower case."""
    return unicodedata.normalize("NFC", text).translate(_LOWER_CASE)


def _has_email(text: str) -> bool:
    return _EMAIL_PATTERN.search(text.replace("%40", "@")) is not None


def _has_card(text: str) -> bool:
    """Return whether neighbouring groups of digits are the number of a card, by Luhn's check.

    A card's number has 13 to 19 digits. A single space, dot or hyphen may separate the groups.
    """
    for run in _GROUPS_PATTERN.findall(text):
        groups = re.split("[ .-]", run)
        for first in range(len(groups)):
            digits = ""
            for group in groups[first:]:
                digits += group
                if len(digits) > _CARD_LENGTHS[-1]:
                    break
                if len(digits) in _CARD_LENGTHS and _is_card(digits):
                    return True
    return False


def _is_card(digits: str) -> bool:
    total = 0
    for position, digit in enumerate(reversed(digits)):
        doubled = int(digit) * (1 + position % 2)
        total += doubled - 9 * (doubled > 9)
    return total % 10 == 0


DENY_PRESETS: Mapping[str, Deny] = {
    "email": _has_email,
    "card": _has_card,
    "digits": lambda text: _DIGITS_PATTERN.search(text) is not None,
    "query": lambda text: _QUERY_PATTERN.search(text) is not None,
}
"""E-mail addresses; numbers of payment cards; 9 or more digits, with at most two of ``./()+-`` and
space between neighbours; addresses of pages with a query, or with values in their fragment."""


def without_denied(values: Array, rules: Iterable[Deny]) -> tuple[Array, int]:
    """Return strings with "other" in place of denied strings, and the number of denied strings.

    `values`, shape (n,): values that are not strings stay as they are; `rules`: a string is denied
    if any of them denies it.

    >>> import numpy as np
    >>> without_denied(np.array(["/home", "a@b.org"]), [DenyRule(presets=["email"])])
    (array(['/home', 'other'], dtype=object), 1)
    """
    reported, used = values.astype(object), tuple(rules)
    denied = 0
    for index, text in enumerate(reported.tolist()):
        normal = unicodedata.normalize("NFC", text) if isinstance(text, str) else ""
        if isinstance(text, str) and any(rule(normal) for rule in used):
            reported[index] = OTHER_VALUE
            denied += 1
    return reported, denied
