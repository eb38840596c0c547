"""Apache Kafka without Docker: whether it can run here, its jars, and an archive of its classes."""

from __future__ import annotations

import tempfile
from pathlib import Path

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

#: For the archive to be written when its broker ends; 5 are usual, and many more on a busy machine.
ARCHIVE_SECONDS = 180.0

__all__ = [
    "JARS",
    "KafkaCluster",
    "KafkaUnavailableError",
    "fetch",
    "is_fetched",
    "kafka_version",
    "missing",
]


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
        fetch_jars(jars)
    if not archive_path(jars).is_file():
        _record_archive(jars)


def _record_archive(jars: Path) -> None:
    """Run one broker that writes its loaded classes to a file (AppCDS) when it ends."""
    with tempfile.TemporaryDirectory(dir=jars) as scratch:
        recording = Path(scratch) / "kafka.jsa"
        record = [f"-XX:ArchiveClassesAtExit={recording}"]
        cluster = KafkaCluster(Path(scratch) / "kafka", jars=jars, jvm_options=record)
        cluster.start()
        cluster.stop(ARCHIVE_SECONDS)
        if recording.is_file():
            recording.replace(archive_path(jars))
