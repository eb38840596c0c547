"""Delete what was counted of a partition, so that workers count it again from its log.

Deleting takes a while, and workers may run. So the partition is marked first, as one whose sums
cannot be trusted: whoever owns it is fenced, and nobody counts it. The mark goes last.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aggregator.counting.continuity import is_another
from aggregator.errors import StateUnreadable
from aggregator.storage.partition_store import TOKEN_BYTES
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store

CHUNK_KEYS = 500
UNDER_WAY = (
    "`dither recount` is deleting what was counted of this partition. If it was interrupted, run "
    "it again"
)
"""Why the partition is halted meanwhile."""


def known_owner(store: Store, number: int) -> dict[str, str]:
    """Return what is known of how far a partition is counted; nothing if it cannot be read."""
    try:
        return store.owner(number)
    except StateUnreadable:
        return {}


def loss(owner: Mapping[str, str], low: int, high: int, topic_id: str) -> str:
    """Return what of a partition could not be counted again, in words; empty if all can.

    Parameters
    ----------
    owner : mapping
        From :func:`known_owner`.
    low, high : int
        The log's first and next offset.
    topic_id : str
        Kafka's id of the topic; empty where the cluster does not tell.

    Examples
    --------
    >>> loss({"begin": "0", "next": "90"}, 0, 100, "")
    ''
    >>> loss({"begin": "0", "next": "90"}, 10, 100, "")
    'the offsets 0 to 9 are gone from the log, which begins at 10'
    >>> loss({"begin": "10", "next": "90"}, 10, 80, "")
    'the log ends at 80, before the counted 90'
    """
    begin, following = int(owner.get("begin", 0)), int(owner.get("next", UNSET))
    known = owner.get("topic_id", "")
    if is_another(known, topic_id):
        return f"the topic was deleted and created again (id {known}, now {topic_id})"
    if begin < low:
        return f"the offsets {begin} to {low - 1} are gone from the log, which begins at {low}"
    if following > high:
        return f"the log ends at {high}, before the counted {following}"
    return ""


def delete(store: Store, number: int) -> int:
    """Delete all that was counted of a partition; return how many keys that were.

    If it is interrupted, the partition stays halted until it is called again.
    """
    prefix = tag(store.topic, number)
    owner = f"{prefix}:owner"
    _mark(store, owner)
    indexes: list[str] = []
    with contextlib.suppress(StateUnreadable):
        indexes = [f"{prefix}:index:{grain}:{key}" for grain, key in store.panes.indexed(number)]
    first = [f"{prefix}:{name}" for name in ("watermarks", "counts", "open", "indexed")]
    deleted = _unlink(store, [*first, *indexes])  # readers then find nothing, instead of a part
    client: Any = store.client
    while found := _pass(store, client.scan_iter(f"{prefix}:*", count=CHUNK_KEYS), owner):
        deleted += found
    return deleted + _unlink(store, [owner])


def _mark(store: Store, owner: str) -> None:
    """Fence whoever owns the partition, and have nobody count it."""
    token = os.urandom(TOKEN_BYTES).hex()
    mark = ("HSET", owner, "token", token, "next", TORN, "halted", UNDER_WAY)
    try:
        store.ask([mark])
    except StateUnreadable:  # another type
        store.ask([("UNLINK", owner), mark])


def _pass(store: Store, keys: Iterable[bytes], owner: str) -> int:
    """Delete the keys but the owner's; return how many there were."""
    others, deleted = (key for key in keys if key != owner.encode()), 0
    while chunk := [*itertools.islice(others, CHUNK_KEYS)]:
        deleted += _unlink(store, chunk)
    return deleted


def _unlink(store: Store, keys: Sequence[Any]) -> int:
    (deleted,) = store.ask([("UNLINK", *keys)])
    return int(deleted)
