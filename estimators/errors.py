"""The errors of the mathematical core, each a ``ValueError`` with its facts as fields."""

from __future__ import annotations

import bisect
import contextlib
import difflib
from collections.abc import Iterable, Iterator

import msgspec

MOST_LISTED, FEW_LISTED = 40, 10
"""The most allowed words that are all listed, and how many of a longer list are listed."""
MOST_COMPARED = 500
"""The most allowed words that a mistaken word is compared with, so that it costs little time."""
MOST_PAIRS = 30_000
"""The most pairs of characters, of a mistaken word and of allowed words, that are compared."""
MOST_SHOWN, MOST_LISTED_CHARACTERS = 500, 100
"""The most characters of a wrong value, and of each allowed word, in a message."""


class DefinitionError(ValueError):
    """Raised if a metric's definition cannot be used.

    Parameters
    ----------
    key : str
        The invalid key, as ``metric.key`` if the metric is known.
    value : object
        The value in the definition; None if the key is missing.
    expected : str
        What was expected, as a sentence without a full stop.
    source : str
        The file with the definition; the empty string if it is not from a file.
    """

    def __init__(self, key: str, value: object, expected: str, source: str = "") -> None:
        self.key, self.value, self.expected, self.source = key, value, expected, source
        location = f"{source}: {key}" if source else key
        finding = "is missing" if value is None else f"= {shortened(value)}"
        super().__init__(f"{location} {finding}: expected {expected}")


class ReportError(ValueError):
    """Raised for a batch of reports that no device of this metric can have sent.

    Parameters
    ----------
    reason : str
        A short fixed code (``bad_level``, ``bad_value``, ...), under which the rejection is
        counted.
    detail : str
        What was wrong, with the value and what was expected.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


@contextlib.contextmanager
def explain_missing_scipy(purpose: str) -> Iterator[None]:
    """Turn a missing scipy into an error that says what to install; devices need not have scipy.

    `purpose`: what needs scipy; the message begins with it.

    Raises
    ------
    ModuleNotFoundError
        If scipy is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "scipy":
            raise
        raise ModuleNotFoundError(
            f"{purpose} needs scipy, which is not installed: pip install 'dither[server]'",
            name=error.name,
        ) from None


def shortened(value: object) -> str:
    """Return the `repr` of a value, cut off after 500 characters.

    >>> shortened([1]), len(shortened("x" * 1_000_000))
    ('[1]', 522)
    """
    text = repr(value)
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}... ({len(text):,} in all)"


def _printable(word: str) -> str:
    r"""Return a word as messages list it, with invisible characters escaped.

    >>> _printable("Z\xfcrich\u200b"), len(_printable("x" * 1_000))
    ('Zürich\\u200b', 103)
    """
    more = "..." * (len(word) > MOST_LISTED_CHARACTERS)
    shown = (c if c.isprintable() else repr(c)[1:-1] for c in word[:MOST_LISTED_CHARACTERS])
    return "".join(shown) + more


def readable(error: msgspec.ValidationError) -> str:
    """Return what msgspec's decoder expected, in words to follow "expected" in a message."""
    message = str(error).replace("Number out of range", "a number that is not too large")
    return message.replace("Expected ", "").replace("`", "")


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return the allowed words as text, the one most like `word` first, to follow "expected".

    >>> nearest("laplce", ["laplace", "rappor"])
    "'laplace'? (known: laplace, rappor)"
    >>> nearest("noise", ["laplace", "rappor"]), nearest("noise", [])
    ('one of laplace, rappor', 'none')

    Only the first of very many words are listed:

    >>> nearest("c7777", [f"c{i}" for i in range(1000)])
    "'c777'? (known: c0, c1, c10, c100, c101, c102, c103, c104, c105, c106 and 990 more)"
    """
    names = sorted(allowed)
    is_long = len(names) > MOST_LISTED
    listed = ", ".join(map(_printable, names[:FEW_LISTED] if is_long else names))
    if is_long:
        listed += f" and {len(names) - FEW_LISTED} more"
    if close := _closest(word, names):
        return f"{shortened(close[0])}? (known: {listed})"
    return f"{'one of ' if len(names) > 1 else ''}{listed}" or "none"


def meant(word: str, allowed: Iterable[str]) -> str:
    """Return a suggestion for a mistaken word from the allowed words, to follow a colon.

    >>> meant("laplce", ["laplace", "rappor"])
    "did you mean 'laplace'? (known: laplace, rappor)"
    >>> meant("noise", ["laplace", "rappor"]), meant("noise", [])
    ('expected one of laplace, rappor', 'there are none')
    """
    names = sorted(allowed)
    if not names:
        return "there are none"
    return f"{'did you mean' if _closest(word, names) else 'expected'} {nearest(word, names)}"


def _closest(word: str, names: list[str]) -> list[str]:
    """Return a list with the name most like a word; empty if none is alike.

    Of many names, only those next to the word in sorted order are compared.
    """
    position, reach = bisect.bisect(names, word), MOST_COMPARED // 2
    compared = names[max(0, position - reach) : position + reach]
    pairs = len(word) * sum(map(len, compared))
    if pairs > MOST_PAIRS:
        reach = reach * MOST_PAIRS // pairs
        compared = names[max(0, position - reach) : position + reach]
    return difflib.get_close_matches(word, compared, n=1, cutoff=0.5)
