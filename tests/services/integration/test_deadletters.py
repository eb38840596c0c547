"""`dither deadletters`: what was refused is found, explained, counted once after a repair."""

import contextlib
import csv
import functools
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient

from aggregator.cli.commands.deadletters import deadletters
from aggregator.dead_letters.letter_replay import Forecast, replay
from aggregator.dead_letters.reader import DeadLetterTopic
from aggregator.dead_letters.selection import HandledMarks
from aggregator.dead_letters.writer import DeadLetters
from aggregator.kafka import clients
from aggregator.state.decoder import Rejection
from estimators import Metric
from tests.support.reports.messages import DAY, EPOCH, agreeing, batch
from tests.support.reports.metrics import METRICS
from tests.support.running.deployment import Deployment
from tests.support.running.redis_nodes import RedisCluster
from tests.support.running.servers import Kafka


@pytest.fixture
def on_a_cluster(kafka: Kafka, metrics_file: Path) -> Iterator[Deployment]:
    with (
        RedisCluster(2) as cluster,
        (deployment := Deployment(kafka, cluster.url, metrics_file)).store,
    ):
        yield deployment


def command(deployment: Deployment, *arguments: str, metrics: Path | None = None) -> Result:
    chosen = ["--metrics", str(metrics)] if metrics else []
    return CliRunner().invoke(deadletters, [*arguments, *deployment.flags, *chosen])


def answer(deployment: Deployment, *arguments: str, metrics: Path | None = None) -> Any:
    """Return the JSON of a subcommand."""
    found = command(deployment, *arguments, "--json", metrics=metrics)
    assert found.exit_code == 0, (found.output, found.exception)
    return json.loads(found.stdout)


def payload(metric: Metric, number: int, time_ms: int = EPOCH, reports: int = 3) -> bytes:
    return batch(metric, [1.0] * reports, 2, time_ms, number).SerializeToString()


def counted(deployment: Deployment, names: Sequence[str] = ("delay", "age")) -> dict[str, int]:
    """Let a worker that knows some metrics alone count everything; return what was counted."""
    everything = deployment.metrics
    deployment.metrics = {name: everything[name] for name in names}
    with deployment.worker():
        deployment.wait_until_counted()
    deployment.metrics = everything
    return deployment.counts()


@pytest.mark.parametrize(
    "fixture", ["deployment", pytest.param("on_a_cluster", marks=pytest.mark.more)]
)
def test_a_forgotten_metric_is_counted_once_after_it_was_defined(
    fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    deployment: Deployment = request.getfixturevalue(fixture)
    ask = functools.partial(answer, deployment)
    without_age = tmp_path / "before.toml"
    without_age.write_text(METRICS.partition("age = ")[0])
    delay, age = deployment.metrics["delay"], deployment.metrics["age"]
    deployment.produce([(i % 3, payload(delay, i)) for i in range(9)])
    deployment.produce([(i % 3, payload(age, i, EPOCH + i)) for i in range(9)])
    deployment.produce([(0, b"\xffgarbage"), (1, b"\xffgarbage")])
    assert counted(deployment, ("delay",))["accepted:delay"] == 27

    found = ask("list")
    assert found["total"] == 11
    kinds = {one["metric"]: (one["letters"], one["reports"]) for one in found["counts"]}
    assert kinds == {"age": (9, 27), "": (2, 2)}
    assert ask("list", "--metric", "age", "--partition", "1", "--limit", "2")["total"] == 3
    assert ask("list", "--until", "2013-01-01")["total"] == 0

    rows = [*csv.DictReader(io.StringIO(command(deployment, "list", "--csv").stdout))]
    assert [(row["place"], row["origin"], row["arrived"], row["bytes"]) for row in rows] == [
        (one["place"], one["from"], one["arrived"], str(one["bytes"])) for one in found["letters"]
    ]

    place = next(one["place"] for one in found["letters"] if one["metric"] == "age")
    before = ask("explain", place, metrics=without_age)
    assert before["now"].startswith("unknown_metric: metric 'age' is not defined here")
    assert before["revision_here"] is None
    after = ask("explain", place)
    assert (after["reports"], after["levels"]) == (3, {"2": 3})
    assert after["revision"] == after["revision_here"] == f"{age.revision:08x}"
    assert after["now"] == "counted, unless a copy of it was"

    assert ask("replay", metrics=without_age)["sent"] == 0, "it would be refused again"
    rehearsal = ask("replay", "--dry-run")
    assert rehearsal["sent"] == 9
    assert rehearsal["kept"] == [{"reason": "malformed", "metric": "", "letters": 2}]
    assert ask("list")["total"] == 11, "a rehearsal changes nothing"

    ends = deployment.log_ends()
    assert ask("replay")["sent"] == 9
    sent = {n: end - ends[n] for n, end in deployment.log_ends().items() if end > ends[n]}
    assert sent == {0: 3, 1: 3, 2: 3}, "each into the partition it came from"
    assert counted(deployment)["accepted:age"] == 27
    assert ask("list")["total"] == 2
    assert ask("list")["handled"] == 9
    assert ask("replay")["sent"] == 0

    client: Any = deployment.store.client
    marks = client.scan_iter(match=f"*{deployment.deadletters}*handled*")
    client.delete(*marks)  # as if it had been killed before it could mark
    assert ask("replay")["sent"] == 9
    totals = counted(deployment)
    assert (totals["accepted:age"], totals["duplicate:age"]) == (27, 27)
    assert ask("drop", "--reason", "malformed", "--yes")["dropped"] == 2
    assert ask("list")["total"] == 0
    listed = command(deployment, "list").output
    assert "no dead letters other than those replayed or dropped" in listed


def test_what_is_late_by_now_is_not_sent_but_a_round_is_counted(deployment: Deployment) -> None:
    delay = deployment.metrics["delay"]
    old = payload(delay, 1, EPOCH)
    after = [(0, one.SerializeToString()) for one in agreeing(delay, EPOCH + DAY, 2)]
    deployment.produce([*after, (0, old)])
    counted(deployment)
    (kept,) = answer(deployment, "replay")["kept"]
    assert (kept["reason"], kept["letters"]) == ("late", 1)
    told = command(deployment, "replay").output
    assert "0 of 1 dead letters were sent again" in told
    assert "closed panes never change" in told

    # The pane may close between the look at the watermarks and the worker's: a round trip.
    deployment.store.client.delete(f"{{dither:{deployment.topic}:0}}:watermarks")
    blind = Forecast(deployment.settings, deployment.metrics, deployment.store, 6, rounds=3)
    handled = HandledMarks(deployment.store, deployment.deadletters, "")
    with DeadLetterTopic(deployment.settings) as topic:
        assert replay(deployment.settings, list(topic.letters()), blind, handled).sent == 1
    deployment.store.client.flushdb()
    assert counted(deployment)["accepted:delay"] == 8
    letters = {one["from"]: one["replays"] for one in answer(deployment, "list")["letters"]}
    assert letters == {"0:8": 0, "0:9": 1}
    kept = answer(deployment, "replay", "--rounds", "1")["kept"]
    assert {one["reason"] for one in kept} == {"late", "replayed"}


@contextlib.contextmanager
def diverting(deployment: Deployment, **properties: Any) -> Iterator[Callable[..., None]]:
    """Yield a function that puts a refused message into the dead letters."""
    producer = clients.producer(deployment.settings, **properties)
    letters = DeadLetters(producer, deployment.deadletters)
    yield lambda *refused: letters.enqueue(Rejection(*refused))
    letters.flush(60)
    producer.close()


def original(topic: str, number: int, value: bytes) -> Any:
    """Return a message of the reports topic that arrived in 2013."""
    found = mock.Mock(spec=Message)
    found.topic.return_value, found.partition.return_value = topic, 0
    found.offset.return_value, found.key.return_value = number, b"key %d" % number
    found.value.return_value, found.timestamp.return_value = value, (1, EPOCH)
    found.headers.return_value = [("trace", b"1")]
    return found


def test_copies_appear_once_after_retention(apache_kafka: Kafka, deployment: Deployment) -> None:
    reports = deployment.topic
    deployment.settings.topics.deadletters = deployment.deadletters = apache_kafka.topic(
        3, prefix="dead"
    )
    with diverting(deployment) as divert:
        for number in range(30):
            for _ in range(2):
                divert(original(reports, number, b"\xffgarbage"), "malformed", "no ReportBatch")
        divert(original("another", 1, b"\xffgarbage"), "malformed", "")
    producer = clients.producer(deployment.settings)
    producer.produce(deployment.deadletters, b"no dead letter at all")
    forged = {"topic": reports, "partition": "-5", "offset": "7"}
    headers: Any = [(f"__connect.errors.{name}", value) for name, value in forged.items()]
    producer.produce(deployment.deadletters, b"", headers=headers)
    producer.flush(60)
    producer.close()
    found = answer(deployment, "list", "--limit", "100")
    assert (found["total"], found["others"]) == (30, 3)
    assert len({one["place"].partition(":")[0] for one in found["letters"]}) == 3
    assert answer(deployment, "drop", "--all", "--yes")["dropped"] == 30
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap_servers})
    cut = TopicPartition(deployment.deadletters, 0, 3)
    admin.delete_records([cut])[cut].result(60)
    assert answer(deployment, "list")["total"] == 0, "the copies are marked, too"
    told = command(deployment, "explain", "0:1").exception
    assert "no dead letter at 0:1" in str(told)
    assert "0:3 to 0:" in str(told)


def test_a_truncated_message_cannot_be_sent_again_and_says_so(deployment: Deployment) -> None:
    whole = payload(deployment.metrics["delay"], 1, reports=60_000)
    with diverting(deployment, **{"message.max.bytes": 110_000}) as divert:
        divert(original(deployment.topic, 7, whole), "wrong_revision", "")
    found = answer(deployment, "list")
    assert found["counts"][0]["metric"] == "delay", "its name is at the beginning"
    outcome = answer(deployment, "replay")
    assert outcome["sent"] == 0
    assert outcome["kept"][0]["reason"] == "truncated"
    told = command(deployment, "explain", found["letters"][0]["place"]).output
    assert f"{len(whole)} bytes, of which this letter has the beginning" in told


def test_a_message_keeps_its_bytes_and_time(apache_kafka: Kafka, deployment: Deployment) -> None:
    delay = deployment.metrics["delay"]
    timed, untimed = payload(delay, 1), payload(delay, 2, 0)
    with diverting(deployment) as divert:
        for number, one in ((7, timed), (8, untimed)):
            divert(original(deployment.topic, number, one), "unknown_metric", "")
    assert answer(deployment, "replay")["sent"] == 2
    found = deployment.messages(at_least=2)
    assert [(m.key(), m.value()) for m in found] == [(b"key 7", timed), (b"key 8", untimed)]
    assert [m.headers() for m in found] == [[("trace", b"1"), ("dither.replays", b"1")]] * 2
    assert found[0].timestamp()[1] > EPOCH + DAY, "retention would delete what is old"
    assert found[1].timestamp()[1] == EPOCH, "the event time rests on it"

    stamping = apache_kafka.topic(1, message_timestamp_type="LogAppendTime")
    deployment.topic = deployment.settings.topics.reports = stamping
    with diverting(deployment) as divert:
        divert(original(stamping, 8, untimed), "future", "")
    (kept,) = answer(deployment, "replay")["kept"]
    assert kept["reason"] == "time_lost", "this topic would stamp it anew"


def test_dropping_needs_to_be_told_which_and_asks_before_it_does(deployment: Deployment) -> None:
    with diverting(deployment) as divert:
        divert(original(deployment.topic, 7, b"\xff\x1b[2J"), "malformed", "\x1b[2J")
    refused = command(deployment, "drop")
    assert refused.exit_code == 2
    assert "--reason" in refused.output
    assert command(deployment, "drop", "--all").exit_code == 1, "nobody said yes"
    place = answer(deployment, "list")["letters"][0]["place"]
    assert "\x1b" not in command(deployment, "explain", place).output
    assert "expected PARTITION:OFFSET" in command(deployment, "explain", "7").output
    assert answer(deployment, "list")["total"] == 1
