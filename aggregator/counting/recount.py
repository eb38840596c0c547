"""Deletes the counts of a partition, so that workers count it again from its log.

Workers may run meanwhile. So the partition is first marked as one whose sums cannot be trusted: its
owner is fenced, and nobody counts it. The mark is deleted last. The deletion stops if another run
has marked or finished the partition, or if Redis has lost the mark.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis.commands.core import Script

from aggregator.counting.continuity import VANISHED_FIELD, is_another
from aggregator.errors import DitherError, StateUnreadable, recount_command
from aggregator.storage.commands import script
from aggregator.storage.partition_store import TOKEN_BYTES
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store

CHUNK_KEYS = 500
FIRST_DELETED = ("watermarks", "counts", "open", "indexed", "sizes")
"""Keys that are deleted first: without them readers find nothing, instead of a part."""
UNDER_WAY = (
    "`dither recount` is deleting this partition's counts. If it was interrupted, run it again"
)
"""The stored reason why the partition is halted during a deletion."""


def read_owner(store: Store, number: int) -> dict[str, str]:
    """Return the fields of a partition's owner's hash; empty if they are unreadable."""
    try:
        return store.owner(number)
    except StateUnreadable:
        return {}


def describe_loss(owner: Mapping[str, str], low: int, high: int, topic_id: str) -> str:
    """Return which counted offsets of a partition cannot be counted again; "" if all can.

    Parameters
    ----------
    owner : mapping
        The owner's fields, from :func:`read_owner`.
    low, high : int
        The log's first and next offset.
    topic_id : str
        Kafka's id of the topic; empty if unknown.

    Examples
    --------
    >>> describe_loss({"begin": "0", "next": "90"}, 0, 100, "")
    ''
    >>> describe_loss({"begin": "0", "next": "90"}, 10, 100, "")
    'the offsets 0 to 9 are gone from the log, which begins at 10'
    >>> describe_loss({"begin": "10", "next": "90"}, 10, 80, "")
    'the log ends at 80, before the counted 90'
    >>> describe_loss({"begin": "0", "next": "90", "vanished": "7"}, 0, 100, "")
    '7 offsets that were counted had left the log before (aggregate.on_gap=skip accepted it)'
    """
    begin, following = int(owner.get("begin", 0)), int(owner.get("next", UNSET))
    stored_topic_id = owner.get("topic_id", "")
    if is_another(stored_topic_id, topic_id):
        return f"the topic was deleted and created again (id {stored_topic_id}, now {topic_id})"
    if begin < low:
        return f"the offsets {begin} to {low - 1} are gone from the log, which begins at {low}"
    if following > high:
        return f"the log ends at {high}, before the counted {following}"
    if vanished := int(owner.get(VANISHED_FIELD, 0)):
        return (
            f"{vanished} offsets that were counted had left the log before (aggregate.on_gap=skip "
            "accepted it)"
        )
    return ""


def delete_counts(store: Store, number: int) -> int:
    """Delete all counts of a partition; return the number of deleted keys.

    An interrupted deletion leaves the partition halted until this function is called again. Raises
    DitherError if another deletion marks the partition meanwhile, or its mark is lost.
    """
    prefix, token = tag(store.topic, number), os.urandom(TOKEN_BYTES).hex()
    owner = f"{prefix}:owner"
    unlink = store.client.register_script(script("recount"))

    def delete(keys: Iterable[bytes | str]) -> int:
        """Delete keys, except that of the owner; return how many were deleted."""
        deleted = 0
        other_keys = (key for key in keys if key not in (owner, owner.encode()))
        while chunk := [*itertools.islice(other_keys, CHUNK_KEYS)]:
            deleted += _unlink(unlink, number, [owner, *chunk], token)
        return deleted

    _mark(store, owner, token)
    indexes: list[str] = []
    with contextlib.suppress(StateUnreadable):
        indexes = [f"{prefix}:index:{grain}:{key}" for grain, key in store.panes.indexed(number)]
    deleted = delete([*(f"{prefix}:{name}" for name in FIRST_DELETED), *indexes])
    client: Any = store.client
    while more := delete(client.scan_iter(f"{prefix}:*", count=CHUNK_KEYS)):
        deleted += more
    return deleted + _unlink(unlink, number, [owner, owner], token)


def _mark(store: Store, owner: str, token: str) -> None:
    """Fence a partition's owner or another deletion, and halt the partition."""
    facts = ("token", token, "recount", token, "next", TORN, "halted", UNDER_WAY)
    mark = ("HSET", owner, *facts)
    try:
        store.ask([mark])
    except StateUnreadable:  # the key has another type
        store.ask([("UNLINK", owner), mark])


def _unlink(unlink: Script, number: int, keys: Sequence[bytes | str], token: str) -> int:
    """Delete all keys but the first, which has the mark; return how many were deleted."""
    deleted: Any = unlink(keys, [token])
    if deleted < 0:
        raise DitherError(
            f"partition {number} is no longer marked by this recount: another `dither recount` has "
            "marked it since, or Redis was emptied, restored or failed over. Nothing was deleted "
            "since then. Wait for the other one; if the partition is still halted then, run "
            f"`{recount_command(number)}`"
        )
    return int(deleted)
