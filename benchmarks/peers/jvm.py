"""Engines of the Java virtual machine: built from `java/` when first asked for, and run.

Maven fetches what `java/pom.xml` pins, and compiles the jobs beside it, into
``$XDG_CACHE_HOME/dither`` (``~/.cache``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import CannotRunError
from benchmarks.steady import Sample, processor_seconds
from deploy.kafka.distribution import java, maven
from estimators import LocalMetric

SOURCE = Path(__file__).with_name("java")
CLASSES = {"kafka streams": "WithKafkaStreams", "flink": "WithFlink"}
FOREIGN_JARS = {"kafka streams": "frocksdbjni", "flink": "rocksdbjni"}
"""The RocksDB of each is not that of the other, and has the same classes."""
BUILD_SECONDS = 1_200
RUN_SECONDS = 900
HEAP = "2g"
OPENED_PACKAGES = ("java.lang", "java.util", "java.time", "java.nio", "sun.nio.ch")
OPTIONS = (
    f"-Xms{HEAP}",
    f"-Xmx{HEAP}",
    "-XX:+UseParallelGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
)

Sums = Counter[tuple[str, int, int]]
"""Sums by metric, start of the pane in ms, and cell of its statistic; or by `DUPLICATES`."""
DUPLICATES = (0, -1)
"""Stands for a pane and a cell: the reports of a metric that were dropped as duplicates."""


@dataclass(frozen=True)
class Counted:
    """The result of counting a log.

    Attributes
    ----------
    samples : list of Sample
        The progress over time.
    sums : Sums
        The sums at the end.
    refused : int
        The number of messages that were neither counted nor duplicates.
    query_seconds : float, optional
        The processor time of an interactive query of one pane, if the engine has such queries.
    """

    samples: list[Sample]
    sums: Sums
    refused: int
    query_seconds: float | None = None


def missing() -> str:
    """Return what is missing to build engines here; empty if nothing is."""
    command = java()
    if command is None or not Path(command).resolve().with_name("javac").exists():
        return "needs a JDK 17 or newer (Debian: openjdk-17-jdk-headless)"
    return "" if shutil.which("mvn") else "needs Maven (Debian: maven)"


def built() -> Path:
    """Return the folder of the engines' jars and of the jobs, which are made if they are not there.

    Raises
    ------
    CannotRunError
        If they cannot be made.
    """
    digest = hashlib.sha256()
    for file in sorted(file for file in SOURCE.rglob("*") if file.is_file()):
        digest.update(file.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    build = cache / "dither" / f"java-{digest.hexdigest()[:12]}"
    if (build / "installed").exists():
        return build
    if lacking := missing():
        raise CannotRunError(lacking)
    print(f"building Kafka Streams and Flink with Maven: {build}", file=sys.stderr)
    shutil.rmtree(build, ignore_errors=True)
    copying = ["compile", f"-Dplace={build}"]
    pom, goal = SOURCE / "pom.xml", "dependency:copy-dependencies"
    if failure := maven(pom, goal, *copying, seconds=BUILD_SECONDS):
        raise CannotRunError(failure)
    (build / "installed").touch()
    return build


def count(
    engine: str, servers: str, topic: str, messages: int, metric: LocalMetric, threads: int
) -> Counted:
    """Have an engine count the messages of a topic, with its state in memory; return the result.

    The metric has randomized response, and a lateness of the length of a pane. Raises
    CannotRunError if the engine ends before the topic's end, with the last line that it printed.
    """
    definition = (metric.name, metric.revision, len(metric.levels), metric.pane_ms)
    counted_metric = ":".join(map(str, (*definition, metric.lateness_ms)))
    samples, sums, query_seconds = [], Sums(), None
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            _command(engine, servers, topic, messages, threads, "memory", folder, counted_metric),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        timeout = threading.Timer(RUN_SECONDS, process.kill)
        timeout.start()
        try:
            for line in process.stdout or ():
                event, *values = line.split()
                if event == "counted":
                    samples.append(Sample(processor_seconds([process.pid]), int(values[0])))
                elif event == "pane":
                    name, start, *cells, duplicates = values
                    for cell, number in enumerate(cells):
                        sums[name, int(start), cell] += int(number)
                    sums[name, *DUPLICATES] += int(duplicates)
                elif event == "query":
                    query_seconds = float(values[0])
                elif event == "end":
                    return Counted(samples, sums, int(values[0]), query_seconds)
        finally:
            timeout.cancel()
            process.kill()
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["nothing"])[-1]
        raise CannotRunError(f"{engine} ended, and said {last}")


def _command(engine: str, *job: object) -> list[str]:
    folder, foreign = built(), FOREIGN_JARS[engine]
    jars = [jar for jar in (folder / "jars").iterdir() if not jar.name.startswith(foreign)]
    path = os.pathsep.join(map(str, [folder / "classes", *jars]))
    command = [java() or "java", *OPTIONS, "-cp", path, f"dither.peers.{CLASSES[engine]}"]
    return [*command, *map(str, job)]
