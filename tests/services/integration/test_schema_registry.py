"""A real schema registry, and the clients that others use with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from confluent_kafka import Consumer, TopicPartition

from aggregator.reading.reader import Reader
from producers import Reporter
from producers.wire.framing import frame
from producers.wire.reports_pb2 import ReportBatch
from tests.support.paths import ROOT
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment
from tests.support.running.schema_registry import apicurio
from tests.support.running.servers import missing

NEEDED = ("authlib", "cachetools", "googleapis-common-protos")
"""What confluent-kafka's own client of a registry needs besides what is installed."""
IN_CONFLUENTS_CLIENT = """
import json, sys
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from producers.wire.reports_pb2 import ReportBatch

url, servers, topic = sys.argv[1:]
client = SchemaRegistryClient({"url": url})
write = ProtobufSerializer(ReportBatch, client, {"use.deprecated.format": False})
read = ProtobufDeserializer(ReportBatch, {"use.deprecated.format": False})
context = SerializationContext(topic, MessageField.VALUE)
producer, framed, found = Producer({"bootstrap.servers": servers}), [], []
asked = json.load(sys.stdin)
for partition, payload in asked["write"]:
    value = write(ReportBatch.FromString(bytes.fromhex(payload)), context)
    producer.produce(topic, value, partition=partition)
    framed.append(value.hex())
assert producer.flush(60) == 0
for payload in asked["read"]:
    found.append(read(bytes.fromhex(payload), context).SerializeToString().hex())
json.dump({"framed": framed, "found": found}, sys.stdout)
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("registry")) as url:
        yield url


def schemas(deployment: Deployment, registry: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Run `dither schemas`; return its status, and the rows by subject."""
    ran = deployment.dither("schemas", "--json", "--set", f"schemas.url={registry}", *words)
    assert ran.stdout, ran.stderr
    return ran.returncode, {one["subject"]: one for one in json.loads(ran.stdout)["schemas"]}


def ask(method: str, url: str, **body: Any) -> Any:
    """Return what a registry answers."""
    answer = requests.request(method, url, json=body or None, timeout=60)
    assert answer.ok, answer.text
    return answer.json()


@pytest.mark.slow
@pytest.mark.parametrize("naming", ["topic", "record", "topic_record"])
def test_schemas_are_registered_once(deployment: Deployment, registry: str, naming: str) -> None:
    words = "--set", f"schemas.naming={naming}"
    status, before = schemas(deployment, registry, "--check", *words)
    assert status == 0
    if naming != "record":  # these names contain the topic's
        assert {one["state"] for one in before.values()} == {"new"}
    status, first = schemas(deployment, registry, *words)
    assert status == 0
    assert {one["state"] for one in first.values()} == {"registered"}
    assert schemas(deployment, registry, *words) == (0, first)
    assert schemas(deployment, registry, "--check", *words) == (0, first)
    for subject, one in first.items():
        versions = ask("GET", f"{registry}/subjects/{subject}/versions")
        newest = ask("GET", f"{registry}/subjects/{subject}/versions/{versions[-1]}")
        assert (newest["id"], newest.get("schemaType")) == (one["id"], one["type"])


@pytest.mark.slow
def test_check_tells_of_a_schema_that_is_not_compatible(
    deployment: Deployment, registry: str
) -> None:
    subject = f"{deployment.topic}-value"
    other = 'syntax = "proto3"; package dither; message ReportBatch { int64 metric = 1; }'
    ask("POST", f"{registry}/subjects/{subject}/versions", schemaType="PROTOBUF", schema=other)
    ask("PUT", f"{registry}/config/{subject}", compatibility="BACKWARD")
    status, found = schemas(deployment, registry, "--check")
    assert (status, found[subject]["state"]) == (1, "incompatible")
    assert found[subject]["conflicts"]
    assert len(ask("GET", f"{registry}/subjects/{subject}/versions")) == 1
    refused = deployment.dither("schemas", "--set", f"schemas.url={registry}")
    assert refused.returncode == 1
    assert "answered 409" in refused.stderr
    assert "dither schemas --check" in refused.stderr


@pytest.mark.slow
def test_confluents_serializer_and_ours_write_what_workers_count(
    deployment: Deployment, registry: str, tmp_path: Path
) -> None:
    _, found = schemas(deployment, registry)
    schema_id = found[f"{deployment.topic}-value"]["id"]
    messages = traffic(deployment, 20)
    delay = deployment.metrics["delay"]
    servers = deployment.kafka.bootstrap_servers
    kafka = {"bootstrap.servers": servers}
    with Reporter(delay, kafka, topic=deployment.topic, schema_id=schema_id) as reporter:
        reporter.report(np.full(50, 5.0), epsilon=2.0)
    ours = [value for value in on_topic(deployment) if value[:1] == b"\0"]
    assert ours
    extra = tmp_path / "extra"
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(extra), *NEEDED]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if installed.returncode:
        missing("confluent-kafka's client of a schema registry", installed.stderr[-1000:])
    asked = {
        "write": [(n, payload.hex()) for n, payload in messages],
        "read": [value.hex() for value in ours],
    }
    ran = subprocess.run(
        [sys.executable, "-c", IN_CONFLUENTS_CLIENT, registry, servers, deployment.topic],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{extra}{os.pathsep}{ROOT}"},
    )
    assert ran.returncode == 0, ran.stderr
    theirs = json.loads(ran.stdout)
    its_id = bytes.fromhex(theirs["framed"][0])[1:5]  # it registers the schema in a form of its own
    framed = [frame(int.from_bytes(its_id, "big"), payload) for _, payload in messages]
    assert theirs["framed"] == [one.hex() for one in framed]
    assert theirs["found"] == [value[6:].hex() for value in ours]
    with deployment.worker():
        deployment.wait_until_counted()
    sizes: dict[str, int] = {"delay": 50}
    for _, payload in messages:
        one = ReportBatch.FromString(payload)
        sizes[one.metric] = sizes.get(one.metric, 0) + len(one.levels)
    reader = Reader(deployment.store, deployment.metrics)
    assert {name: reader.estimate(name).reports for name in sizes} == sizes
    assert deployment.verify().verified


def on_topic(deployment: Deployment) -> list[bytes]:
    """Return the values on the reports topic."""
    servers = deployment.kafka.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"read-{deployment.topic}"})
    found: list[bytes] = []
    try:
        ends = deployment.log_ends()
        consumer.assign([TopicPartition(deployment.topic, number, 0) for number in ends])
        while len(found) < sum(ends.values()):
            for message in consumer.consume(100, 1.0):
                assert message.error() is None
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found
