"""Apache Kafka without Docker: `python deploy/kafka/launcher.py fetch`, then `... run`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from deploy.kafka.broker import archive_path
from deploy.kafka.cluster import KafkaCluster
from deploy.kafka.distribution import (
    JARS,
    KafkaUnavailableError,
    fetch_jars,
    is_fetched,
    kafka_version,
    missing,
)

__all__ = [
    "JARS",
    "KafkaCluster",
    "KafkaUnavailableError",
    "available",
    "fetch",
    "kafka_version",
    "missing",
]


def available(jars: Path = JARS) -> bool:
    """Whether Apache Kafka can run here: Java is new enough, and the jars or Maven are there."""
    return not missing(jars)


def fetch(jars: Path = JARS) -> None:
    """Fetch Apache Kafka's jars and record an archive of its classes; nothing if that is done.

    Parameters
    ----------
    jars : Path
        Folder to create.

    Raises
    ------
    KafkaUnavailableError
        Java or Maven are missing, or Maven failed; the message says what to do.
    """
    if lacking := missing(jars):
        raise KafkaUnavailableError(lacking)
    if not is_fetched(jars):
        print(f"Apache Kafka {kafka_version()}: fetching its jars with Maven into {jars}")
        fetch_jars(jars)
    if not archive_path(jars).is_file():
        _record_archive(jars)
    print(f"Apache Kafka {kafka_version()}: ready in {jars}")


def _record_archive(jars: Path) -> None:
    """Run one broker that writes its loaded classes to a file (AppCDS) when it ends."""
    with tempfile.TemporaryDirectory(dir=jars) as scratch:
        recording = Path(scratch) / "kafka.jsa"
        record = [f"-XX:ArchiveClassesAtExit={recording}"]
        with KafkaCluster(Path(scratch) / "kafka", jars=jars, jvm_options=record):
            pass
        if recording.is_file():
            recording.replace(archive_path(jars))


def run(folder: Path, brokers: int) -> NoReturn:
    """Run a cluster until SIGINT or SIGTERM, after printing its bootstrap servers."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    with KafkaCluster(folder, brokers) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        while True:
            signal.pause()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Apache Kafka on this machine, without Docker.")
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch", help="fetch Apache Kafka's jars with Maven")
    fetching.add_argument(
        "--if-possible", action="store_true", help="say what is missing, but do not fail"
    )
    running = commands.add_parser("run", help="run a cluster until Ctrl-C")
    running.add_argument("--brokers", type=int, default=1, help="how many (default: 1)")
    running.add_argument("--folder", type=Path, required=True, help="for data and logs")
    chosen = parser.parse_args()
    try:
        if chosen.command == "run":
            run(chosen.folder, chosen.brokers)
        fetch()
    except KafkaUnavailableError as error:
        if chosen.command == "fetch" and chosen.if_possible:
            print(f"Apache Kafka {kafka_version()}: not here, {error}")
            return 0
        print(f"Apache Kafka: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
