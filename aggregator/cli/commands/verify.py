"""`dither verify`: compare the sums with a replay of the log."""

from __future__ import annotations

import json
import sys

import click

from aggregator.config.settings import Settings
from aggregator.kafka import clients
from aggregator.terminal.options import defined_metrics, opened_store, settings_options
from aggregator.terminal.output import progress_bar
from aggregator.verifying.state_differences import NOT_COMPARED
from aggregator.verifying.verify import verify as replay

MAX_SHOWN_DIFFERENCES = 50
PLAIN_FACTS = ("partitions", "messages", "panes", "uncounted", "halted", "skipped", "definitions")
"""Attributes of a verification that --json prints unchanged."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--allow-truncated",
    is_flag=True,
    help="Skip panes whose reports were deleted by Kafka's retention.",
)
@settings_options
def verify(settings: Settings, as_json: bool, allow_truncated: bool) -> None:
    """Replay the log and compare the result with the state in Redis, byte by byte.

    Each difference is printed with its partition and pane. The exit code is 1 if there is a
    difference, or if a partition has messages in its log and no state in Redis; otherwise it is 0.
    Messages that are not counted yet are reported. The command is safe while workers run. Each
    message is judged by the definitions that were in force when it was counted; metrics.toml
    applies only to messages from before Dither stored definitions.
    """
    metrics = defined_metrics(settings)
    clients.admin(settings, settings.topics.reports)
    store = opened_store(settings)
    to_read = sum(int(store.owner(number).get("next", 0)) for number in store.partitions())
    next_offsets: dict[int, int] = {}
    with progress_bar("replaying", to_read, is_quiet=as_json) as bar:

        def progress(partition: int, offset: int) -> None:
            bar.update(offset - next_offsets.get(partition, 0))
            next_offsets[partition] = offset

        outcome = replay(settings, metrics, store, progress)
    truncated = [] if allow_truncated else outcome.unverifiable
    failed = bool(outcome.differences or truncated or outcome.unjudged)
    unverifiable = [*outcome.unverifiable, *outcome.unjudged]
    if as_json:
        document = {name: getattr(outcome, name) for name in PLAIN_FACTS}
        document["verified"], document["not_compared"] = not failed, NOT_COMPARED
        document["differences"] = [str(difference) for difference in outcome.differences]
        document["unverifiable"] = [str(difference) for difference in unverifiable]
        click.echo(json.dumps(document))
    else:
        for difference in [*outcome.differences, *unverifiable][:MAX_SHOWN_DIFFERENCES]:
            click.echo(difference)
        click.echo(
            f"{outcome.messages} messages of {outcome.partitions} partitions replayed, "
            f"{outcome.panes} panes compared: "
            f"{len(outcome.differences)} differences, {len(unverifiable)} not verifiable"
        )
        click.echo(f"not compared, of each partition's owner: {', '.join(NOT_COMPARED)}")
        for number, reason in outcome.halted.items():
            click.echo(f"partition {number} is halted: {reason}")
        for number, offsets in outcome.skipped.items():
            click.echo(f"partition {number}: offsets {offsets} were skipped, and are in no sum")
        if outcome.uncounted:
            click.echo(
                f"{sum(outcome.uncounted.values())} messages of {len(outcome.uncounted)} "
                "partitions are not counted yet"
            )
        if (changes := len(outcome.definitions) - 1) > 0:
            click.echo(
                f"the definitions changed {changes} time{'s' * (changes > 1)}: each message was "
                "judged by the definitions in force when it was counted"
            )
    sys.exit(1 if failed else 0)
