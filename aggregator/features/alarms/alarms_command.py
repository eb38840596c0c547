"""`dither alarms`: the state of alarms, when they were raised, and the evidence of their series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
import msgspec

from aggregator.config.settings import Settings
from aggregator.features.alarms.alarm_answers import (
    AlarmAnswer,
    AlarmsAnswer,
    alarms_frame,
    all_alarms,
    definition_of,
)
from aggregator.features.alarms.run import AlarmRaised, AlarmRun, WatchedPane
from aggregator.reading.frames.frame import Frame
from aggregator.reading.grouping import slice_name
from aggregator.terminal.estimate_text import table
from aggregator.terminal.options import opened_reader, settings_options
from aggregator.terminal.output import Output, output_options
from aggregator.timestamps import iso

NOT_KNOWN = "-"
STEP_COLUMNS = (
    *("alarm", "metric", "slice", "label", "window_start", "evidence", "informative", "raised"),
)


@click.group(invoke_without_command=True)
@output_options
@settings_options
@click.pass_context
def alarms(ctx: click.Context, settings: Settings, output: Output) -> None:
    """Show the state of the defined alarms, and when they were raised.

    A metric without an alarm may have moved, too: "could see" is the smallest move that would have
    been detected by now with a probability of about 90%.
    """
    if ctx.invoked_subcommand is not None:
        return
    answer = all_alarms(opened_reader(settings))
    output.show(
        lambda: alarms_frame(answer),
        lambda: msgspec.json.encode(answer).decode(),
        lambda: "\n".join(_lines(answer)),
    )


@alarms.command()
@click.argument("name")
@output_options
@settings_options
def replay(settings: Settings, name: str, output: Output) -> None:
    """Compute alarm NAME again from its start, and show each pane's evidence.

    Raised alarms are printed byte for byte as in their events; a table (--csv, --parquet) has only
    the evidence. With --json there is an object for each pane and series. Nothing is published or
    stored.
    """
    reader = opened_reader(settings)
    run = AlarmRun(reader, definition_of(reader, name))
    overview = reader.progress(run.metric.name)
    closed = reader.finality_watermarks(overview).get(run.metric.name, 0)
    panes = run.advance(overview, closed)
    if output.is_table:
        output.write(_steps_frame(name, run.metric.name, panes))
    else:
        for pane in panes:
            _show(pane, output.as_json)
    if run.reason or run.is_learning:
        click.echo(run.reason or "the baseline is not final yet", err=True)


def _steps_frame(alarm: str, metric: str, panes: Iterable[WatchedPane]) -> Frame:
    """Return a table with the evidence of each pane and series.

    `alarm`, `metric`: the names of the alarm and of its metric; `panes`: the panes with their
    evidence.
    """
    rows = (
        (
            *(alarm, metric, slice_name(series.slice), series.category, pane.start_ms),
            *(step.evidence / step.needed, step.informative, bool(step.raised)),
        )
        for pane in panes
        for series, step in pane.steps
    )
    return Frame.of(STEP_COLUMNS, rows)


def _show(pane: WatchedPane, as_json: bool) -> None:
    """Print the evidence of a pane's series, and the events that it raised."""
    raised = iter(pane.raised)
    if not pane.steps:
        click.echo(f"{iso(pane.start_ms)}  has expired", err=True)
    for series, step in pane.steps:
        share = step.evidence / step.needed
        if as_json:
            identity = {"pane": iso(pane.start_ms), "series": series.name, "evidence": share}
            evidence = {"informative": step.informative, "raised": step.raised}
            click.echo(msgspec.json.encode({**identity, **evidence}).decode())
        else:
            mark = "" if step.informative else "  no reports at some level"
            click.echo(f"{iso(pane.start_ms)}  {series.name or 'all'}  {share:.3f}{mark}")
        if step.raised:
            click.echo(msgspec.json.encode(next(raised)).decode())


def _lines(answer: AlarmsAnswer) -> Iterator[str]:
    if not answer.alarms:
        yield "no alarms: the definitions have no table [alarms.NAME] (docs/alarms.md)"
        return
    for alarm in answer.alarms:
        yield from _alarm(alarm)
        yield ""
    promised = f"{answer.promised_per_year:.3g}"
    expected = f"{promised} false alarm{'' if promised == '1' else 's'}"
    yield f"All alarms together: at most {expected} a year expected"


def _alarm(alarm: AlarmAnswer) -> Iterator[str]:
    progress = "no pane yet" if alarm.until is None else f"until {alarm.until}"
    yield f"{alarm.alarm}: metric {alarm.metric}, {alarm.state}, looked at {progress}"
    yield f"  {alarm.promise}"
    if alarm.reason:
        yield f"  {alarm.reason}"
    if alarm.skipped:
        yield f"  {alarm.skipped} panes had expired before they were looked at"
    rows = [
        (
            " ".join(series.names) or "all",
            NOT_KNOWN if series.baseline is None else _number(series.baseline.value),
            NOT_KNOWN if series.evidence is None else f"{series.evidence:.2f}",
            NOT_KNOWN if series.smallest_shift is None else _number(series.smallest_shift),
            series.alarms,
            series.reason,
        )
        for series in alarm.series
    ]
    head = ("series", "baseline", "evidence", "could see", "alarms", "")
    yield from (f"  {line}".rstrip() for line in table(head, rows).splitlines())
    for raised in alarm.raised[:5]:
        yield f"  {_raised(raised)}"


def _raised(raised_alarm: AlarmRaised) -> str:
    names = " ".join(raised_alarm.names)
    value = NOT_KNOWN if raised_alarm.now.value is None else _number(raised_alarm.now.value)
    baseline = _number(raised_alarm.baseline.value)
    return (
        f"{raised_alarm.at}  {names + ' ' if names else ''}went {raised_alarm.direction} "
        f"from {baseline} to {value} {raised_alarm.unit}".rstrip()
        + f", about since {raised_alarm.since}"
    )


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | int) else NOT_KNOWN
