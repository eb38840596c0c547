"""The demo in a terminal: truth beside estimate, live, and the summary at the end."""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aggregator.local.demo_view import Outcome, View
from estimators.rounding import common_decimals, interval, nearest

MAX_SHOWN_NUMBERS = 5
FILE_COLUMNS = 120
"""The width of lines without a terminal, for programs that read whole lines."""
PLAIN_SECONDS = 5.0
"""The time between two views without a terminal."""


@contextlib.contextmanager
def view_screen() -> Iterator[Callable[[View], None]]:
    """Yield a function that shows views: in place in a terminal, one below the other elsewhere.

    Without a terminal a view is shown only if the last shown view is a few seconds old.
    """
    console, next_at = _console(), 0.0
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda view: live.update(draw(view), refresh=True)
        return

    def show(view: View) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + PLAIN_SECONDS
            console.print(draw(view))
            sys.stdout.flush()

    yield show


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else FILE_COLUMNS)


def draw(view: View) -> Group:
    """Return a view in a form that the library rich prints."""
    sent = 0 if view.progress is None else view.progress.reports
    done = 0 if view.progress is None else view.progress.devices / view.devices
    moment = "-"
    if view.progress is not None and view.progress.time_ms:
        event_time = datetime.datetime.fromtimestamp(view.progress.time_ms / 1000, datetime.UTC)
        moment = f"{event_time:%d %B %Y}"
    head = Text.assemble(
        ("Dither ", "bold"),
        f"{moment} | {done:.0%} of the year | {view.seconds:.0f} s\n",
        f"{sent:,} reports sent, {view.counted:,} counted, "
        f"{view.counted + view.answers:,} with answers to rounds\n",
        (f"on {view.places}\ndashboard at {view.url}", "dim"),
    )
    notes = Text("\n".join(["", *view.notes, ""]), style="dim")
    findings = Text("\n".join(["", *view.findings]), style="yellow")
    return Group(head, _estimates(view), findings, notes, _levels(view))


def _estimates(view: View) -> Table:
    table = Table(title="", box=None, pad_edge=False)
    for name in ("metric", "category"):
        table.add_column(name)
    for name in ("truth", "estimate", "lower", "upper"):
        table.add_column(name, justify="right")
    table.add_column("")
    for name, estimate in view.estimates.items():
        truth, metric = view.truths[name], view.windows[name].metric
        value, lower, upper = map(np.atleast_1d, (estimate.shown, estimate.lower, estimate.upper))
        true = np.atleast_1d(truth.value)
        names = view.labels(name)
        by_size = estimate.radius is None  # coordinates keep the order of the definition
        order = -true if by_size else np.zeros(true.size)
        shown = np.argsort(order, kind="stable")[:MAX_SHOWN_NUMBERS]
        places = common_decimals(lower[shown], upper[shown])
        for rank, i in enumerate(shown):
            cells = [nearest(true[i], places), *interval((value[i], lower[i], upper[i]), places)]
            if statement := view.statement(name):  # nothing is certain about the other side
                lowest, highest = metric.domain.ends
                cells[1] = statement
                cells[2] = "-" if lower[i] <= lowest else cells[2]
                cells[3] = "-" if upper[i] >= highest else cells[3]
            verdict = Text("")
            if not np.isnan((value[i], true[i])).any():
                covered = bool(lower[i] <= true[i] <= upper[i])
                nothing = view.is_uninformative(name, lower[i], upper[i])
                verdict = _verdict(covered=covered, is_uninformative=nothing)
            label = names[i] or metric.unit
            if names[i] and metric.unit:
                label = f"{names[i]} ({metric.unit})"
            table.add_row(name if rank == 0 else "", label, *cells, verdict)
        if len(names) > MAX_SHOWN_NUMBERS:
            table.add_row("", f"and {len(names) - MAX_SHOWN_NUMBERS} more", style="dim")
    return table


def _levels(view: View) -> Table:
    table = Table(box=None, pad_edge=False)
    levels = next(iter(view.estimates.values())).levels
    table.add_column("weight of each privacy level")
    for epsilon in levels:
        table.add_column(f"epsilon {epsilon:g}", justify="right")
    for name, estimate in view.estimates.items():
        if estimate.levels != levels:
            continue
        table.add_row(name, *(f"{weight:.3f}" for weight in estimate.weights))
    return table


def _verdict(*, covered: bool, is_uninformative: bool) -> Text:
    if is_uninformative:
        return Text("says nothing", "dim")
    return Text("within", "green") if covered else Text("outside", "yellow")


def summary(outcome: Outcome) -> str:
    """Return the outcome of the demo as text."""
    rows = outcome.rows()
    telling = [row for row in rows if not row["vacuous"]]
    covered = sum(row["covered"] for row in telling)
    vacuous = len(rows) - len(telling)
    nothing = f"; the bounds of {vacuous} more cover their whole range" if vacuous else ""
    console = _console()
    with console.capture() as capture:
        console.print(draw(outcome.view))
    proof = (
        "the log was replayed: the state in Redis is correct, byte for byte"
        if outcome.verified
        else "the state in Redis DIFFERS from the log:\n" + "\n".join(outcome.differences)
    )
    return (
        f"{capture.get()}\n"
        f"{outcome.reports:,} reports, {outcome.reports_per_second:,.0f} a second; "
        f"truth within the bounds for {covered} of {len(telling)} values{nothing}\n"
        f"{proof}"
    )
