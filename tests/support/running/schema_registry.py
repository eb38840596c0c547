"""Apicurio Registry, run from Maven Central's archive, for tests."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import socket
import subprocess
import time
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import requests

from deploy.kafka import distribution
from tests.support.paths import ROOT
from tests.support.running.servers import missing

VERSION = "3.0.9"
ARCHIVE = (
    "https://repo.maven.apache.org/maven2/io/apicurio/apicurio-registry-app/"
    f"{VERSION}/apicurio-registry-app-{VERSION}-all.zip"
)
SHA256 = "8fc13160eaaafeec930a9a93b7e82da1ee8caef3eae29c9ce4b403d80a1523ea"
FOLDER = ROOT / "deploy" / "kafka" / "target" / f"apicurio-{VERSION}"
START_SECONDS = 180
API = "/apis/ccompat/v7"


def fetched() -> Path:
    """Return the folder of the registry, fetched once; skip the test where it cannot be had."""
    if distribution.java() is None:
        missing("Java", distribution.missing())
    if FOLDER.is_dir():
        return FOLDER
    try:
        answer = requests.get(ARCHIVE, timeout=60)
        answer.raise_for_status()
    except requests.RequestException as error:
        missing("Apicurio Registry from Maven Central", str(error))
    assert hashlib.sha256(answer.content).hexdigest() == SHA256, ARCHIVE
    beside = FOLDER.with_name(f"fetching-{uuid.uuid4().hex}")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as found:
        found.extractall(beside)
    with contextlib.suppress(OSError):  # another process was faster
        beside.rename(FOLDER)
    return FOLDER


@contextlib.contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """Run a registry that keeps everything in memory; yield its Confluent-compatible address."""
    program_folder = fetched()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}{API}"
    command = [str(distribution.java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-jar"]
    with (folder / "registry.log").open("w+b") as told:
        process = subprocess.Popen(
            [*command, str(program_folder / f"apicurio-registry-app-{VERSION}-runner.jar")],
            cwd=folder,
            stdout=told,
            stderr=subprocess.STDOUT,
            env={**os.environ, "APICURIO_STORAGE_KIND": "sql"},
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(f"{url}/subjects"):
                ended = process.poll() is not None or time.monotonic() > deadline
                assert not ended, Path(told.name).read_text()[-3000:]
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False
