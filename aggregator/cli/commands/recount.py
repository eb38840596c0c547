"""`dither recount`: delete the sums of partitions, so that workers count their log again."""

from __future__ import annotations

import click

from aggregator.config.settings import Settings
from aggregator.counting import recount as recounting
from aggregator.errors import DitherError
from aggregator.kafka import topic_admin
from aggregator.kafka.log_ends import KafkaLog
from aggregator.terminal.options import opened_store, settings_options


@click.command()
@click.argument("partitions", nargs=-1, required=True, type=click.IntRange(0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Also delete counts of reports that the log no longer has. They can never be counted "
    "again.",
)
@settings_options
def recount(settings: Settings, partitions: tuple[int, ...], yes: bool, accept_loss: bool) -> None:
    """Delete the counts of PARTITIONS, so that workers count them again from their log.

    Use it for partitions whose state in Redis was damaged. Workers may run: none of them counts a
    partition while its counts are deleted, and they try again within 15 seconds. Until a partition
    is counted again, estimates lack it and no window is final. Published events stay. Messages that
    are refused again appear among the dead letters again.

    The command refuses if the log no longer has everything that was counted.
    """
    store, numbers = opened_store(settings), sorted(set(partitions))
    owners = {number: recounting.read_owner(store, number) for number in numbers}
    ends = KafkaLog(settings).ask()  # read after the owners, because workers count meanwhile
    if ends.unknown and not accept_loss:
        raise DitherError(
            f"{ends.unknown}: it is unknown whether the log still has everything that was counted. "
            "Try again, or accept a possible loss with --accept-loss"
        )
    topic_id = "" if ends.unknown else topic_admin.topic_id(settings, settings.topics.reports)
    losses = []
    for number in numbers:
        if not ends.unknown and number not in ends.ranges:
            missing = f"{settings.topics.reports!r} has no partition {number}"
            raise click.UsageError(f"{missing}: expected 0 to {max(ends.ranges)}")
        low, high = ends.ranges.get(number, (0, 0))
        owner = owners[number]
        why = "" if ends.unknown else recounting.describe_loss(owner, low, high, topic_id)
        losses += [f"partition {number}: {why}"] * bool(why)
        click.echo(f"partition {number}: counted from {_counted(owner)}", err=True)
    if losses and not accept_loss:
        raise DitherError(
            "; ".join(losses)
            + ". Nothing was deleted, because counts of reports that the log no longer has would "
            "be lost for good. Restore Redis from a backup; or accept the loss with --accept-loss, "
            "and start the workers with `--set aggregate.on_gap=skip`"
        )
    if not yes:
        names = ", ".join(map(str, numbers))
        click.confirm(f"Delete the counts of partitions {names}?", abort=True, err=True)
    for number in numbers:
        deleted = recounting.delete_counts(store, number)
        low = ends.ranges.get(number, (0, 0))[0]
        counted_again = f"workers count it again from offset {low}"
        click.echo(f"partition {number}: {deleted} keys deleted; {counted_again}")


def _counted(owner: dict[str, str]) -> str:
    begin, following = owner.get("begin", "?"), int(owner.get("next", -1))
    end = str(following) if following >= 0 else "?"
    return f"offset {begin} to {end}, {owner.get('worker', 'nobody')} was the last to count it"
