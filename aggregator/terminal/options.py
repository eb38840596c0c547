"""Options and arguments, with their help, that the commands of a deployment share."""

from __future__ import annotations

import functools
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.config.settings import Settings, in_force, load_settings
from aggregator.errors import DitherError, UnknownMetric
from aggregator.timestamps import DIGITS_HINT, parse_time
from estimators import Metric
from estimators.errors import meant

if TYPE_CHECKING:
    from aggregator.config.definitions import MetricDefinitions
    from aggregator.config.live_metrics import LiveMetrics
    from aggregator.reading.reader import MetricReader
    from aggregator.storage.store import Store


FLAG_SETTINGS = {"kafka": "kafka.bootstrap.servers", "redis": "redis.url", "metrics": "metrics"}
"""The setting that each option sets."""


class NumberRange(click.FloatRange):
    """A range of finite numbers."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number; fail with a message if it is out of range."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for settings to a command, and pass it the settings in force."""

    @click.option("--config", metavar="FILE", help="Settings file [default: dither.toml].")
    @click.option("--kafka", metavar="HOST:PORT", help="Kafka's bootstrap servers.")
    @click.option(
        "--redis",
        metavar="URL",
        help="URL of Redis: redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://.",
    )
    @click.option("--metrics", metavar="FILE", help="Metric definitions [default: metrics.toml].")
    @click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override any setting, such as kafka.security.protocol=SSL; may be repeated.",
    )
    @click.option(
        "--show-settings",
        is_flag=True,
        help="Print the settings in force and where each came from, then exit.",
    )
    @functools.wraps(command)
    def with_settings(
        config: str | None, assignments: tuple[str, ...], show_settings: bool, **arguments: Any
    ) -> Any:
        flags = {key: arguments.pop(option) for option, key in FLAG_SETTINGS.items()}
        for assignment in assignments:
            key, equals, value = assignment.partition("=")
            if not equals:
                raise click.UsageError("--set: expected KEY=VALUE, and found no = in one")
            flags[key] = value
        settings = load_settings(config, flags)
        if show_settings:
            from aggregator.terminal.estimate_text import table

            rows = [(key, json.dumps(value), source) for key, value, source in in_force(settings)]
            return click.echo(table(("setting", "value", "source"), rows))
        return command(settings=settings, **arguments)

    return with_settings


def logging_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the log to a command, and configure the log before it runs."""

    @click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Lowest level to log.",
    )
    @click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
    @functools.wraps(command)
    def with_log(log_level: str, log_json: bool, **arguments: Any) -> Any:
        from aggregator.config import logging

        logging.configure(log_level, log_json)
        return command(**arguments)

    return with_log


def cell_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading a CSV file's cells, named like the readers' keywords."""
    options = (
        click.option(
            "--time-column",
            "time",
            multiple=True,
            help="Column with event times; repeat it for several columns, such as date and time.",
        ),
        click.option(
            "--time-format",
            help="Format of the times, such as %d/%m/%Y; or seconds, milliseconds, microseconds, "
            "nanoseconds or days (since the epoch), excel (day numbers), ticks (of .NET) "
            "[default: what fits all cells].",
        ),
        click.option(
            "--time-zone",
            default="UTC",
            help="Time zone of times without one, such as Europe/Berlin.",
        ),
        click.option(
            "--missing",
            multiple=True,
            help="Text of a cell without a value or a time, such as NA; may be repeated.",
        ),
        click.option(
            "--decimal",
            type=click.Choice((".", ",")),
            help="Decimal separator; the other one separates thousands [default: a point, and no "
            "separator of thousands].",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def slice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select slices."""
    by = click.option(
        "--by",
        multiple=True,
        metavar="ATTRIBUTE",
        help="Show each value of this attribute of devices; may be repeated.",
    )
    where = click.option(
        "--where",
        multiple=True,
        metavar="ATTRIBUTE=VALUE",
        help="Count only reports of devices with this value (other: not declared; none: not sent); "
        "may be repeated.",
    )
    return by(where(command))


workers_option = click.option(
    "--workers", type=click.IntRange(1), default=1, help="Number of worker processes."
)


def metric_argument(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the argument METRIC, which shells can complete."""
    return click.argument("metric", required=required, shell_complete=_metric_names)


def _metric_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the metrics' names that begin with a word; none if the definitions are unreadable."""
    try:
        settings = load_settings(ctx.params.get("config"), {"metrics": ctx.params.get("metrics")})
        with Path(settings.metrics).open("rb") as file:
            names = tomllib.load(file).get("metrics", {})
    except (DitherError, OSError, ValueError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def live_metrics(settings: Settings) -> LiveMetrics:
    """Return the metrics of the deployment, reloaded when their file changes and on SIGHUP.

    Raises DitherError if the file is missing.
    """
    from aggregator.config.definitions import require_file
    from aggregator.config.live_metrics import LiveMetrics, add_hangup_handler

    require_file(settings.metrics)
    metrics = LiveMetrics(settings.metrics)
    add_hangup_handler(metrics.force_refresh)
    return metrics


def defined_metrics(settings: Settings) -> MetricDefinitions:
    """Return the current definitions of the deployment.

    Raises DitherError if the file is missing.
    """
    from aggregator.config.definitions import load_definitions

    return load_definitions(settings.metrics)


def chosen_metrics(settings: Settings, name: str | None) -> Mapping[str, Metric]:
    """Return the metric of this name, or all metrics if no name is given.

    Raises
    ------
    DitherError
        If the file of metrics is missing.
    UnknownMetric
        If the file has no such metric.
    """
    metrics = defined_metrics(settings)
    if name is None:
        return metrics
    if name not in metrics:
        raise UnknownMetric(name, meant(name, metrics))
    return {name: metrics[name]}


def opened_store(settings: Settings) -> Store:
    """Return the store of the deployment; it is closed when the command ends.

    Raises StoreUnreachable if no Redis answers.
    """
    from aggregator.storage.connection import connect
    from aggregator.storage.store import Store

    store = Store(connect(settings.redis.url), settings.topics.reports)
    return click.get_current_context().with_resource(store)


def opened_reader(settings: Settings) -> MetricReader:
    """Return a reader of the deployment's metrics; its store is closed when the command ends.

    Raises DitherError if the file of metrics is missing, or no Redis answers.
    """
    from aggregator.reading.reader import MetricReader

    metrics = defined_metrics(settings)
    return MetricReader(opened_store(settings), metrics)


class Probability(click.ParamType[float]):
    """A probability strictly between 0 and 1, such as that of a quantile."""

    name = "float"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number; fail with a message if it is out of range."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < 1:
            percent = number / 100 if 1 < number < 100 else 0.95
            self.fail(
                f"{value}: expected a number between 0 and 1; "
                f"the {100 * percent:g}th percentile is {percent:g}",
                param,
                ctx,
            )
        return number


class Moment(click.ParamType[float]):
    """A time as ISO 8601, or in seconds since the epoch."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the seconds since the epoch; fail with a message if the text is no time."""
        if isinstance(value, float):
            return value
        try:
            return parse_time(value)
        except (ValueError, OverflowError):
            expected = f"2013-01-31, 2013-01-31T17:00+00:00 or seconds; {DIGITS_HINT}"
            self.fail(f"{value!r}: expected {expected}", param, ctx)
