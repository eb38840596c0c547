"""`dither demo`: a year of flights as private telemetry, end to end on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import termios

import click

from aggregator.config.settings import Settings
from aggregator.terminal.options import settings_options, workers_option

SIGNAL_EXIT_CODE = 128
"""The exit code after a signal is this plus the signal's number, as in a shell."""
WATCHED_PORT = 8080
"""The port of the dashboard of a demo in a terminal; if it is taken, the next free port."""


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(1), default=60, help="Seconds in which the year is replayed."
)
@workers_option
@click.option("--seed", default=2013, help="Seed for the choice of each flight's level.")
@click.option("--stay", is_flag=True, help="Keep the dashboard after the year, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@settings_options
def demo(
    settings: Settings, seconds: float, workers: int, seed: int, stay: bool, as_json: bool
) -> None:
    """Replay the flights of 2013 out of New York as devices, and watch the estimates.

    Each of the 336,776 flights randomizes its own values at the privacy level that it chose, and
    reports them to Kafka. So does each aircraft, once a week. Some flights report through a relay,
    which is a separate process. A worker counts the reports into Redis. The demo shows truth and
    estimate side by side. At the end it replays the log and verifies the sums.

    It starts its own broker and store on this machine, unless --kafka or --redis (or the settings)
    name others. Ctrl-C ends the demo early, with the same summary. In a terminal the dashboard
    stays up until you press Enter, unless the variable CI is set.
    """
    for ending in (signal.SIGTERM, signal.SIGHUP):  # an exit stops all that the demo started
        signal.signal(ending, lambda number, _: sys.exit(SIGNAL_EXIT_CODE + number))
    from aggregator.cli.demo_screen import summary, view_screen
    from aggregator.local.demo import Demonstration

    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")
    is_watched = is_terminal and os.tcgetpgrp(0) == os.getpgrp() and not as_json
    port = WATCHED_PORT if is_watched else 0
    with Demonstration(settings, seconds, workers, seed, port) as demonstration:
        if as_json:
            demonstration.run()
        else:
            with view_screen() as show:
                demonstration.run(show)
        outcome = demonstration.finish()
        click.echo(json.dumps(outcome.as_dict()) if as_json else summary(outcome))
        if stay or is_watched:
            ended_by = "Enter or Ctrl-C" if is_watched else "Ctrl-C"
            click.echo(f"dashboard: {demonstration.url}  ({ended_by} ends it)", err=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with contextlib.suppress(KeyboardInterrupt):
                if is_watched:
                    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed meanwhile
                    sys.stdin.readline()
                else:
                    signal.pause()
        elif not as_json:
            click.echo("dither demo --stay keeps the dashboard.", err=True)
    sys.exit(0 if outcome.verified else 1)
