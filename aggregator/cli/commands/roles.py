"""`dither roles`: the rights that each role needs in Kafka and Redis."""

from __future__ import annotations

import dataclasses
import itertools
import json

import click

from aggregator.cli.roles import Role, kafka_commands, redis_rule
from aggregator.cli.roles import roles as all_roles
from aggregator.config.settings import Settings
from aggregator.terminal.options import settings_options
from estimators.errors import meant

KAFKA_HEAD = """\
#!/bin/sh
# The rights of Dither's roles in Kafka: nothing else is needed. From `dither roles --kafka-acls`.
# BOOTSTRAP=broker:9093 ADMIN=admin.properties sh kafka-acls.sh
set -eu
acls() { kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN" "$@"; }
"""


@click.command()
@click.argument("name", required=False)
@click.option(
    "--kafka-acls", "output_format", flag_value="kafka", help="Print commands of kafka-acls.sh."
)
@click.option(
    "--redis-acl", "output_format", flag_value="redis", help="Print lines of Redis's ACL file."
)
@click.option("--json", "output_format", flag_value="json", help="Print one JSON object.")
@settings_options
def roles(settings: Settings, name: str | None, output_format: str | None) -> None:
    """List the rights that each role, or the role NAME, needs in Kafka and Redis.

    Topics and the consumer group come from the settings. The command connects to nothing. The users
    of --redis-acl have no password: nobody can log in before an administrator sets one
    (docs/security.md).
    """
    roles_by_name = all_roles(settings)
    if name is not None and name not in roles_by_name:
        raise click.UsageError(f"no role {name!r}: {meant(name, roles_by_name)}")
    selected_roles = [role for role in roles_by_name.values() if name in (None, role.name)]
    if output_format == "json":
        documents = {r.name: {**dataclasses.asdict(r), "user": r.user} for r in selected_roles}
        click.echo(json.dumps(documents))
    elif output_format == "kafka":
        commands = itertools.chain.from_iterable(map(kafka_commands, selected_roles))
        click.echo(KAFKA_HEAD + "\n".join(commands))
    elif output_format == "redis":
        click.echo("\n".join(redis_rule(role) for role in selected_roles if role.redis))
    else:
        click.echo("\n\n".join(_as_text(role) for role in selected_roles))


def _as_text(role: Role) -> str:
    rights = ", ".join(map(str, role.kafka)) or "none"
    return f"{role.name}: {role.does}\n  Kafka  {rights}\n  Redis  {' '.join(role.redis) or 'none'}"
