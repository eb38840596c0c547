"""Engines of the Java virtual machine: built from `java/` when first asked for, and run.

Maven fetches what `java/pom.xml` pins, and compiles the jobs beside it, into
``$XDG_CACHE_HOME/dither/peers`` (``~/.cache``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import CannotRunError
from benchmarks.peers.environments import NotInstalledError, peers_folder
from benchmarks.steady import Sample, processor_seconds
from deploy.kafka.distribution import java
from estimators import LocalMetric

SOURCE = Path(__file__).with_name("java")
CLASSES = {"kafka streams": "WithKafkaStreams", "flink": "WithFlink"}
OTHERS = {"kafka streams": "frocksdbjni", "flink": "rocksdbjni"}
"""The RocksDB of each is not that of the other, and has the same classes."""
BUILD_SECONDS = 1_200
RUN_SECONDS = 900
HEAP = "2g"
OPENED = ("java.lang", "java.util", "java.time", "java.nio", "sun.nio.ch")
OPTIONS = (
    f"-Xms{HEAP}",
    f"-Xmx{HEAP}",
    "-XX:+UseParallelGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
)

Sums = Counter[tuple[str, int, int]]
"""By metric, start of the pane in ms, and cell of its statistic; or with `DUPLICATES`."""
DUPLICATES = (0, -1)
"""In place of a pane and a cell: reports of a metric that were dropped, since they came twice."""


@dataclass(frozen=True)
class Counted:
    """What an engine has made of a log.

    Attributes
    ----------
    samples : list of Sample
    sums : Sums
    refused : int
        Messages that it counted nowhere, and that were no duplicates.
    """

    samples: list[Sample]
    sums: Sums
    refused: int


def missing() -> str:
    """Say what is missing to build engines here; empty if nothing is."""
    command = java()
    if command is None or not Path(command).resolve().with_name("javac").exists():
        return "needs a JDK 17 or newer (Debian: openjdk-17-jdk-headless)"
    return "" if shutil.which("mvn") else "needs Maven (Debian: maven)"


def built() -> Path:
    """Return the folder of the engines' jars and of the jobs, which are made if they are not there.

    Raises
    ------
    NotInstalledError
        If they cannot be made.
    """
    digest = hashlib.sha256()
    for file in sorted(file for file in SOURCE.rglob("*") if file.is_file()):
        digest.update(file.read_bytes())
    place = peers_folder() / f"java-{digest.hexdigest()[:12]}"
    if (place / "installed").exists():
        return place
    if lacking := missing():
        raise NotInstalledError(lacking)
    print(f"building Kafka Streams and Flink with Maven: {place}", file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    line = ["mvn", "--batch-mode", "--quiet", "--file", str(SOURCE / "pom.xml"), f"-Dplace={place}"]
    try:
        ran = subprocess.run(
            [*line, "compile", "dependency:copy-dependencies"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"mvn did not finish within {BUILD_SECONDS} s") from None
    if ran.returncode:
        errors = [line for line in ran.stdout.splitlines() if "ERROR" in line]
        raise NotInstalledError(f"mvn failed: {(errors or ['it gives no reason'])[0]}")
    (place / "installed").touch()
    return place


def count(
    engine: str,
    servers: str,
    topic: str,
    messages: int,
    metrics: Iterable[LocalMetric],
    *,
    threads: int = 1,
    store: str = "memory",
) -> Counted:
    """Have an engine count a topic from its beginning to its end.

    Parameters
    ----------
    engine : {"kafka streams", "flink"}
    servers, topic : str
    messages : int
        In the topic.
    metrics : iterable of LocalMetric
        With randomized response, and with panes and a lateness of the same length.
    threads : int
        That count.
    store : {"memory", "rocksdb"}
        Where it has its state.

    Raises
    ------
    NotInstalledError
        If it cannot be built here.
    CannotRunError
        If it ends before its end, with the last that it said.
    """
    told = ",".join(
        f"{one.name}:{one.revision}:{len(one.levels)}:{one.pane_ms}:{one.lateness_ms}"
        for one in metrics
    )
    samples, sums, refused = [], Sums(), 0
    with tempfile.TemporaryDirectory() as folder:
        given = [servers, topic, str(messages), str(threads), store, folder, told]
        with _process(engine, given, Path(folder) / "log") as (process, lines):
            for line in lines:
                what, *rest = line.split()
                if what == "counted":
                    used = processor_seconds([process.pid])
                    samples.append(Sample(time.monotonic(), used, int(rest[0])))
                elif what == "pane":
                    name, start, *cells, duplicates = rest
                    for cell, number in enumerate(cells):
                        sums[name, int(start), cell] += int(number)
                    sums[name, *DUPLICATES] += int(duplicates)
                elif what == "end":
                    refused = int(rest[0])
                    break
            else:
                said = (Path(folder) / "log").read_text().strip().splitlines()
                raise CannotRunError(f"{engine} ended, and said {(said or ['nothing'])[-1]}")
    return Counted(samples, sums, refused)


@contextmanager
def _process(
    engine: str, given: list[str], log: Path
) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    place = built()
    jars = [jar for jar in (place / "jars").iterdir() if not jar.name.startswith(OTHERS[engine])]
    path = os.pathsep.join(map(str, [place / "classes", *jars]))
    job = f"dither.peers.{CLASSES[engine]}"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [java() or "java", *OPTIONS, "-cp", path, job, *given],
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101
        too_long = threading.Timer(RUN_SECONDS, process.kill)
        too_long.start()
        try:
            yield process, iter(process.stdout)
        finally:
            too_long.cancel()
            process.kill()
