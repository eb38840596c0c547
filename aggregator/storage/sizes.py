"""The sizes of a partition's sets, which show whether a set was deleted.

The next commit would create a deleted set again, with only a part of its members. So each commit
stores the number of members of each set in the hash ``P:sizes``, by the set's key. A commit refuses
to add to a set that has another number of members. The owner's field ``sizes`` names the commit
that wrote the numbers last: an earlier version of Dither does not update them, and then they say
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.errors import StateUnreadable

FACTS = ("next", "begun", "done", "sizes")
"""Fields of an owner's hash that say whether the sizes are those of the last commit."""
ALWAYS = "indexed"
"""A set that exists as soon as any does."""


def are_known(facts: Sequence[bytes | None]) -> bool:
    """Return whether the sizes are those of the last commit, given :data:`FACTS`."""
    following, begun, done, sizes = facts
    return sizes is not None and begun == done == sizes and following != b"-2"


def lost(key: str, found: bytes | int, expected: bytes | int) -> StateUnreadable:
    """Return the error for a key that has lost some of its members, or all.

    Parameters
    ----------
    key : str
        Of the set or hash.
    found, expected : bytes or int
        How many members it has, and how many were committed.
    """
    number = int(found)
    shown = f"{number} entries" if number else "nothing"
    all_of_them = expected.decode(errors="replace") if isinstance(expected, bytes) else expected
    return StateUnreadable(key, shown, f"all that was committed, {all_of_them}")
