"""The errors of the mathematical core, each a ``ValueError`` that carries its facts as fields."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DefinitionError(ValueError):
    """A metric's definition cannot be used.

    Parameters
    ----------
    key : str
        The offending key, as ``metric.key`` where the metric is known.
    value : object
        What was found there.
    expected : str
        What would have been right, as a sentence without a full stop.
    source : str
        The file it came from, or the empty string.
    """

    def __init__(self, key: str, value: object, expected: str, source: str = "") -> None:
        self.key, self.value, self.expected, self.source = key, value, expected, source
        place = f"{source}: {key}" if source else key
        super().__init__(f"{place} = {value!r}: expected {expected}")


class ReportError(ValueError):
    """A batch of reports that no device of this metric can have sent.

    Parameters
    ----------
    reason : str
        A short fixed code (``bad_level``, ``bad_value``, ...): the outcome under which it is
        counted.
    detail : str
        What was wrong, with the value and what was expected.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Describe the allowed words, the one nearest to a mistaken word first.

    Examples
    --------
    >>> nearest("laplce", ["laplace", "rappor"])
    "'laplace'? (known: laplace, rappor)"
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    guess = f"{close[0]!r}? " if close else ""
    return f"{guess}(known: {', '.join(names)})"
