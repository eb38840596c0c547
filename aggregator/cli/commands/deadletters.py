"""`dither deadletters`: list, explain, replay and drop messages that could not be counted."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.dead_letters.letter_description import letter_facts, letter_lines
from aggregator.dead_letters.letter_replay import Forecast
from aggregator.dead_letters.letter_replay import replay as send_again
from aggregator.dead_letters.reader import DeadLetter, DeadLetterTopic, MessagePosition, printable
from aggregator.dead_letters.reasons import REMEDY_BY_REASON, remedy
from aggregator.dead_letters.selection import Filters, HandledMarks, Selection
from aggregator.kafka import clients, topic_admin
from aggregator.reading.frames.frame import Frame
from aggregator.terminal.estimate_text import table
from aggregator.terminal.options import Moment, defined_metrics, opened_store, settings_options
from aggregator.terminal.output import Output, output_options, progress_bar
from aggregator.timestamps import iso
from estimators.errors import meant

SHOWN_KINDS = 30
USUAL_ROUNDS = 3


@click.group()
def deadletters() -> None:
    """List, explain, replay or drop messages that could not be counted.

    Refused messages go to the dead-letter topic unchanged, with the reason. `list` and `explain`
    change nothing. Messages that were replayed or dropped are no longer listed; the topic keeps
    them until its retention ends.
    """


def _check_reasons(
    _: click.Context, __: click.Parameter, reasons: tuple[str, ...]
) -> tuple[str, ...]:
    """Raise BadParameter for an unknown reason."""
    for reason in reasons:
        if reason not in REMEDY_BY_REASON:
            raise click.BadParameter(f"no reason {reason!r}: {meant(reason, REMEDY_BY_REASON)}")
    return reasons


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options that select dead letters to a command, which receives them as `filters`."""

    @click.option(
        "--reason",
        "reasons",
        multiple=True,
        callback=_check_reasons,
        help="Only this reason; may be repeated.",
    )
    @click.option("--metric", "names", multiple=True, help="Only this metric; may be repeated.")
    @click.option(
        "--since", type=Moment(), help="Only messages that reached Kafka at this time or later."
    )
    @click.option(
        "--until", type=Moment(), help="Only messages that reached Kafka before this time."
    )
    @click.option(
        "--partition",
        "partitions",
        type=click.IntRange(0),
        multiple=True,
        help="Only this partition of the reports topic; may be repeated.",
    )
    @functools.wraps(command)
    def with_filters(**arguments: Any) -> Any:
        names = ("reasons", "names", "since", "until", "partitions")
        return command(filters=Filters(*(arguments.pop(name) for name in names)), **arguments)

    return with_filters


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class _Read:
    """Reads the dead-letter topic, with a progress bar, and the marks of handled dead letters."""

    def __init__(self, settings: Settings, quiet: bool) -> None:
        clients.admin(settings)
        topic = click.get_current_context().with_resource(DeadLetterTopic(settings))
        self.topic, self.quiet, self.store = topic, quiet, opened_store(settings)
        topic_id = topic_admin.topic_id(settings, settings.topics.deadletters)
        self.handled = HandledMarks(self.store, settings.topics.deadletters, topic_id)
        self.marked = self.handled.read(topic.ranges)

    def letters(self) -> Iterator[DeadLetter]:
        """Yield the dead letters."""
        messages = sum(high - low for low, high in self.topic.ranges.values())
        with progress_bar("reading", messages, is_quiet=self.quiet) as bar:
            yield from self.topic.letters(bar.update)

    def tidy(self) -> None:
        """Mark the copies of marked letters; delete the marks of letters that Kafka has deleted."""
        marked = self.handled.read(self.topic.ranges)
        self.handled.mark(copy for first, copy in self.topic.copies if first in marked)
        self.handled.delete_expired(self.topic.ranges)

    def halted(self) -> dict[str, str]:
        """Return the reason why each halted partition is halted, by the partition's number."""
        owners = ((number, self.store.owner(number)) for number in self.store.partitions())
        return {str(number): why for number, owner in owners if (why := owner.get("halted", ""))}


@deadletters.command("list")
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    help="Number of single dead letters to show, from the start of the topic.",
)
@output_options
@settings_options
def list_(settings: Settings, filters: Filters, limit: int, output: Output) -> None:
    """Count the dead letters by reason and metric, and show the first ones.

    With --csv or --parquet only the shown dead letters are written, without the counts.
    """
    dead_letters = _Read(settings, output.as_json or output.is_table)
    selection = Selection(dead_letters.letters(), filters, dead_letters.marked)
    listed = selection.first(limit)
    foreign_messages, halted = dead_letters.topic.foreign_messages, dead_letters.halted()
    rows = [_row(letter) for letter in listed]
    names = ("place", "reason", "metric", "origin", "arrived", "bytes", "replays")
    document = {
        "topic": settings.topics.deadletters,
        "total": selection.total,
        "counts": _kinds(selection),
        "letters": rows,
        "handled": selection.handled,
        "others": foreign_messages,
        "halted": halted,
    }
    lines = [f"partition {number} is halted: {why}\n" for number, why in halted.items()]
    lines.append(_summary(selection))
    if listed:
        head = ("place", "reason", "metric", "from", "reached Kafka", "bytes", "sent again")
        lines.append("\n" + table(head, [tuple(row.values()) for row in rows]))
    if selection.total > len(listed):
        lines.append(f"\n{len(listed)} of {selection.total} are shown (--limit)")
    if selection.handled:
        lines.append(f"{selection.handled} were replayed or dropped before")
    if foreign_messages:
        reports = settings.topics.reports
        lines.append(f"{foreign_messages} messages of the topic are not dead letters of {reports}")
    output.show(
        lambda: Frame.of(
            names, [tuple((_row(x) | {"arrived": x.arrived}).values()) for x in listed]
        ),
        lambda: json.dumps(document),
        lambda: "\n".join(lines),
    )


@deadletters.command()
@click.argument("address", metavar="PARTITION:OFFSET")
@json_option
@settings_options
def explain(settings: Settings, address: str, as_json: bool) -> None:
    """Show one dead letter in full: content, reason, remedy.

    PARTITION:OFFSET is the position in the dead-letter topic, as `list` shows it.
    """
    try:
        letter_place = MessagePosition.parse(address)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    metrics = defined_metrics(settings)
    dead_letters = _Read(settings, as_json)
    letter = dead_letters.topic.letter(letter_place)
    rejection = (
        _forecast(settings, dead_letters, sys.maxsize).rejections([letter]).get(letter_place)
    )
    found_facts = letter_facts(
        letter, metrics, rejection, handled=letter_place in dead_letters.marked
    )
    click.echo(json.dumps(found_facts) if as_json else "\n".join(letter_lines(found_facts)))


@deadletters.command()
@filter_options
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=USUAL_ROUNDS,
    help="Skip messages that were replayed and refused this many times.",
)
@json_option
@settings_options
def replay(settings: Settings, filters: Filters, dry_run: bool, rounds: int, as_json: bool) -> None:
    """Send dead letters again, after you have repaired the cause.

    Each message goes to the partition it came from, with the same bytes, and is counted once,
    however often you run this command. Messages that the workers would refuse again, by the current
    definitions and watermarks, are not sent and stay listed.
    """
    dead_letters = _Read(settings, as_json)
    selection = Selection(dead_letters.letters(), filters, dead_letters.marked)
    forecast = _forecast(settings, dead_letters, rounds)
    outcome = send_again(settings, selection, forecast, None if dry_run else dead_letters.handled)
    if not dry_run:
        dead_letters.tidy()
    refused_kinds = outcome.kept.most_common()
    if as_json:
        kinds = [{"reason": r, "metric": m, "letters": n} for (r, m), n in refused_kinds]
        click.echo(json.dumps({"dry_run": dry_run, "sent": outcome.sent, "kept": kinds}))
        return
    verb = "would be sent" if dry_run else "were sent"
    click.echo(f"{outcome.sent} of {selection.total} dead letters {verb} again")
    if refused_kinds:
        rows = [(r, m, n, remedy(r).do) for (r, m), n in refused_kinds[:SHOWN_KINDS]]
        click.echo("the others would be refused again:\n")
        click.echo(table(("reason", "metric", "letters", "what to do"), rows))


@deadletters.command()
@filter_options
@click.option("--all", "everything", is_flag=True, help="Drop all of them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@settings_options
def drop(settings: Settings, filters: Filters, everything: bool, yes: bool, as_json: bool) -> None:
    """Mark dead letters as handled, so that they are no longer listed or replayed.

    Nothing is deleted: the topic keeps them until its retention ends.
    """
    if not filters and not everything:
        raise click.UsageError(
            "say which: --reason, --metric, --since, --until, --partition, or --all"
        )
    dead_letters = _Read(settings, as_json)
    selection = Selection(dead_letters.letters(), filters, dead_letters.marked)
    places = [letter.position for letter in selection]
    if not as_json:
        click.echo(_summary(selection))
    if selection.total and not yes:
        click.confirm(f"Drop these {selection.total}?", abort=True, err=True)
    dead_letters.handled.mark(places)
    dead_letters.tidy()
    if as_json:
        click.echo(json.dumps({"dropped": selection.total, "counts": _kinds(selection)}))
    else:
        click.echo(f"{selection.total} were dropped")


def _forecast(settings: Settings, dead_letters: _Read, rounds: int) -> Forecast:
    metrics, reports = defined_metrics(settings), settings.topics.reports
    partitions = topic_admin.partition_count(settings, reports)
    stamps = topic_admin.stamps_messages(settings, reports)
    return Forecast(settings, metrics, dead_letters.store, partitions, stamps=stamps, rounds=rounds)


def _kinds(selection: Selection) -> list[dict[str, Any]]:
    return [
        {
            "reason": printable(reason),
            "metric": metric,
            "letters": kind.letters,
            "reports": kind.reports,
            "oldest": iso(kind.oldest),
            "newest": iso(kind.newest),
        }
        for reason, metric, kind in selection.largest()
    ]


def _summary(selection: Selection) -> str:
    """Return a table of the counts by reason and metric; a sentence if there is no dead letter."""
    if not selection.total:
        return f"no dead letters{' other than those replayed or dropped' * bool(selection.handled)}"
    rows = [tuple(kind.values()) for kind in _kinds(selection)]
    listed = rows[:SHOWN_KINDS]
    if more := rows[SHOWN_KINDS:]:
        letters, reports = (sum(row[column] for row in more) for column in (2, 3))
        listed.append((f"{len(more)} more kinds", "", letters, reports, "", ""))
    return table(("reason", "metric", "letters", "reports", "oldest", "newest"), listed)


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": str(letter.position),
        "reason": printable(letter.reason),
        "metric": letter.metric,
        "from": str(letter.origin),
        "arrived": iso(letter.arrived),
        "bytes": letter.whole_bytes or len(letter.value or b""),
        "replays": letter.replays,
    }
