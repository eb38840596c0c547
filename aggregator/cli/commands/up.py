"""`dither up`: run the whole service on one machine, for your own metrics."""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from aggregator.config.settings import DEFAULT_FILE, Settings
from aggregator.config.temporary_settings import is_abandoned, is_written_by_up, write_locked
from aggregator.errors import DitherError
from aggregator.secrets import masked
from aggregator.terminal.options import defined_metrics, settings_options, workers_option
from estimators.metrics.search import SearchMetric

LOOK_SECONDS = 0.5


def _without_left_over(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that first removes the settings file that a killed `dither up` left."""

    @functools.wraps(command)
    def with_cleanup(**arguments: Any) -> Any:
        file = Path(DEFAULT_FILE)
        if is_abandoned(file):
            file.unlink()
            click.echo(
                f"{file} was left by a `dither up` that was killed; it is now removed", err=True
            )
        return command(**arguments)

    return with_cleanup


@click.command()
@workers_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the dashboard [default: 8080]; 0: any free port.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the counts in this folder, and continue from those of the last run [default: the "
    "counts are lost at the end].",
)
@_without_left_over
@settings_options
def up(settings: Settings, workers: int, port: int | None, folder: Path | None) -> None:
    """Run the whole service on this machine: Kafka, Redis, workers and the dashboard.

    Kafka and Redis are embedded and lose their data at the end, unless --kafka and --redis (or the
    settings) name others. With --folder the counts stay, but the log of reports does not.

    While it runs, a dither.toml in the current folder gives other commands their addresses, so
    `dither produce` in another terminal reports to them. Ctrl-C ends it, and so does closing the
    terminal.
    """
    from aggregator.local.deployment import LocalDeployment, free_port
    from estimators.metrics.crowd_epsilon import crowd_warnings

    defined = defined_metrics(settings)
    for warning in crowd_warnings(defined.values()):
        click.echo(warning, err=True)
    if port is not None:
        settings.serve.port = port or free_port()
    searches = any(isinstance(metric, SearchMetric) for metric in defined.values())
    local = LocalDeployment(settings, workers, searches=searches, folder=folder)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: (local.hurry if stop.is_set() else stop).set())
    file = Path(DEFAULT_FILE)
    if is_written_by_up(file):
        raise DitherError(
            f"{file} was written by a `dither up` that is running in this folder: stop that one, "
            "or start this one in another folder"
        )
    if folder is not None and "redis.url" in settings.sources:
        raise click.UsageError("--folder is for the embedded Redis, and the settings name another")
    with local as deployment, _addresses_written(file, settings):
        deployment.wait_until_serving()
        click.echo(f"{', '.join(defined)} on {deployment.places}")
        servers = settings.kafka["bootstrap.servers"]
        click.echo(f"Kafka: {servers}  Redis: {masked('redis.url', settings.redis.url)}")
        click.echo(f"dashboard: {deployment.url}  (Ctrl-C ends it)")
        if lost := deployment.lost_before:
            click.echo(f"{lost} messages of the last run were never counted", err=True)
        while not stop.wait(LOOK_SECONDS):
            deployment.check()
    if folder is not None:
        option = shlex.quote(f"--folder={folder}")
        click.echo(f"the counts are in {folder.resolve()}; {option} goes on with them")
    if local.lost:
        click.echo(f"{local.lost} messages were not counted, and are lost", err=True)


@contextlib.contextmanager
def _addresses_written(file: Path, settings: Settings) -> Iterator[None]:
    """Keep a settings file with the servers' addresses during the context.

    No file is written if the settings have both addresses, of Kafka and of Redis.
    """
    started = {
        "kafka.bootstrap.servers": settings.kafka["bootstrap.servers"],
        "redis.url": settings.redis.url,
        "topics.managed": settings.topics.managed,
        "aggregate.past": settings.aggregate.past,
    }
    if settings.sources.keys() >= {"kafka.bootstrap.servers", "redis.url"}:
        yield
        return
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in started.items())
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(write_locked(file, "".join(lines)))
        except FileExistsError:
            raise DitherError(
                f"{file} has no [kafka] bootstrap.servers or no [redis] url: set both, or run "
                "`dither up` in a folder without this file, where it starts its own servers"
            ) from None
        except OSError as error:
            expected = "run `dither up` in a folder where it may write its servers' addresses"
            raise DitherError(f"{file.resolve()}: {error.strerror}: {expected}") from None
        yield
