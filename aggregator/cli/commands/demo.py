"""`dither demo`: a year of flights as private telemetry, end to end on one machine."""

from __future__ import annotations

import contextlib
import json
import signal
import sys

import click

from aggregator.config.settings import Settings
from aggregator.terminal.options import settings_options, workers_option

SIGNAL_EXIT_CODE = 128
"""A shell's exit code after a signal, plus the signal's number."""


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60,
    show_default=True,
    help="Seconds in which the year is replayed.",
)
@workers_option
@click.option(
    "--seed", default=2013, show_default=True, help="Seed for the choice of each flight's level."
)
@click.option("--stay", is_flag=True, help="Keep the dashboard after the year, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@settings_options
def demo(
    settings: Settings, seconds: float, workers: int, seed: int, stay: bool, as_json: bool
) -> None:
    """Replay the flights of 2013 out of New York as devices, and watch the estimates.

    Each of the 336,776 flights randomizes its own values at the privacy level that it chose, and
    reports them to Kafka. So does each aircraft, once a week. A worker counts them into Redis. The
    demo shows truth and estimate side by side. At the end it replays the log and verifies the sums.

    It starts its own broker and store on this machine, unless --kafka or --redis (or the settings)
    name others. Ctrl-C ends it early, with the same summary.
    """
    for ending in (signal.SIGTERM, signal.SIGHUP):  # leaving stops what it started
        signal.signal(ending, lambda number, _: sys.exit(SIGNAL_EXIT_CODE + number))
    from aggregator.cli.demo_screen import Screen, summary
    from aggregator.local.demo import Demonstration

    with Demonstration(settings, seconds, workers, seed) as demonstration:
        if as_json:
            demonstration.run()
        else:
            with Screen() as screen:
                demonstration.run(screen.show)
        outcome = demonstration.finish()
        click.echo(json.dumps(outcome.as_dict()) if as_json else summary(outcome))
        if not stay and not as_json:
            click.echo("dither demo --stay keeps the dashboard.", err=True)
        if stay:
            click.echo(f"dashboard: {demonstration.url}  (Ctrl-C ends it)", err=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    sys.exit(0 if outcome.verified else 1)
