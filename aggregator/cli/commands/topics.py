"""`dither topics`: create what is missing, so that no other role has to."""

from __future__ import annotations

import json

import click

from aggregator.cli.commands.options import settings_options
from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.kafka import topic_admin


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def topics(settings: Settings, as_json: bool) -> None:
    """Create the Kafka topics that are missing, as [topics] describes them.

    Workers, servers and `dither produce` do it, too, where they may; where each role has its own
    rights only (`dither roles`), this is the operator's.
    """
    if not settings.topics.managed:
        raise DitherError("topics.managed is false: Dither leaves this cluster's topics alone")
    created = topic_admin.ensure_topics(settings)
    if as_json:
        click.echo(json.dumps({"created": created}))
    else:
        click.echo(f"created: {', '.join(created)}" if created else "nothing is missing")
