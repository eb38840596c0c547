"""Kafka Connect's own JsonConverter, from Maven Central, for tests."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import requests

from deploy.kafka import distribution
from tests.support.running.servers import missing, program

CENTRAL = "https://repo.maven.apache.org/maven2"
JARS = {
    "org/apache/kafka/connect-json/4.3.1/connect-json-4.3.1.jar": (
        "ebd6d4900eb6835f30c6ce74b5f6d4a4fdc19e0a4a1de8da2f4463ea3ef20e41"
    ),
    "org/apache/kafka/connect-api/4.3.1/connect-api-4.3.1.jar": (
        "5ce6158d453d2d84ab3509260fff872c67fb532a51519da6acafc6835bc48cfe"
    ),
    "com/fasterxml/jackson/module/jackson-module-blackbird/2.21.2/"
    "jackson-module-blackbird-2.21.2.jar": (
        "5ed62cdcd357a24b73de9280e167aa014d7b4c17d04823844d482274cf07097e"
    ),
}
"""What the converter needs besides the jars of Kafka, with their SHA-256."""
READ = """
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.json.JsonConverter;

public class Read {
  public static void main(String[] files) throws Exception {
    try (JsonConverter converter = new JsonConverter()) {
      converter.configure(Map.of("schemas.enable", "true"), false);
      for (String file : files) {
        SchemaAndValue found = converter.toConnectData("t", Files.readAllBytes(Path.of(file)));
        ((Struct) found.value()).validate();
        System.out.println(found.schema().name() + " " + found.value());
      }
    }
  }
}
"""


def converted(values: Sequence[bytes], folder: Path) -> list[str]:
    """Return what the converter makes of messages: the schema's name and the struct, of each."""
    program("javac", "install a Java development kit (Debian: default-jdk-headless)")
    try:
        distribution.fetch_jars()
    except distribution.KafkaUnavailableError as error:
        missing("Kafka's jars", str(error))
    for path, digest in JARS.items():
        try:
            answer = requests.get(f"{CENTRAL}/{path}", timeout=60)
            answer.raise_for_status()
        except requests.RequestException as error:
            missing("Kafka Connect's jars from Maven Central", str(error))
        assert hashlib.sha256(answer.content).hexdigest() == digest, path
        (folder / path.rpartition("/")[2]).write_bytes(answer.content)
    (folder / "Read.java").write_text(READ)
    files = [folder / f"{number}.json" for number in range(len(values))]
    for file, value in zip(files, values, strict=True):
        file.write_bytes(value)
    where = os.pathsep.join([f"{folder}/*", f"{distribution.JARS}/*"])
    ran = subprocess.run(
        [str(distribution.java()), "-cp", where, str(folder / "Read.java"), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()
