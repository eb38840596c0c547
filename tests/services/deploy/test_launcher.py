"""Apache Kafka from Maven jars: it starts, survives crashes, and leaves nothing behind."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from aggregator.errors import DitherError
from deploy.kafka import cluster, distribution
from deploy.kafka.cluster import KafkaCluster, defaults, free_ports
from deploy.kafka.command import kafka
from tests.support.running.servers import need_apache_kafka


@pytest.mark.more
def test_a_broker_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    need_apache_kafka()
    cluster = KafkaCluster(tmp_path, properties={"num.network.threads": "many"})
    with pytest.raises(distribution.KafkaUnavailableError, match=r"num\.network\.threads"):
        cluster.start()


@pytest.mark.more
def test_the_command_runs_a_cluster_until_it_is_stopped(tmp_path: Path) -> None:
    need_apache_kafka()
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "aggregator", "kafka"]
    command += ["--folder", str(tmp_path), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().strip()
        assert servers == f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        assert len(admin.list_topics(timeout=60).brokers) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)


def test_what_is_missing_is_said_and_the_fetch_may_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(distribution, "java", lambda: None)
    assert distribution.missing()
    passed = CliRunner().invoke(kafka, ["--fetch", "--if-possible"])
    assert (passed.exit_code, "install Java 17" in passed.output) == (0, True)
    failed = CliRunner().invoke(kafka, ["--fetch"])
    assert isinstance(failed.exception, DitherError)
    assert "install Java 17" in str(failed.exception)

    monkeypatch.setattr(distribution, "java", lambda: "/usr/bin/java")
    monkeypatch.setattr(distribution, "java_version", lambda _: 'openjdk version "11.0.2"')
    assert "Java 17 or newer" in distribution.missing()
    monkeypatch.setattr(distribution, "java_version", lambda _: 'openjdk version "21" 2023-09-19')
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "install Maven" in distribution.missing(tmp_path)
    with pytest.raises(distribution.KafkaUnavailableError, match="install Maven"):
        cluster.fetch(tmp_path)
    monkeypatch.setattr(distribution, "is_fetched", lambda _: True)
    assert distribution.missing() == "", "Maven is only needed while the jars are not there"


def test_replicas_never_exceed_the_brokers_and_their_ports_differ() -> None:
    assert [defaults(n)["offsets.topic.replication.factor"] for n in (1, 2, 3, 5)] == [1, 2, 3, 3]
    assert len(set(free_ports(300))) == 300
