"""A real schema registry, and the clients that others use with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from estimators import LocalMetric
from producers import Reporter
from producers.wire.framing import frame
from producers.wire.reports_pb2 import ReportBatch
from tests.support.events import on_topic
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
def test_schemas_are_registered_once_and_confluents_client_writes_what_workers_count(
    deployment: Deployment, tmp_path: Path
) -> None:
    with apicurio(tmp_path) as registry:
        for naming in ("record", "topic_record", "topic"):
            words = ("--set", f"schemas.naming={naming}")
            status, first = schemas(deployment, registry, *words)
            assert (status, {one["state"] for one in first.values()}) == (0, {"registered"})
            assert schemas(deployment, registry, "--check", *words) == (0, first)
            for subject, one in first.items():
                newest = ask("GET", f"{registry}/subjects/{subject}/versions/latest")
                assert (newest["id"], newest.get("schemaType")) == (one["id"], one["type"])
        interoperate(deployment, registry, first[f"{deployment.topic}-value"]["id"], tmp_path)
        deployment.topic = deployment.settings.topics.reports = f"{deployment.topic}-other"
        subject = f"{deployment.topic}-value"
        other = 'syntax = "proto3"; package dither; message ReportBatch { int64 metric = 1; }'
        ask("POST", f"{registry}/subjects/{subject}/versions", schemaType="PROTOBUF", schema=other)
        ask("PUT", f"{registry}/config/{subject}", compatibility="BACKWARD")
        status, found = schemas(deployment, registry, "--check")
        assert (status, found[subject]["state"]) == (1, "incompatible")
        refused = deployment.dither("schemas", "--set", f"schemas.url={registry}")
        assert (refused.returncode, "answered 409" in refused.stderr) == (1, True)


def interoperate(deployment: Deployment, registry: str, schema_id: int, folder: Path) -> None:
    """Write and read with Confluent's client what Dither reads and writes."""
    messages, servers = traffic(deployment, 20), deployment.kafka.bootstrap_servers
    config = {"bootstrap.servers": servers}
    delay = LocalMetric.require(deployment.metrics["delay"])
    with Reporter(delay, config, topic=deployment.topic, schema_id=schema_id) as reporter:
        reporter.report(np.full(50, 5.0), epsilon=2.0)
    ours = [event.value for event in on_topic(deployment, deployment.topic)]
    assert {value[:1] for value in ours} == {b"\0"}
    extra = folder / "extra"
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
    deployment.count()
    sizes = Counter({"accepted:delay": 50})
    for _, payload in messages:
        one = ReportBatch.FromString(payload)
        sizes[f"accepted:{one.metric}"] += len(one.levels)
    assert deployment.counts() == sizes
    assert deployment.verify().verified
