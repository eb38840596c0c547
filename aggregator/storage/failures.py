"""Explains Redis's failures: what each means, and what to do, as failures.toml says.

All of these failures may be temporary: a worker waits, loses nothing and commits afterwards. An
unreadable stored value is permanent and raises :class:`aggregator.errors.StateUnreadable`.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import redis
from redis.exceptions import RedisClusterException
from redis.sentinel import MasterNotFoundError

RUNBOOK_PATH = "docs/operations.md"
WITH_TLS, WITHOUT_TLS = "it answers with TLS", "it answers without TLS"


@dataclasses.dataclass(frozen=True)
class RedisFailure:
    """A state in which Redis does not run a command."""

    meaning: str
    remedy: str
    section: str  # of the runbook
    words: str = r"(?!)"  # a regular expression for Redis's message
    kinds: tuple[type[Exception], ...] = ()  # or the client's exception types

    def covers(self, error: Exception) -> bool:
        """Return whether an error is this failure."""
        return isinstance(error, self.kinds) or re.search(self.words, str(error)) is not None


def _stated_failures() -> Iterator[RedisFailure]:
    """Yield the failures of failures.toml."""
    text = Path(__file__).with_name("failures.toml").read_text(encoding="utf-8")
    for stated in tomllib.loads(text)["failures"]:
        kinds = tuple(getattr(redis.exceptions, kind) for kind in stated.pop("kinds", ()))
        yield RedisFailure(**stated, kinds=kinds)


NO_MASTER = RedisFailure(
    "the Sentinels name no master",
    "check with `redis-cli -p 26379 SENTINEL MASTERS`",
    "redis-is-away",
    kinds=(MasterNotFoundError,),
)
REDIS_UNREACHABLE = RedisFailure(
    "Redis does not answer",
    "start it, or check the network",
    "redis-is-away",
    kinds=(redis.ConnectionError, redis.TimeoutError, OSError),
)
REDIS_FAILURES = (*_stated_failures(), NO_MASTER, REDIS_UNREACHABLE)
UNKNOWN_FAILURE = RedisFailure("Redis refuses", "see Redis's message", "redis-is-away")


def classify(error: Exception) -> RedisFailure:
    """Return the failure that an error of Redis stands for."""
    covering = (failure for failure in REDIS_FAILURES if failure.covers(error))
    return next(covering, UNKNOWN_FAILURE)


def explain_redis_error(error: Exception) -> str:
    """Return the meaning, message and remedy of an error of Redis; of any other error, the message.

    >>> explain_redis_error(redis.ReadOnlyError("You can't write against a read only replica."))
    "this Redis is a replica and takes no writes (You can't write against a read only replica.): \
    name the master in redis.url, or let a Sentinel or a Redis Cluster name it; \
    docs/operations.md#redis-is-read-only"
    """
    shown = str(error).strip()
    if not isinstance(error, redis.RedisError | RedisClusterException):
        return shown
    failure = classify(error)
    return f"{failure.meaning} ({shown}): {failure.remedy}; {RUNBOOK_PATH}#{failure.section}"
