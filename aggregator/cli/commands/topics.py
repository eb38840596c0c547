"""`dither topics`: create missing topics, so that no other role needs the right to create them."""

from __future__ import annotations

import json

import click

from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.kafka import topic_admin
from aggregator.terminal.options import settings_options


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def topics(settings: Settings, as_json: bool) -> None:
    """Create the Kafka topics that are missing, as [topics] describes them.

    Workers, servers and `dither produce` also create them if they have the right. If each role has
    only its own rights (`dither roles`), the operator runs this command.
    """
    if not settings.topics.managed:
        raise DitherError("topics.managed is false: Dither does not create topics on this cluster")
    created = topic_admin.ensure_topics(settings)
    text = f"created: {', '.join(created)}" if created else "all topics exist"
    click.echo(json.dumps({"created": created}) if as_json else text)
