"""The rights that each role needs in Kafka and Redis, and no others: those in roles.toml.

`dither roles` prints this list, docs/security.md shows it, and
tests/services/security/test_rights.py runs each role with its rights, and with each right missing.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
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
        """Return a right of roles.toml; an asterisk ends a prefix of names."""
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
    stated = tomllib.loads(Path(__file__).with_name("roles.toml").read_text(encoding="utf-8"))
    names |= {name: rule.format(**names) for name, rule in stated["rules"].items()}
    all_roles = {}
    for name, role in stated["roles"].items():
        rights = [KafkaRight.parse(right, names) for right in role.get("kafka", ())]
        rules = REDIS_RULE.findall(role.get("redis", "").format(**names))
        all_roles[name] = Role(name, role["does"], tuple(rights), tuple(rules))
    return all_roles


def kafka_commands(role: Role) -> list[str]:
    """Return calls of kafka-acls.sh that give a role its rights."""
    principal = ["--add", "--allow-principal", f"User:{role.user}"]
    return [f"acls {shlex.join([*principal, *right.options()])}" for right in role.kafka]


def redis_rule(role: Role) -> str:
    """Return a role's line for Redis's ACL file; its user has no password and cannot log in yet."""
    return f"user {role.user} on resetkeys resetchannels -@all {' '.join(role.redis)}"
