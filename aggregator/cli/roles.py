"""The rights that each role needs in Kafka and Redis, and no others.

`dither roles` prints this list, docs/security.md shows it, and
tests/services/security/test_rights.py runs each role with its rights, and with each right missing.
"""

from __future__ import annotations

import dataclasses
import shlex

from aggregator.config.settings import Settings
from aggregator.storage import redis_keys
from producers.device.round_follower import CONSUMER_GROUP

USER_PREFIX = "dither-"


@dataclasses.dataclass(frozen=True)
class KafkaRight:
    """An operation that an ACL of Kafka allows.

    Attributes
    ----------
    operation : str
        The operation, such as ``Read`` or ``Write``, which include Describe.
    resource : str
        ``topic``, ``group`` or ``transactional-id``.
    name : str
        The name of the topic, the group or the transactional id.
    prefixed : bool
        Whether the right is for all names that begin with `name`.
    """

    operation: str
    resource: str
    name: str
    prefixed: bool = False

    def __str__(self) -> str:
        """Return the right in words."""
        return f"{self.operation} {self.resource} {self.name}{'*' * self.prefixed}"

    def options(self) -> list[str]:
        """Return the right as options of kafka-acls.sh."""
        pattern = ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        return ["--operation", self.operation, f"--{self.resource}", self.name, *pattern]


@dataclasses.dataclass(frozen=True)
class Role:
    """A role: what it does, and its rights.

    Attributes
    ----------
    does : str
        What the role does, or which programs have it.
    redis : tuple of str
        Rules of Redis's ACL: keys, then commands; a selector in parentheses has keys for its
        commands alone. Empty if the role needs no user.
    """

    name: str
    does: str
    kafka: tuple[KafkaRight, ...] = ()
    redis: tuple[str, ...] = ()

    @property
    def user(self) -> str:
        """The name of the role's user in the examples."""
        return USER_PREFIX + self.name


def roles(settings: Settings) -> dict[str, Role]:
    """Return every role of a deployment, by name."""
    topics, group, reports = settings.topics, settings.aggregate.group, settings.topics.reports
    all_roles = (
        Role(
            "reporter",
            "a device, an application with producers.Reporter, `dither produce`",
            kafka=(KafkaRight("Write", "topic", reports),),
        ),
        Role(
            "respondent",
            "a device that answers rounds, with producers.Rounds and a Reporter",
            kafka=(
                KafkaRight("Write", "topic", reports),
                KafkaRight("Read", "topic", topics.rounds),
                KafkaRight("Describe", "group", CONSUMER_GROUP),
            ),
        ),
        Role(
            "gateway",
            "`dither serve` that takes reports: publish.enabled = false",
            kafka=(KafkaRight("Write", "topic", reports),),
            redis=(f"%R~{redis_keys.rounds_key(reports)}", *_commands("ping hgetall")),
        ),
        Role(
            "worker",
            "`dither aggregate`",
            kafka=(
                KafkaRight("Read", "topic", reports),
                KafkaRight("Read", "group", group),
                KafkaRight("Write", "topic", topics.deadletters),
            ),
            redis=_worker(reports),
        ),
        Role(
            "reader",
            "`dither estimate`, `watch`, `metrics`, aggregator.Reader; `dither serve` with "
            "serve.gateway = false and publish.enabled = false",
            kafka=(KafkaRight("Describe", "topic", reports),),  # the end of the log, for the lag
            redis=_reader(reports),
        ),
        Role(
            "publisher",
            "`dither serve` that reads and publishes: serve.gateway = false",
            kafka=(
                KafkaRight("Write", "topic", topics.estimates),
                KafkaRight("Read", "topic", topics.estimates),
                KafkaRight("Write", "transactional-id", f"dither.publisher.{reports}"),
                KafkaRight("Describe", "group", f"{group}-publisher"),
                KafkaRight("Write", "topic", reports),  # for heartbeats, and the ends of partitions
            ),
            redis=_publisher(reports),
        ),
        Role(
            "coordinator",
            "`dither coordinate`",
            kafka=(
                KafkaRight("Write", "topic", topics.rounds),
                KafkaRight("Read", "topic", topics.rounds),
                KafkaRight("Write", "transactional-id", f"dither.coordinator.{reports}"),
                KafkaRight("Describe", "group", f"{group}-coordinator"),
                KafkaRight("Describe", "topic", reports),  # where the log ends
            ),
            redis=_coordinator(reports),
        ),
        Role(
            "verifier",
            "`dither verify`",
            kafka=(
                KafkaRight("Read", "topic", reports),
                KafkaRight("Describe", "group", "dither-verify-", prefixed=True),
            ),
            redis=_verifier(reports),
        ),
        Role(
            "operator",
            "`dither topics`, `dither weights`",
            kafka=tuple(
                KafkaRight("Create", "topic", topic)
                for topic in (reports, topics.deadletters, topics.estimates, topics.rounds)
            ),
            redis=(f"~{redis_keys.policies_key(reports)}", "+ping", "+hgetall", "+hset"),
        ),
        Role(
            "recounter",
            "`dither recount`: it deletes what was counted",
            kafka=(KafkaRight("Describe", "topic", reports),),  # where the log begins and ends
            redis=(
                f"~{_partitions(reports)}",
                *_commands(f"ping hgetall smembers hset hget scan unlink {SCRIPT_COMMANDS}"),
            ),
        ),
        Role("scraper", "Prometheus: a token with scope read, where [access] asks for one"),
    )
    return {role.name: role for role in all_roles}


def _partitions(topic: str) -> str:
    """Return a pattern that matches the keys of all partitions of a topic."""
    return redis_keys.tag(topic, 0).removesuffix("0}") + "*"


def _commands(names: str) -> tuple[str, ...]:
    return tuple(f"+{name}" for name in names.split())


def _worker(topic: str) -> tuple[str, ...]:
    return (
        f"~{_partitions(topic)}",
        f"%W~{redis_keys.partitions_key(topic)}",
        f"~{redis_keys.deaths_key(topic)}",
        f"~{redis_keys.definitions_key(topic)}",
        f"%W~{redis_keys.stuck_key(topic)}",
        *_commands("ping info evalsha script|load hgetall hmget smembers get exists type"),
        *_commands("getrange strlen hlen hscan scard zcard"),
        *_commands(
            "sadd srem set setrange zadd hset hincrby hdel del unlink pexpire pexpireat incrby"
        ),
    )


SCRIPT_COMMANDS = "evalsha script|load"
"""Commands that run any script: a role that only reads must not have them."""
READ_COMMANDS = (
    "ping smembers sismember smismember sscan scard hgetall hmget hscan get mget exists pttl"
)


def _partition_reads(topic: str) -> tuple[str, ...]:
    return f"%R~{_partitions(topic)}", f"%R~{redis_keys.partitions_key(topic)}"


def _reader(topic: str) -> tuple[str, ...]:
    return (
        *_partition_reads(topic),
        f"%R~{redis_keys.policies_key(topic)}",
        f"%R~{redis_keys.rounds_key(topic)}",
        f"%R~{redis_keys.coordinator_key(topic)}:lease",
        f"%R~{redis_keys.deaths_key(topic)}",
        f"%R~{redis_keys.stuck_key(topic)}",
        *_commands(f"{READ_COMMANDS} zrangebyscore zrange zrevrange zcard info"),
        f"%R~{redis_keys.publisher_key(topic)}:*",
    )


def _publisher(topic: str) -> tuple[str, ...]:
    writes = " ".join(_commands(f"{SCRIPT_COMMANDS} incr set pexpire del zadd sadd hset hincrby"))
    return (*_reader(topic), f"(~{redis_keys.publisher_key(topic)}:* {writes})")


def _coordinator(topic: str) -> tuple[str, ...]:
    writes = " ".join(_commands(f"{SCRIPT_COMMANDS} exists incr set pexpire del hset hget"))
    return (
        *_partition_reads(topic),
        f"%R~{redis_keys.policies_key(topic)}",
        f"%R~{redis_keys.coordinator_key(topic)}:*",
        *_commands("ping smembers smismember scard zcard zrevrange hgetall hmget hscan get pttl"),
        f"(~{redis_keys.coordinator_key(topic)}:* {writes})",
    )


def _verifier(topic: str) -> tuple[str, ...]:
    return (
        *_partition_reads(topic),
        f"%R~{redis_keys.definitions_key(topic)}",
        *_commands(
            "ping smembers hgetall hmget get getrange strlen mget scard zcard zrangebyscore"
        ),
    )


def kafka_commands(role: Role) -> list[str]:
    """Return calls of kafka-acls.sh that give a role its rights."""
    principal = ["--add", "--allow-principal", f"User:{role.user}"]
    return [f"acls {shlex.join([*principal, *right.options()])}" for right in role.kafka]


def redis_rule(role: Role) -> str:
    """Return a role's line for Redis's ACL file; its user has no password and cannot log in yet."""
    return f"user {role.user} on resetkeys resetchannels -@all {' '.join(role.redis)}"
