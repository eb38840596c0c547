"""`dither kafka`: Apache Kafka on this machine, from Maven jars."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from pathlib import Path

import click

from aggregator.errors import DitherError
from aggregator.local.ports import refuse_taken
from deploy.kafka.cluster import KafkaCluster
from deploy.kafka.cluster import fetch as fetch_all
from deploy.kafka.distribution import (
    JARS,
    KafkaUnavailableError,
    is_fetched,
    kafka_version,
    missing,
)

PORTS = click.IntRange(1, 65535)
FOLDER = click.Path(file_okay=False, path_type=Path)
FOLDER_DEFAULT = "a temporary one, deleted at the end"
LOOK_SECONDS = 0.5


@click.command(context_settings={"show_default": True})
@click.option("--port", type=PORTS, default=9092, help="Port of the first broker, on 127.0.0.1.")
@click.option("--brokers", type=click.IntRange(1), default=1, help="Number of brokers.")
@click.option("--folder", type=FOLDER, show_default=FOLDER_DEFAULT, help="For data and logs.")
@click.option("--fetch", is_flag=True, help="Fetch the jars with Maven, and start nothing.")
@click.option(
    "--if-possible", is_flag=True, help="With --fetch: exit with 0 if that is impossible."
)
def kafka(port: int, brokers: int, folder: Path | None, *, fetch: bool, if_possible: bool) -> None:
    """Run Apache Kafka on this machine until Ctrl-C. Needs Java 17, and Maven once.

    Prints the addresses of its brokers once they answer.

    \b
    dither kafka --folder kafka-data
    """  # noqa: D301  click reads the backspace: these lines stay as they are
    if not fetch:
        refuse_taken("127.0.0.1", port, "--port")
    version = f"Apache Kafka {kafka_version()}"
    try:
        if not (missing() or is_fetched()):
            click.echo(f"{version}: fetching its jars with Maven into {JARS}", err=True)
        fetch_all()
        if fetch:
            click.echo(f"{version}: ready in {JARS}")
        else:
            _run(port, brokers, folder)
    except KafkaUnavailableError as error:
        if not (fetch and if_possible):
            raise DitherError(f"{version}: {error}") from None
        click.echo(f"{version}: not here, {error}")


def _run(port: int, brokers: int, folder: Path | None) -> None:
    """Run a cluster until SIGINT or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as closing:
        data = folder or Path(closing.enter_context(tempfile.TemporaryDirectory()))
        cluster = closing.enter_context(KafkaCluster(data, brokers, port=port))
        click.echo(cluster.bootstrap_servers)
        while not stop.wait(LOOK_SECONDS):
            cluster.check()
