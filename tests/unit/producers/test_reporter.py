"""What an application may rely on when it reports."""

import dataclasses
import json
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, NamedTuple

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from producers import Connection, Reporter
from producers.delivery.delivery_errors import DeliveryError
from tests.support.clocks import Clock
from tests.support.paths import ROOT
from tests.support.reports.cases import summed
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, LATE, METRICS, PLACE, Broker, count


class Swapped(NamedTuple):
    """Coordinates in another order than the metric's."""

    y: float
    x: float


class Boxed:
    """Values that become an array when they are asked for one."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.ma.array([1.0, 0.0], mask=[False, True])


def test_batches_hold_exactly_what_the_mechanism_made_of_the_values(broker: Broker) -> None:
    generator = np.random.default_rng(1)
    with Connection(broker.config) as connection:
        for metric in METRICS:
            values = generator.integers(0, len(metric.category_names) or 2, 2500)
            epsilons = generator.choice([1.0, 4.0], 2500)
            topic, bits = broker.topic(), SeededBits(3)
            reporter = Reporter(metric, connection, topic=topic, bits=bits)
            reporter.report(values, epsilon=epsilons, time=100.0)
            reporter.report([], epsilon=1)
            reporter.close()
            expected = summed(metric, values, metric.level_of(epsilons), seed=3)
            batches = broker.batches(topic)
            assert sorted(len(batch.levels) for batch in batches) == [500, 1000, 1000]
            assert np.array_equal(count(metric, batches), expected)
            delivered = reporter.delivered
            assert (delivered.reports, delivered.batches) == (2500, 3)
            assert delivered.bytes == sum(batch.ByteSize() for batch in batches)
            with pytest.raises(ValueError, match="closed"):
                reporter.report([1], epsilon=1)


def test_a_reporter_frames_its_batches_for_a_schema_registry(broker: Broker, topic: str) -> None:
    with Reporter(DELAY, broker.config, topic=topic, schema_id=258) as reporter:
        reporter.report([1.0] * 1500, epsilon=1.0, time=100.0)
        reporter.flush()
        sent = reporter.delivered
    messages = broker.read(topic)
    assert {message.frame for message in messages} == {b"\0\0\0\1\2\0"}
    assert sorted(len(message.batch.levels) for message in messages) == [500, 1000]
    assert sent.bytes == sum(message.batch.ByteSize() + 6 for message in messages)


def test_a_batch_stays_in_one_pane_and_has_its_latest_time(broker: Broker, topic: str) -> None:
    with Reporter(LATE, broker.config, topic=topic, clock=Clock(150.5)) as reporter:
        reporter.report([1.0] * 5, epsilon=1, time=[61.0, 59.0, 119.5, 60.0, 1.0])
        reporter.report(0.0, epsilon=4, time=90.0)
        reporter.report(0.0, epsilon=2)
    found = {batch.time_ms: sorted(batch.levels) for batch in broker.batches(topic)}
    assert found == {59_000: [1, 1], 119_500: [1, 1, 1, 3], 150_500: [2]}


def test_the_key_is_the_batch_id_or_the_one_that_was_given(broker: Broker, topic: str) -> None:
    with Reporter(LATE, broker.config, topic=topic, batch_reports=1) as reporter:
        reporter.report([1.0] * 64, epsilon=1)
    messages = broker.read(topic)
    assert all(message.key == message.batch.batch_id for message in messages)
    assert len({message.partition for message in messages}) > 1
    topic = broker.topic()
    with Reporter(LATE, broker.config, topic=topic, key=b"shard 7", batch_reports=10) as reporter:
        reporter.report(np.zeros(50), epsilon=1)
    messages = broker.read(topic)
    assert [message.key for message in messages] == [b"shard 7"] * 5
    assert len({message.batch.batch_id for message in messages}) == 5, "ids are their own"


def test_batches_are_no_larger_than_the_metric_and_kafka_allow(broker: Broker) -> None:
    small = dataclasses.replace(LATE, max_batch_reports=30)
    wide = define(name="w", kind="frequency", mechanism="rappor", categories=8000, levels=[4])
    config = {**broker.config, "message.max.bytes": 20_000}
    for metric, sizes in ((small, [10, 30, 30, 30]), (wide, [5, *[19] * 5])):
        topic = broker.topic()
        with Reporter(metric, config, topic=topic) as reporter:
            reporter.report([1] * 100, epsilon=4)
        batches = broker.batches(topic)
        assert sorted(len(batch.levels) for batch in batches) == sizes
        assert max(batch.ByteSize() for batch in batches) <= 20_000


def test_a_thread_sends_by_age_and_a_full_queue_makes_them_wait(broker: Broker, topic: str) -> None:
    config = {**broker.config, "queue.buffering.max.messages": 2}
    with Reporter(LATE, config, topic=topic, batch_age=0.0, batch_reports=7) as reporter:
        reporter.report([1.0] * 60, epsilon=1)
        assert len(broker.read(topic, at_least=9)) == 9  # nobody has called poll or flush


def test_threads_may_share_a_reporter(broker: Broker, topic: str) -> None:
    each = [3, 300, 500, 400]

    def work(level: int) -> None:
        for _ in range(each[level]):
            reporter.report([1.0, 0.0], epsilon=LATE.levels[level], time=30.0 + 60 * level)

    options: dict[str, Any] = {"batch_reports": 7, "batch_age": 0.0}
    with (
        Reporter(LATE, broker.config, topic=topic, **options) as reporter,
        ThreadPoolExecutor(4) as pool,
    ):
        done = pool.map(work, range(4))
        reporter.flush()
        list(done)
    statistic = count(LATE, broker.batches(topic))
    assert LATE.counts(statistic).tolist() == [2 * n for n in each]


def test_an_older_batch_never_leaves_behind_a_newer_one(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever counts would close its pane, and refuse it as late."""
    timer, held, go_on = Clock(0.0), threading.Event(), threading.Event()
    with (
        Connection(broker.config, background=False) as connection,
        Reporter(
            LATE, connection, topic=topic, key=b"one partition", batch_reports=2, timer=timer
        ) as reporter,
    ):
        produce = connection.producer.produce

        def hold_the_first(*arguments: Any, **options: Any) -> None:
            if not held.is_set():
                held.set()
                assert go_on.wait(60)
            produce(*arguments, **options)

        monkeypatch.setattr(connection.producer, "produce", hold_the_first)
        reporter.report(1.0, epsilon=1, time=30.0)
        timer.now = 10.0
        aged = threading.Thread(target=reporter.send_aged)
        aged.start()
        assert held.wait(60), "the old batch is sealed, and its thread sleeps"
        new = threading.Thread(target=lambda: reporter.report([1.0, 1.0], epsilon=1, time=9000.0))
        new.start()
        new.join(0.2)
        assert new.is_alive(), "it waits for its turn"
        with pytest.raises(DeliveryError, match="3 reports in 2 batches"):
            reporter.flush(timeout=0.1)  # and nobody waits longer than they said
        go_on.set()
        for thread in (aged, new):
            thread.join()
        reporter.flush()
    assert [message.batch.time_ms for message in broker.read(topic)] == [30_000, 9_000_000]


def test_what_cannot_be_reported_is_named_and_nothing_is_sent(broker: Broker) -> None:
    keys: dict[str, Any] = {"kind": "vector_mean", "coordinates": ["x", "y"], "radius": 1}
    named = LocalMetric.require(define(name="place", levels=[1], **keys))
    cases: list[tuple[LocalMetric, Any, Any, Any, str]] = [
        (LATE, 1.0, 0.1, None, r"epsilon = 0.1: metric 'late' offers \[0.5, 1, 2, 4\]"),
        (LATE, np.ma.array([1.0, 2.0], mask=[False, True]), 1, None, "'late': 1 of 2 are masked"),
        (CARRIER, np.ma.array(["AA", "DL"], mask=True), 1, None, "2 of 2 are masked"),
        (LATE, 1.0, np.ma.masked, None, "epsilons: 1 of 1 are masked"),
        (LATE, 1.0, 1, np.ma.array([1.0], mask=True), "times: 1 of 1 are masked"),
        (PLACE, deque([np.ma.array([1.0, 2.0], mask=True)]), 1, None, "2 of 2 are masked"),
        (LATE, ([np.ma.masked], deque([1.0])), 1, None, "1 of 1 are masked"),
        (LATE, Boxed(), 1, None, "values of 'late': 1 of 2 are masked"),
        (LATE, [1.0, 1.0], [Boxed()], None, "epsilons: 1 of 2 are masked"),
        (CARRIER, {"AA"}, 1, None, "category {'AA'} of 'carrier': expected one of"),
        (LATE, np.array([5], "m8[ns]"), 1, None, r"as value / datetime.timedelta\(seconds"),
        (LATE, {"a": 1}, 1, None, r"list of them, as list\(value.values\(\)\) makes"),
        (CARRIER, b"AA", 1, None, r"expected one of .*, as .decode\(\) makes"),
        (CARRIER, [1.0], 1, None, r"or an index, as int\(\) makes"),
        (LATE, np.zeros(1, "f8,f8"), 1, None, r"records of f0, f1: expected one field, as values"),
        (named, [Swapped(1.0, 2.0)], 1, None, "expected the order of its coordinates"),
        (
            CARRIER,
            PickleBuffer(b"AA"),
            1,
            None,
            "a PickleBuffer of bytes: expected numbers or texts",
        ),
        (LATE, [1.0, 0.0], 1, [1.0], r"times of shape \(1,\) for 2 reports"),
        (PLACE, np.zeros((4, 2)), [1, 1, 1], None, "one for each value"),
    ]
    with Connection(broker.config) as connection:
        for metric, value, epsilon, time, said in cases:
            reporter = Reporter(metric, connection)
            with row(said), pytest.raises(ValueError, match=said):
                reporter.report(value, epsilon=epsilon, time=time)
            reporter.flush()
            assert reporter.delivered.reports == 0


SPECIAL: dict[str, Any] = {"2^64": 2**64, "10^400": 10**400, "hole": [1, None, 1], "set": {1, 2}}


def special(value: dict[str, Any]) -> Any:
    """Return what stands for a value that JSON cannot have."""
    name = value.get("special", "")
    return (SPECIAL[name] if name in SPECIAL else float(name)) if name else value


def test_inputs_are_refused_in_the_words_that_browsers_use_too(broker: Broker) -> None:
    refusals = json.loads((ROOT / "tests/vectors/refusals.json").read_text(), object_hook=special)
    with Connection(broker.config) as connection:
        for entry in refusals["inputs"]:
            name, expected = entry["metric"], entry["expected"]
            words = expected and expected.format(number="float()", list="list()", text="str()")
            reporter = Reporter(define(name=name, **refusals["metrics"][name]), connection)
            for value, epsilon in entry["given"]:
                with row(name, value, epsilon):
                    said = None
                    try:
                        reporter.report(value, epsilon)
                    except ValueError as error:
                        said = str(error)
                    assert said is None if words is None else said and said.endswith(words)


def test_what_cannot_be_a_setting_or_a_metric_is_told() -> None:
    nowhere: dict[str, Any] = {"bootstrap.servers": "x:1"}
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (LATE, {}, {}, "expected 'bootstrap.servers'"),
        (LATE, nowhere | {"acks": 1}, {}, "acks"),
        (LATE, nowhere, {"batch_reports": 0}, "batch_reports = 0"),
        (LATE, nowhere, {"batch_age": -1}, "batch_age = -1"),
        (DELAY, nowhere, {"schema_id": 0}, "schema_id = 0"),
        (LATE, "localhost:9092", {}, "config = 'localhost:9092': expected Kafka properties"),
        ("late", nowhere, {}, r"metric = 'late': .* as in load_metrics\('metrics.toml'\)\['late'"),
        (Path("/m.toml"), nowhere, {}, r"as in load_metrics\('/m.toml'\)\['NAME'\]"),
        ({"late": LATE}, nowhere, {}, r"expected a Metric, as in metrics\['late'\]"),
        ({"kind": "mean"}, nowhere, {}, r"as in define\(name='NAME', \*\*definition\)"),
    ]
    for metric, config, options, said in cases:
        with row(said), pytest.raises((TypeError, ValueError), match=said):
            Reporter(metric, config, **options)


def test_what_is_left_when_a_program_ends_is_still_sent(broker: Broker, topic: str) -> None:
    program = (
        "from producers import Reporter; from estimators import define; "
        "m = define(name='late', kind='mean', mechanism='randomized_response', range=(0, 1), "
        "levels=[0.5, 1, 2, 4], pane='1m'); "
        f"r = Reporter(m, {broker.config!r}, topic={topic!r}, batch_age=100); "
        "r.report(1.0, epsilon=1)"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert LATE.counts(count(LATE, broker.batches(topic))).tolist() == [0, 1, 0, 0]
    program = "import atexit; from producers.kafka.diagnosis import diagnose_kafka as diagnose; "
    program += "atexit.register(diagnose, {'bootstrap.servers': '127.0.0.1:1'}, ())"
    assert not subprocess.run([sys.executable, "-c", program], capture_output=True).stderr
