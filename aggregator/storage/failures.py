"""Explains Redis's failures: what each means, and what to do.

All of these failures may be temporary: a worker waits, loses nothing and commits afterwards. An
unreadable stored value is permanent and raises :class:`aggregator.errors.StateUnreadable`.
"""

from __future__ import annotations

import dataclasses
import re

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


REDIS_FAILURES = (
    RedisFailure(
        "Redis is full",
        "raise its maxmemory, give metrics a retention, or delete keys that are not Dither's",
        "redis-is-full",
        r"\bOOM\b",
        (redis.OutOfMemoryError,),
    ),
    RedisFailure(
        "this Redis is a replica and takes no writes",
        "name the master in redis.url, or let a Sentinel or a Redis Cluster name it",
        "redis-is-read-only",
        r"\bREADONLY\b|previous master is now a slave",
        (redis.ReadOnlyError,),
    ),
    RedisFailure(
        "Redis cannot write to its disk",
        "free space on the disk of its append-only file, or repair the disk",
        "redis-cannot-write-to-its-disk",
        r"\bMISCONF\b",
    ),
    RedisFailure(
        "Redis has too few replicas in step",
        "bring its replicas back, or lower min-replicas-to-write",
        "redis-has-too-few-replicas",
        r"\bNOREPLICAS\b",
    ),
    RedisFailure(
        "Redis is reading its data",
        "wait until it has finished",
        "redis-is-loading",
        r"\bLOADING\b|is loading the dataset",
        (redis.BusyLoadingError,),
    ),
    RedisFailure(
        "Redis does not accept the user or the password",
        "correct them in redis.url, or the user's password in Redis",
        "redis-refuses-the-user",
        r"\b(NOAUTH|WRONGPASS)\b",
        (redis.AuthenticationError, redis.exceptions.AuthenticationWrongNumberOfArgsError),
    ),
    RedisFailure(
        "the Redis user lacks a permission",
        "grant it with ACL SETUSER (`dither roles` lists what each role needs)",
        "redis-refuses-a-command",
        r"\bNOPERM\b|ACL failure|has no permissions|can't run this command",
        (redis.exceptions.NoPermissionError, redis.exceptions.AuthorizationError),
    ),
    RedisFailure(
        "Redis shows a certificate that has expired",
        "renew it there",
        "redis-cannot-be-trusted",
        r"certificate has expired",
    ),
    RedisFailure(
        "Redis shows a certificate for another host",
        "connect by a name in the certificate, or add this name to it",
        "redis-cannot-be-trusted",
        r"CERTIFICATE_VERIFY_FAILED.*mismatch",
    ),
    RedisFailure(
        "Redis shows a certificate that no known authority has signed",
        "name the authority's file in redis.url: rediss://...?ssl_ca_certs=/path/ca.pem",
        "redis-cannot-be-trusted",
        r"CERTIFICATE_VERIFY_FAILED",
    ),
    RedisFailure(
        "Redis cannot be reached by TLS",
        "a file that redis.url names in ssl_ca_certs, ssl_certfile or ssl_keyfile is not there",
        "redis-cannot-be-trusted",
        r"Error 2 connecting to [^/]",
    ),
    RedisFailure(
        "there is no socket of Redis at this path",
        "set unixsocket to it in redis.conf, or correct the path in redis.url",
        "redis-is-away",
        r"Error 20? connecting to /",
    ),
    RedisFailure(
        "this user may not open Redis's socket",
        "set unixsocketperm in redis.conf, or run as a user of the socket's group",
        "redis-is-away",
        r"Error 13 connecting to /",
    ),
    RedisFailure(
        "Redis does not speak TLS here",
        "write redis:// instead of rediss://, or name the TLS port",
        "redis-cannot-be-trusted",
        rf"WRONG_VERSION_NUMBER|{WITHOUT_TLS}",
    ),
    RedisFailure(
        "Redis speaks TLS here",
        "write rediss:// instead of redis://, or name the port without TLS",
        "redis-cannot-be-trusted",
        WITH_TLS,
    ),
    RedisFailure(
        "another kind of server answers here",
        "name Redis's own port in redis.url (redis://HOST:6379, rediss:// with TLS), or that of "
        "Sentinels (redis+sentinel://HOST:26379/NAME, rediss+sentinel:// with TLS)",
        "redis-is-away",
        r"it is (?!a server that (takes|closes))",
    ),
    RedisFailure(
        "Redis has rejected the TLS connection",
        "if it requires a client certificate (tls-auth-clients), set one that it trusts in "
        "redis.url: rediss://...&ssl_certfile=/path/client.pem&ssl_keyfile=/path/client.key",
        "redis-cannot-be-trusted",
        r"_ALERT_|EOF occurred in violation of protocol",
    ),
    RedisFailure(
        "a slot of the Redis Cluster is being moved",
        "wait until it has moved; `redis-cli --cluster fix` completes an abandoned move",
        "a-slot-is-being-moved",
        r"\bTRYAGAIN\b|non local key|TTL exhausted",
        (redis.exceptions.TryAgainError, redis.exceptions.AskError),
    ),
    RedisFailure(
        "a part of the Redis Cluster is down",
        "start its masters, or a replica of each",
        "a-part-of-the-redis-cluster-is-down",
        r"\b(CLUSTERDOWN|MASTERDOWN)\b|Redis Cluster node is unreachable|cluster is down",
        (redis.exceptions.ClusterDownError,),
    ),
    RedisFailure(
        "the keys of a call are on several nodes",
        "name the Redis Cluster itself in redis.url, not a proxy that hides it",
        "redis-is-behind-a-proxy",
        r"\bCROSSSLOT\b",
        (redis.exceptions.ClusterCrossSlotError,),
    ),
    RedisFailure(
        "a script keeps Redis busy",
        "find it with `redis-cli SLOWLOG GET`; it ends by itself",
        "redis-is-busy",
        r"\bBUSY\b",
    ),
    RedisFailure(
        "Redis has no database of this number",
        "name another one in redis.url, from 0 to 15 unless `databases` in redis.conf says more",
        "redis-is-away",
        r"\bDB index is out of range",
    ),
    RedisFailure(
        "the Sentinels name no master",
        "check with `redis-cli -p 26379 SENTINEL MASTERS`",
        "redis-is-away",
        kinds=(MasterNotFoundError,),
    ),
)
REDIS_UNREACHABLE = RedisFailure(
    "Redis does not answer",
    "start it, or check the network",
    "redis-is-away",
    kinds=(redis.ConnectionError, redis.TimeoutError, OSError),
)
UNKNOWN_FAILURE = RedisFailure("Redis refuses", "see Redis's message", "redis-is-away")


def classify(error: Exception) -> RedisFailure:
    """Return the failure that an error of Redis stands for."""
    return next(
        (failure for failure in (*REDIS_FAILURES, REDIS_UNREACHABLE) if failure.covers(error)),
        UNKNOWN_FAILURE,
    )


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
