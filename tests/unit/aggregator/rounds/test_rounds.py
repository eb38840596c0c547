"""Answers are counted by round, as a function of the log; what is stored of rounds is checked."""

import dataclasses
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from aggregator.clock import Clock
from aggregator.config.settings import Settings
from aggregator.errors import StateUnreadable
from aggregator.features.reader import Reader
from aggregator.features.rounds.coordinator import Coordinator, RoundChanged
from aggregator.features.rounds.waiting_devices import Waiting
from aggregator.kafka.log_ends import LogEnds
from aggregator.reading.serialization import answer, as_dict
from aggregator.reading.status import Rates, status
from aggregator.state import decoder
from aggregator.state.pane_keys import metric_key, round_key
from aggregator.state.partition import Partition
from aggregator.storage.lease import LeaseLost
from aggregator.storage.redis_keys import policies_key, rounds_key
from aggregator.storage.store import Store
from aggregator.web.live_followers import Live
from estimators import SearchMetric, define
from estimators.exact.randomness import SeededBits
from estimators.extremes import Progress
from producers.device.rounds import Round, encode
from producers.wire.batch import encode_batch
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.counted import Client, Counting
from tests.support.reports.messages import log
from tests.support.rows import row

AGE = define(
    name="age", kind="maximum", range=(0, 64), levels=[1, 4], rounds=4, max_key_reports=None
)
DELAY = define(name="delay", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[1])
METRICS = {metric.name: metric for metric in (AGE, DELAY)}
FUTURE_MS = 600_000


def answers(number: int, count: int = 1, seed: int = 0) -> ReportBatch:
    """Return a batch of answers to a round, half of them at each level."""
    level = np.arange(count) % 2
    reports = AGE.search.answer(np.full(count, 40.0), level, 32.0, SeededBits(seed))
    identity = (1000 * number + seed).to_bytes(16, "big")
    return ReportBatch.FromString(encode_batch(AGE, level, reports, 0, identity, number))


def counted(partition: Partition, number: int) -> list[int]:
    """Return the answers to a round by level, over all its panes."""
    name = round_key(metric_key(AGE.name, AGE.revision), number)
    panes = [p.statistic for key, p in partition.panes.items() if key.metric == name]
    total: list[int] = AGE.counts(sum(panes, AGE.zero())).tolist()
    return total


@pytest.mark.parametrize("time_ms", [0, 1_700_000_000_000])
def test_rounds_count_alike_alone_or_at_once(time_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times and rounds may both be on the wire: then the layout has both."""
    batches = [answers(1 + seed % 4, 3, seed) for seed in range(200)]
    for seed, batch in enumerate(batches):
        batch.time_ms = time_ms and time_ms + seed
    messages = log(*batches)
    for message in messages:
        message.arrived = 1_700_000_001_000
    together, apart = Partition(METRICS, FUTURE_MS), Partition(METRICS, FUTURE_MS)
    assert together.count(messages) == []
    monkeypatch.setattr(decoder, "MIN_MATRIX_MESSAGES", 10**6)
    for message in messages:
        assert apart.count([message]) == []
    for number in range(1, 5):
        assert counted(together, number) == counted(apart, number) == [100, 50]
    assert together.counts == {"accepted:age": 600}
    assert f"age@{AGE.revision:08x}.4" in {key.metric for key in together.panes}
    assert together.watermarks == apart.watermarks


def test_a_round_that_the_metric_does_not_have_is_refused() -> None:
    delays = ReportBatch.FromString(encode_batch(DELAY, [0], [1], 0))
    for batch, number, told in (
        (answers(1), 0, "round 0: age is asked in rounds 1 to 4"),
        (answers(1), 5, "round 5: age is asked in rounds 1 to 4"),
        (answers(1), 2**32 - 1, "round 4294967295: age is asked in rounds 1 to 4"),
        (delays, 1, "round 1: delay has no rounds"),
    ):
        with row(told):
            batch.round = number
            (refusal,) = Partition(METRICS, FUTURE_MS).count(log(batch))
            assert refusal.reason == "bad_round"
            assert told in refusal.detail


def published(store: Any, told: Round) -> None:
    store.client.hset(rounds_key(store.topic), metric_key(AGE.name, AGE.revision), encode(told))


def decided(rounds: int) -> Round:
    """Return the round after some decisions, in each of which half say yes."""
    progress = Progress()
    for _ in range(rounds):
        statistic = AGE.zero()
        AGE.accumulate(statistic, [1] * 200, [0, 1] * 100)
        progress = AGE.search.decide(progress, statistic)
    return Round.of(AGE, progress, 1_700_000_000_000)


def test_devices_tell_what_they_wait_for_once_nobody_has_answered_for_a_while() -> None:
    now = [100.0]
    waiting = Waiting(AGE, lambda: now[0])
    assert waiting.due() is None
    now[0] += 5
    assert waiting.due() == "waiting for a round: `dither coordinate` opens it"
    assert waiting.due() is None, "not again at once"
    waiting.note_answers(decided(2), 1_234)
    now[0] += 4
    assert waiting.due() is None
    now[0] += 1
    told = waiting.due()
    assert told == (
        "round 3 of 4: 1,234 answers sent; it closes 1h after it was opened with 100 counted"
    )
    now[0] += 60
    assert waiting.due() == told
    enough = define(
        name="age", kind="maximum", range=(0, 64), levels=[1], rounds=4, round_reports=30_000
    )
    waiting = Waiting(enough, lambda: now[0])
    waiting.note_answers(decided(0), 29_950)
    now[0] += 5
    assert "29,950 answers sent; it closes with 30,000 counted, or 1h" in (waiting.due() or "")


def test_an_estimate_follows_the_rounds_that_were_published(store: Store) -> None:
    reader, counting = Reader(store, METRICS), Counting(store, METRICS)
    assert reader.estimate("age").status == "not_ready"
    published(store, decided(0))
    assert reader.estimate("age").status == "too_few_reports"
    counting.count(0, answers(1, 8), answers(2, 6))
    counting.count(1, answers(2, 4, seed=1), answers(3, 2))
    published(store, decided(1))
    window = reader.window("age")
    assert AGE.counts(window.sums).tolist() == [5, 5], "of round 2, in both partitions"
    assert window.reports == 200 + 10
    found = reader.answer(window)
    assert (found.status, found.lower, found.upper) == ("provisional", 32.0, 64.0)
    told = status(store.overview(), METRICS, Rates()).metrics["age"]
    assert told.event_time is None
    assert told.updated is not None
    live = msgspec.to_builtins(Live.of(window, found).data(1))
    assert live["search"]["answers"] == 10, "live events tell as much"
    assert live["search"] == as_dict(answer(window, found))["search"]
    published(store, decided(4))
    found = reader.estimate("age")
    assert (found.status, found.value, found.lower) == ("final", 62.0, 60.0)
    with pytest.raises(ValueError, match="asked in rounds"):
        reader.estimate("age", window="1h")


@dataclasses.dataclass
class Hands(Clock):
    """A clock that is set."""

    now: int = 0

    def now_ms(self) -> int:
        return self.now


def test_a_round_ends_when_answered_or_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    age = SearchMetric.require(dataclasses.replace(AGE, round_reports=10, minimum_reports=5))
    reader, counting = Reader(store, {"age": age}), Counting(store, {"age": age})
    coordinator = Coordinator(Settings(), reader, Hands())
    opened = Round.of(age, Progress(), 0)
    ends = LogEnds({}, "Kafka is away")
    monkeypatch.setattr(coordinator._log_ends, "ask", lambda: ends)

    def is_due(now: int, metric: SearchMetric = age) -> bool:
        coordinator._clock.now = now  # type: ignore[attr-defined]
        overview = store.overview()
        statistic = coordinator._answers(overview, metric, opened)
        return coordinator._is_due(overview, metric, opened, statistic)

    counting.count(0, answers(1, 4), answers(1, 2, seed=1))
    assert not is_due(age.round_ms), "nobody knows where the log ends"
    ends = LogEnds({0: (0, 2), 1: (0, 1)}, "")
    assert not is_due(age.round_ms), "partition 1 is not counted"
    counting.count(1, answers(2))
    assert is_due(age.round_ms)
    assert not is_due(age.round_ms - 1), "its time is not over"
    assert not is_due(age.round_ms, dataclasses.replace(age, minimum_reports=7))
    ends = LogEnds({0: (0, 2), 1: (0, 7)}, "")
    assert is_due(age.round_ms), "what came after its time is not waited for"
    with monkeypatch.context() as torn:
        torn.setattr(Store, "is_same_history", lambda *_: False)
        assert not is_due(age.round_ms)
    assert coordinator.lease.acquire()
    coordinator._note_open(age, opened)
    assert not is_due(age.round_ms), "of another round it is asked anew"
    counting.count(1, answers(1, 4, seed=2))
    assert is_due(0), "it has its answers"


def test_the_first_decision_of_a_round_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(Settings(), Reader(store, METRICS), Hands())
    with pytest.raises(LeaseLost):
        coordinator._verify_lease()
    with pytest.raises(LeaseLost):
        coordinator._store(AGE, b"", decided(0))
    assert coordinator.lease.acquire()
    coordinator._store(AGE, b"", decided(0))
    coordinator._store(AGE, encode(decided(0)), decided(1))
    with pytest.raises(RoundChanged):
        coordinator._store(AGE, encode(decided(0)), decided(2))
    assert store.client.hvals(coordinator._stored) == [encode(decided(1))]
    forged, told = msgspec.structs.replace(decided(1), opened_ms=2**62), list[Round]()
    monkeypatch.setattr(coordinator, "_publish", lambda _, one: told.append(one))
    coordinator._resume(AGE, forged)
    assert told == [msgspec.structs.replace(forged, opened_ms=0)], "it would never be over"
    assert store.client.hvals(coordinator._stored) == [encode(told[0])]
    store.client.set(coordinator._stored, "spoilt")
    with pytest.raises(StateUnreadable, match=coordinator._stored):
        coordinator._resume(AGE, forged)


def test_a_stored_round_that_cannot_be_is_named(store: Store) -> None:
    published(store, decided(1))
    key = metric_key(AGE.name, AGE.revision)
    torn = encode(decided(1)).replace(b'"threshold":48.0', b'"threshold":40.0')
    for text in (b"?", torn):
        store.client.hset(rounds_key(store.topic), key, text)
        with pytest.raises(StateUnreadable, match=r"coordinator:dither.reports.*age@"):
            Reader(store, METRICS).estimate("age")
    reader = Reader(store, METRICS)
    for key_of, name, other in ((rounds_key, "age", "delay"), (policies_key, "delay", "age")):
        store.client.set(key_of(store.topic), "spoilt")
        reader.estimate(other)
        with pytest.raises(StateUnreadable, match=key_of(store.topic)):
            reader.estimate(name)
        store.client.delete(key_of(store.topic))
        published(store, decided(1))


def test_the_round_that_is_open_is_read_over_http(store: Store) -> None:
    client = Client(store, METRICS, Settings())
    path = "/v1/metrics/age/round"
    assert "no round" in client.problem(503, path)["detail"]
    told = decided(2)
    published(store, told)
    answer: httpx.Response = client.get(path)
    assert answer.json()["threshold"] == told.threshold == 56.0
    assert answer.json()["number"] == 3
    assert client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert "has no rounds" in client.problem(400, "/v1/metrics/delay/round")["detail"]
    search = client.json("/v1/metrics/age/estimate")["search"]
    assert search["bisection"] == [48.0, 64.0]
    assert search["certified"] == 48.0
    assert search["certainty"] == 0.95
    assert "influence" not in client.json("/v1/metrics/age/estimate")
    assert "asked in rounds" in client.problem(400, "/v1/metrics/age/series")["detail"]
    scraped = client.get("/metrics").text
    assert 'dither_search_threshold{metric="age"} 56.0' in scraped
    assert 'dither_search_round{metric="age"} 3.0' in scraped
    definition = client.json("/v1/metrics/age")
    assert (definition["rounds"], definition["split"]) == (4, "users")
