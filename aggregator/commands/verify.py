"""`dither verify`: prove the sums from the log."""

from __future__ import annotations

import json
import sys

import click

from aggregator import kafka
from aggregator.commands.options import defined_metrics, settings_options
from aggregator.settings import Settings
from aggregator.store import Store, connect
from aggregator.verify import verify as replay

SHOWN = 50


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--allow-truncated",
    is_flag=True,
    help="Do not fail for panes whose reports Kafka has deleted by retention.",
)
@settings_options
def verify(settings: Settings, as_json: bool, allow_truncated: bool) -> None:
    """Replay the log and compare the state in Redis byte by byte.

    Every difference is named with its partition and pane. Exits 0 if there is none, else 1. Safe
    while workers are running.
    """
    metrics = defined_metrics(settings)
    kafka.admin(settings)
    store = Store(connect(settings.redis.url), settings.topics.reports)
    tell = sys.stderr.isatty() and not as_json

    def progress(partition: int, reached: int, end: int) -> None:
        if tell:
            click.echo(f"\rpartition {partition}: {reached} of {end} ", nl=False, err=True)

    outcome = replay(settings, metrics, store, progress)
    failed = bool(outcome.differences or (outcome.unverifiable and not allow_truncated))
    if as_json:
        found = {
            "verified": not failed,
            "partitions": outcome.partitions,
            "messages": outcome.messages,
            "panes": outcome.panes,
            "differences": [str(d) for d in outcome.differences],
            "unverifiable": [str(d) for d in outcome.unverifiable],
        }
        click.echo(json.dumps(found))
    else:
        if tell:
            click.echo(err=True)
        for difference in [*outcome.differences, *outcome.unverifiable][:SHOWN]:
            click.echo(difference)
        click.echo(
            f"{outcome.messages} messages of {outcome.partitions} partitions replayed, "
            f"{outcome.panes} panes compared: "
            f"{len(outcome.differences)} differences, {len(outcome.unverifiable)} not verifiable"
        )
    sys.exit(1 if failed else 0)
