"""`dither watch`: a metric's estimate, live in the terminal."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator

import click
import redis

from aggregator.config.settings import Settings
from aggregator.reading.query import Query
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import answer, as_dict
from aggregator.reading.status import START_WORKERS, halted_partitions, silence_ms, silence_text
from aggregator.reading.window import Window
from aggregator.terminal.estimate_text import as_line
from aggregator.terminal.options import metric_argument, opened_reader, settings_options
from estimators import Estimate
from estimators.durations import milliseconds

SHORTEST_SECONDS = 0.1
Show = Callable[[Window, Estimate], None]


@click.command()
@metric_argument()
@click.option("--interval", default="1s", help="Time between two reads.")
@click.option(
    "--window", metavar="DURATION", help="Only the last 1h (30s, 1d, ...) that was counted."
)
@click.option(
    "--top", type=click.IntRange(1), default=10, help="Categories (or coordinates) to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per change.")
@settings_options
def watch(
    settings: Settings, metric: str, interval: str, window: str | None, top: int, as_json: bool
) -> None:
    """Follow a metric's estimate and its bounds, until Ctrl-C.

    Without --window the estimate is over everything counted so far, with bounds that hold however
    long you look. With --window the bounds hold for each window by itself. In a terminal the view
    is redrawn in place; elsewhere, and with --json, there is one line per change.
    """
    try:
        seconds = milliseconds(interval) / 1000
    except ValueError as error:
        raise click.UsageError(f"--interval: expected {error}") from None
    if seconds < SHORTEST_SECONDS:
        raise click.UsageError(f"--interval: expected {SHORTEST_SECONDS:g}s or more")
    reader = opened_reader(settings)
    reader.metric(metric)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a script started it
    with contextlib.suppress(KeyboardInterrupt), _view(as_json, top) as show:
        for answered_window, estimate in changes(
            reader, metric, window, seconds, silence_ms(settings)
        ):
            show(answered_window, estimate)


def changes(
    reader: MetricReader, metric: str, window: str | None, seconds: float, silent_ms: int
) -> Iterator[tuple[Window, Estimate]]:
    """Yield the current estimate of a metric, and the new estimate after each change.

    If Redis is unreachable, no worker counts or a partition is halted, the function prints this
    once and continues. `reader`: reads the sums in Redis; `metric`: the metric's name; `window`: a
    duration such as ``"1h"``, for the latest window of this width; the running total by default;
    `seconds`: the time between two reads; `silent_ms`: the time without a commit after which
    workers are considered stopped, in ms. Raises UsageError if the metric has no such window.
    """
    version, is_away, was_silent = "", False, False
    shown_halts: list[str] = []
    query = Query(window=window)
    while True:
        try:
            overview = reader.store.overview()
            silent = silence_text(overview, time.time_ns() // 10**6, silent_ms)
            if silent and not was_silent:
                click.echo(f"{silent}: {START_WORKERS}", err=True)
            was_silent = bool(silent)
            halts = halted_partitions(overview)
            for halt in halts:
                if halt not in shown_halts:
                    click.echo(halt, err=True)
            shown_halts = halts
            described = reader.describe(overview, metric, query)
            if described.version != version:
                answered_window = reader.read(described)
                version = described.version
                yield answered_window, reader.answer(answered_window)
            is_away = False
        except redis.RedisError as error:
            if not is_away:
                click.echo(f"Redis does not answer ({error}): retrying", err=True)
            is_away = True
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        time.sleep(seconds)


@contextlib.contextmanager
def _view(as_json: bool, top: int) -> Iterator[Show]:
    if as_json:
        yield lambda seen, found: _line(json.dumps(as_dict(answer(seen, found, top))))
    elif sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        from aggregator.cli.live_view import LiveView

        view = LiveView(top)
        with view.live:
            yield view.show
    else:
        yield lambda seen, found: _line(as_line(seen, found, top))


def _line(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()
