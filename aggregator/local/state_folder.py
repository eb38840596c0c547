"""The folder of `dither up --folder`: the counts of an embedded deployment, kept between runs."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aggregator.config.settings import Settings
from aggregator.counting.continuity import VANISHED_FIELD
from aggregator.counting.rival_deployments import CLUSTER_FIELD
from aggregator.errors import DitherError
from aggregator.kafka.obstacles import SKIPPED_FIELD
from aggregator.local.embedded_servers import EmbeddedRedis
from aggregator.state.definition_history import cleared_history
from aggregator.storage import parsing
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import handled_key, publisher_key, tag
from aggregator.storage.store import Store

LOCK_NAME = "dither.lock"
LOCK_SECONDS = 3.0
"""The time for a Redis and its guard to end after their `dither up`."""
LOOK_SECONDS = 0.05
LEAST_DESCRIPTOR = 10
"""Descriptors below this may be closed by a shell."""
EMBEDDED_CLUSTER = "mockCluster"
"""The beginning of the id of an embedded broker's cluster; each start has a new id."""


@contextlib.contextmanager
def redis_in_folder(folder: Path) -> Iterator[EmbeddedRedis]:
    """Lock a folder; yield an embedded Redis that keeps its data there, and is not started yet.

    A missing folder is created, with access for this user alone. The server inherits the lock, so
    that the lock holds until the server has ended. Raises DitherError if another process uses the
    folder.
    """
    folder = folder.resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    lock = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR)
    os.close(opened)
    try:
        _lock(lock, folder)
        options = ["--dir", str(folder), "--appendonly", "yes"]
        yield EmbeddedRedis(options=options, descriptors=[lock])
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DitherError(
                    f"another `dither up` uses the folder {folder}: stop that one, or name another "
                    "folder"
                ) from None
            time.sleep(LOOK_SECONDS)
        else:
            return


def begin_new_log(store: Store, settings: Settings) -> int:
    """Prepare Redis for counting a new, empty log; the counts of earlier logs stay.

    Call this function while nothing uses the store. No event is published twice.
    Counts from another Kafka stay unchanged, and a partition whose last commit was applied in part
    stays halted.

    Returns
    -------
    int
        The number of messages of the last log that are known and were not counted.
    """
    uncounted = 0
    for number in store.partitions():
        owner = store.owner(number)
        cluster = owner.get(CLUSTER_FIELD) or EMBEDDED_CLUSTER  # none: no commit since a reset
        is_other = not cluster.startswith(EMBEDDED_CLUSTER)
        if is_other or int(owner.get("next", UNSET)) == UNSET:
            continue
        facts, missing = _facts_of_new_log(owner)
        words = itertools.chain.from_iterable(facts.items())
        store.ask([("HSET", f"{tag(store.topic, number)}:owner", *words)])
        uncounted += missing
    client: Any = store.client
    position = f"{publisher_key(store.topic)}:position"
    for field in store.hash(position, parsing.texts):
        if field.isdigit():  # a partition of the estimates topic, whose events are not due again
            client.hset(position, field, 0)
    for key in client.scan_iter(f"{handled_key(settings.topics.deadletters, '')}*"):
        client.unlink(key)
    return uncounted


def _facts_of_new_log(owner: Mapping[str, str]) -> tuple[dict[str, str | int], int]:
    """Return an owner's fields for a new log, and how many uncounted messages the old log loses.

    Examples
    --------
    >>> stored = {"begin": "2", "next": "7", "high": "9", "begun": "4", "done": "4", "gap": "1"}
    >>> facts, missing = _facts_of_new_log(stored)
    >>> facts["next"], facts["begin"], facts["gap"], facts["vanished"], missing
    (0, 0, 3, 5, 2)
    >>> _facts_of_new_log(stored | {"done": "3"})[0]["next"]
    -2
    """
    begin, following = int(owner.get("begin", 0)), int(owner["next"])
    high = max(following, int(owner.get("high", 0)))
    is_torn = following == TORN or owner.get("begun") != owner.get("done")
    end = high if is_torn else following
    return {
        "next": TORN if is_torn else 0,
        "begin": 0,
        "high": 0,
        "last": "",
        "gap": int(owner.get("gap", 0)) + high - end,
        VANISHED_FIELD: int(owner.get(VANISHED_FIELD, 0)) + max(0, end - begin),
        CLUSTER_FIELD: "",
        SKIPPED_FIELD: "",
        **cleared_history(owner),
    }, high - end
