"""`dither coordinate`: open and decide the rounds of minimum and maximum."""

from __future__ import annotations

import contextlib
import signal

import click

from aggregator.config.settings import Settings
from aggregator.terminal.options import (
    live_metrics,
    logging_options,
    opened_store,
    settings_options,
)


@click.command()
@logging_options
@settings_options
def coordinate(settings: Settings) -> None:
    """Run the rounds of minimum and maximum metrics.

    Each round is announced on the topic of rounds. It closes when it has its answers or its time is
    over, and its decision opens the next round. Any number of coordinators may run, here or
    elsewhere: one works at a time, and another takes over if it stops. If no metric is a minimum or
    maximum, a coordinator waits for definitions that have one. SIGTERM or Ctrl-C ends it.
    """
    from aggregator.features.rounds.coordinator import Coordinator
    from aggregator.monitoring.tracing_setup import configured_tracing, process_instance
    from aggregator.reading.reader import MetricReader

    metrics = live_metrics(settings)
    tracing = configured_tracing(settings, process_instance())
    reader = MetricReader(opened_store(settings), metrics)
    coordinator = Coordinator(settings, reader, tracer=tracing)
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    metrics.watch()
    coordinator.start()
    port = settings.coordinate.health_port
    if port:  # an HTTP server takes 1 MB
        from aggregator.health_port import answer_health
    with answer_health(port, coordinator.trouble) if port else contextlib.nullcontext():
        signal.sigwait(ends)
    coordinator.stop()
    if tracing is not None:
        tracing.stop()
