"""Apache Kafka's jars: fetched once with Maven, found again by the hash of pom.xml."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
JARS = HERE / "jars"

#: The oldest Java on which brokers of Kafka 4 run (KIP-1013).
OLDEST_JAVA = 17
#: Seconds for Maven to end; its first run also fetches its plugins.
DOWNLOAD_TIMEOUT = 900


class KafkaUnavailableError(RuntimeError):
    """Apache Kafka cannot be fetched or run on this machine; the message says what to do."""


def java() -> str | None:
    """Return the path of the `java` command, of JAVA_HOME or else on PATH; None without one."""
    home = os.environ.get("JAVA_HOME")
    candidate = Path(home, "bin", "java") if home else None
    return str(candidate) if candidate and candidate.is_file() else shutil.which("java")


@cache
def java_version(command: str) -> str:
    """Return what `java -version` says in its first line."""
    ran = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    return (ran.stderr or ran.stdout).partition("\n")[0].strip()


def kafka_version() -> str:
    """Return the version of Apache Kafka that pom.xml asks for."""
    match = re.search(r"<artifactId>kafka_[\d.]+</artifactId>\s*<version>([^<]+)<", POM.read_text())
    return match[1] if match else "unknown"


def missing(jars: Path = JARS) -> str:
    """Return what is missing to run Apache Kafka here.

    Parameters
    ----------
    jars : Path
        Folder of the jars; they need not be there if Maven is.

    Returns
    -------
    str
        One line with what to install, empty if nothing is missing.
    """
    command = java()
    if command is None:
        return f"no java: install Java {OLDEST_JAVA} or newer (Debian: openjdk-17-jre-headless)"
    version = java_version(command)
    match = re.search(r'"(\d+)', version)
    if match is None or int(match[1]) < OLDEST_JAVA:
        return f"{command} is {version or 'not working'}: install Java {OLDEST_JAVA} or newer"
    if not is_fetched(jars) and shutil.which("mvn") is None:
        return "no mvn to fetch Apache Kafka with: install Maven (Debian: maven)"
    return ""


def is_fetched(jars: Path = JARS) -> bool:
    """Return whether the folder has the jars of the present pom.xml."""
    stamp = jars / ".pom-sha256"
    return stamp.is_file() and stamp.read_text() == _pom_hash()


def fetch_jars(jars: Path = JARS) -> None:
    """Fetch the jars that pom.xml names, unless the folder has them already.

    Parameters
    ----------
    jars : Path
        Folder to create. It is replaced as a whole, so that it never has jars of two versions.

    Raises
    ------
    KafkaUnavailableError
        If Java or Maven is missing, or Maven failed or took too long.
    """
    if lacking := missing(jars):
        raise KafkaUnavailableError(lacking)
    if is_fetched(jars):
        return
    target = jars.parent / "target"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        fresh = Path(scratch) / "jars"
        folder = f"-DoutputDirectory={fresh.resolve()}"
        if failure := maven(POM, "dependency:copy-dependencies", folder):
            raise KafkaUnavailableError(
                f"Apache Kafka {kafka_version()} was not fetched: {failure}"
            )
        (fresh / ".pom-sha256").write_text(_pom_hash())
        shutil.rmtree(jars, ignore_errors=True)
        fresh.rename(jars)


def maven(pom: Path, goal: str, *options: str, seconds: int = DOWNLOAD_TIMEOUT) -> str:
    """Run Maven; return why it failed, "" if it did not.

    Parameters
    ----------
    pom : Path
        The project's file.
    goal : str
        The goal to run.
    *options : str
        Further arguments of the command.
    seconds : int
        The timeout.
    """
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), *options, goal]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"mvn did not finish within {seconds} s; check the network and try again"
    if not ran.returncode:
        return ""
    errors = [line for line in ran.stdout.splitlines() if "ERROR" in line]
    reason = errors[0] if errors else "no reason given; check the network and try again"
    return f"mvn failed with exit code {ran.returncode}: {reason}"


def _pom_hash() -> str:
    return hashlib.sha256(POM.read_bytes()).hexdigest()
