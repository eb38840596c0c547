"""The rights that each role needs in Kafka and Redis, and no others.

`dither roles` prints this list, docs/security.md shows it, and
tests/services/security/test_rights.py runs each role with its rights, and with each right missing.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Self

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

    @classmethod
    def parse(cls, text: str, names: Mapping[str, str]) -> Self:
        """Return a right of `RIGHTS_BY_ROLE`; an asterisk ends a prefix of names."""
        operation, resource, name = text.split(" ")
        return cls(operation, resource, name.rstrip("*").format(**names), name.endswith("*"))

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


READ_COMMANDS = (
    "+ping +smembers +sismember +smismember +sscan +scard +hgetall +hmget +hscan +get +mget "
    "+exists +pttl"
)
SCRIPT_COMMANDS = "+evalsha +script|load"
"""Commands that run any script: a role that only reads must not have them."""
READER_RULES = (
    "%R~{partitions} %R~{counted_partitions} %R~{policies} %R~{published_rounds} "
    "%R~{coordinator}:lease %R~{deaths} %R~{stuck} "
    f"{READ_COMMANDS} +zrangebyscore +zrange +zrevrange +zcard +info %R~{{publisher}}:*"
)
RIGHTS_BY_ROLE = {
    "reporter": (
        "a device, an application with producers.Reporter, `dither produce`",
        "Write topic {reports}",
        "",
    ),
    "respondent": (
        "a device that answers rounds, with producers.Rounds and a Reporter",
        "Write topic {reports}, Read topic {rounds}, Describe group {respondents}",
        "",
    ),
    "gateway": (
        "`dither serve` that takes reports: publish.enabled = false",
        "Write topic {reports}",
        "%R~{published_rounds} +ping +hgetall",
    ),
    "worker": (
        "`dither aggregate`",
        "Read topic {reports}, Read group {group}, Write topic {deadletters}",
        "~{partitions} %W~{counted_partitions} ~{deaths} ~{definitions} %W~{stuck} +ping +info "
        f"{SCRIPT_COMMANDS} +hgetall +hmget +smembers +get +exists +type +getrange +strlen +hlen "
        "+hscan +scard +zcard +sadd +srem +set +setrange +zadd +hset +hincrby +hdel +del +unlink "
        "+pexpire +pexpireat +incrby",
    ),
    "reader": (
        "`dither estimate`, `watch`, `metrics`, aggregator.Reader; `dither serve` with "
        "serve.gateway = false and publish.enabled = false",
        "Describe topic {reports}",  # the end of the log, for the lag
        READER_RULES,
    ),
    "publisher": (
        "`dither serve` that reads and publishes: serve.gateway = false",
        # reports: for heartbeats, and the ends of partitions
        "Write topic {estimates}, Read topic {estimates}, Write transactional-id "
        "dither.publisher.{reports}, Describe group {group}-publisher, Write topic {reports}",
        f"{READER_RULES} (~{{publisher}}:* {SCRIPT_COMMANDS} +incr +set +pexpire +del +zadd +sadd "
        "+hset +hincrby)",
    ),
    "coordinator": (
        "`dither coordinate`",
        # reports: where the log ends
        "Write topic {rounds}, Read topic {rounds}, Write transactional-id dither.coordinator."
        "{reports}, Describe group {group}-coordinator, Describe topic {reports}",
        "%R~{partitions} %R~{counted_partitions} %R~{policies} %R~{coordinator}:* +ping +smembers "
        "+smismember +scard +zcard +zrevrange +hgetall +hmget +hscan +get +pttl "
        f"(~{{coordinator}}:* {SCRIPT_COMMANDS} +exists +incr +set +pexpire +del +hset +hget)",
    ),
    "verifier": (
        "`dither verify`",
        "Read topic {reports}, Describe group dither-verify-*",
        "%R~{partitions} %R~{counted_partitions} %R~{definitions} +ping +smembers +hgetall +hmget "
        "+get +getrange +strlen +mget +scard +zcard +zrangebyscore",
    ),
    "operator": (
        "`dither topics`, `dither weights`",
        "Create topic {reports}, Create topic {deadletters}, Create topic {estimates}, "
        "Create topic {rounds}",
        "~{policies} +ping +hgetall +hset",
    ),
    "recounter": (
        "`dither recount`: it deletes what was counted",
        "Describe topic {reports}",  # where the log begins and ends
        f"~{{partitions}} +ping +hgetall +smembers +hset +hget +scan +unlink {SCRIPT_COMMANDS}",
    ),
    "scraper": ("Prometheus: a token with scope read, where [access] asks for one", "", ""),
}
"""What each role does, its rights in Kafka, and its rules in Redis. A name in braces is that of a
topic, of a group or of a key of Redis."""
REDIS_RULE = re.compile(r"\([^)]*\)|\S+")


def roles(settings: Settings) -> dict[str, Role]:
    """Return every role of a deployment, by name."""
    reports = settings.topics.reports
    names = {
        "reports": reports,
        "deadletters": settings.topics.deadletters,
        "estimates": settings.topics.estimates,
        "rounds": settings.topics.rounds,
        "group": settings.aggregate.group,
        "respondents": CONSUMER_GROUP,
        "partitions": redis_keys.tag(reports, 0).removesuffix("0}") + "*",
        "counted_partitions": redis_keys.partitions_key(reports),
        "definitions": redis_keys.definitions_key(reports),
        "policies": redis_keys.policies_key(reports),
        "published_rounds": redis_keys.rounds_key(reports),
        "publisher": redis_keys.publisher_key(reports),
        "coordinator": redis_keys.coordinator_key(reports),
        "deaths": redis_keys.deaths_key(reports),
        "stuck": redis_keys.stuck_key(reports),
    }
    all_roles = {}
    for name, (does, kafka, redis) in RIGHTS_BY_ROLE.items():
        rights = [KafkaRight.parse(right, names) for right in filter(None, kafka.split(", "))]
        rules = [rule.format(**names) for rule in REDIS_RULE.findall(redis)]
        all_roles[name] = Role(name, does, tuple(rights), tuple(rules))
    return all_roles


def kafka_commands(role: Role) -> list[str]:
    """Return calls of kafka-acls.sh that give a role its rights."""
    principal = ["--add", "--allow-principal", f"User:{role.user}"]
    return [f"acls {shlex.join([*principal, *right.options()])}" for right in role.kafka]


def redis_rule(role: Role) -> str:
    """Return a role's line for Redis's ACL file; its user has no password and cannot log in yet."""
    return f"user {role.user} on resetkeys resetchannels -@all {' '.join(role.redis)}"
