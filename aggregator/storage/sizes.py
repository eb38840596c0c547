"""How many members the sets of a partition have, by which one that was deleted is missed.

A set that was deleted would come back with the next commit, with a part of what it had. So each
commit keeps how many members each set has in the hash ``P:sizes``, by the set's key, and refuses to
add to one that has another number. The owner's field ``sizes`` names the commit that wrote them
last: an earlier version of Dither leaves them behind, and then nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.errors import StateUnreadable

FACTS = ("next", "begun", "done", "sizes")
"""Fields of an owner's hash that say whether the sizes are those of the last commit."""
ALWAYS = "indexed"
"""The set that there is where there is any."""


def are_known(facts: Sequence[bytes | None]) -> bool:
    """Return whether the sizes are those of the last commit, given :data:`FACTS`."""
    following, begun, done, sizes = facts
    return sizes is not None and begun == done == sizes and following != b"-2"


def lost(key: str, found: bytes | int, expected: bytes | int) -> StateUnreadable:
    """Return that of the members of a key some are gone, or all.

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
