"""What Prometheus scrapes: well-formed, declared, bounded, and honest when Redis is away."""

import dataclasses
import functools
import math
import subprocess
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as from_openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as ScrapedSample

from aggregator.cli.roles import roles
from aggregator.config.definitions import MetricDefinitions
from aggregator.config.settings import Otlp, Publish, Serve, Settings, Topics
from aggregator.counting.measurements import Measurements
from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.features.alarms.run import AlarmRun, StoredAlarm
from aggregator.features.alarms.samples import AlarmSamples
from aggregator.features.comparisons.definitions import ComparisonDefinition
from aggregator.features.comparisons.run import ComparisonRun
from aggregator.features.comparisons.samples import ComparisonSamples
from aggregator.features.reader import Reader
from aggregator.kafka.log_ends import LogEnds
from aggregator.monitoring import answer_samples, metric_definitions, reference
from aggregator.monitoring.collector import Exporter
from aggregator.monitoring.families import Encode, text_of
from aggregator.publishing import events
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage import redis_keys
from aggregator.storage.connection import connect
from aggregator.storage.lease import Lease
from aggregator.storage.parsing import LAST_COMMIT_MS
from aggregator.storage.store import Store
from aggregator.web.application import application
from estimators import Metric, define
from estimators.extremes import Decision, Progress
from estimators.metrics.categories import Vocabulary
from producers.device.rounds import Round, encode
from producers.gateway import Gateway
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.metrics import frequency_metric, mean_metric
from tests.support.paths import ROOT
from tests.support.reports.counted import MINUTE, TOPIC, Client, Counting
from tests.support.reports.messages import ARRIVAL, EPOCH, batch
from tests.support.rows import row
from tests.support.running.servers import Redis, program
from tests.support.running.stub_gateway import StubGateway

TOP = 3
HIGH = 17
"""Where the log of partition 0 ends: four messages are not counted."""
DELAY = mean_metric("delay", "randomized_response", (0, 10), [0.5, 1], unit='minutes "late"\n')
UNSTEADY = ("dither_http_", "dither_collection", "dither_last_commit_timestamp")
"""What differs between two scrapes; the last on a busy machine, by the age of Redis' mark."""
NAMES = ["AA", "B6", 'quoted " name', "back\\slash", "new\nline"]
CARRIER = define(name="carrier", kind="frequency", mechanism="rappor", categories=NAMES, levels=[8])
SILENT = define(name="silent", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
PLACE = define(
    name="place", kind="vector_mean", mechanism="hemisphere", dimension=5, radius=2, levels=[8]
)
TALL = define(name="tall", kind="distribution", range=(0, 10), bins=10, levels=[8])
OPEN: dict[str, Any] = {"mechanism": "count_sketch", "categories": "open", "levels": [8]}
WORDS = define(name="words", kind="frequency", watch=["sun", "snow"], **OPEN)
UNWATCHED = dataclasses.replace(WORDS, name="unwatched", domain=Vocabulary(categories="open"))
YOUNGEST = define(name="youngest", kind="minimum", range=(0, 1), levels=[1], rounds=6)
WAGE = define(name="wage", kind="mean", trust="central", range=(0, 10), levels=[0.1, 4], pane="10m")
BY = {"by": ["country", "version"], "attributes": {"country": ["DE", "FR"], "version": ["1"]}}
LATE = frequency_metric("late", "grr", ["no", "yes", "much"], [8], shares=["much / yes.."], **BY)
SIDES: dict[str, Any] = {"where": {"country": "DE"}, "against": {"country": "FR"}}
COUNTRIES = ComparisonDefinition(name="countries", metric="late", start_ms=EPOCH, **SIDES)
MOVED = AlarmDefinition(
    name="moved",
    metric="late",
    start_ms=EPOCH,
    every_ms=3_600_000,
    false_alarms=1e-3,
    categories=("yes",),
    baseline_value=0.5,
    promise="1/1000h",
)
METRICS = {m.name: m for m in (DELAY, CARRIER, SILENT, PLACE, WORDS, UNWATCHED, TALL)}
ALL = {m.name: m for m in (*METRICS.values(), YOUNGEST, WAGE, LATE)}
MEASURED = (
    Measurements()
    .with_commit(0.004, 100)
    .with_arrivals(array("q", [0, 0, 600]), 700)
    .with_refusal("malformed")
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


openmetrics: Callable[[str], Iterable[Family]] = from_openmetrics


def client_of(
    store: Store,
    top: int = TOP,
    metrics: Mapping[str, Metric] = METRICS,
    otlp: str = "",
    **serve: Any,
) -> Client:
    """Return who asks an application that knows where the logs end, as a scraper does."""
    settings = Settings(serve=Serve(top_categories=top, **serve), otlp=Otlp(endpoint=otlp))
    found = Client(store, metrics, settings)
    found.ends = LogEnds({0: (0, HIGH), 1: (0, HIGH + 1)}, "", time.monotonic() - 7)
    return found


@pytest.fixture
def client(store: Store) -> Client:
    return client_of(store)


def count(store: Store, number: int, *messages: ReportBatch | bytes, **facts: str | int) -> None:
    """Take a partition over, count messages after what is there, and commit."""
    Counting(store, ALL).count(number, *messages, **facts)


def count_something(store: Store) -> None:
    """Two partitions with reports of two metrics, a copy, and two kinds of bad batches."""
    for number in (0, 1):
        seed = 100 * number
        one = batch(DELAY, [4.0] * 200, 1, EPOCH, seed + 1)
        later = [
            batch(DELAY, [6.0] * size, 0.5, EPOCH + 9 * MINUTE, seed + 10 + place)
            for place, size in enumerate([12] * 7 + [16])
        ]
        carriers = batch(CARRIER, [0] * 300 + [1] * 200 + [2] * 100, 8, EPOCH, seed + 3)
        late = batch(DELAY, [1.0] * 7, 1, EPOCH, seed + 4)
        facts: dict[str, str | int] = {"high": HIGH + number, "halted": "why" * number, "gap": 5}
        messages: list[ReportBatch | bytes] = [one, one, *later, carriers, late, b"\xff no batch"]
        count(store, number, *messages, **facts, **MEASURED.facts())


def search_something(store: Store) -> None:
    """Five of six rounds, whose shares fall with the square of the distance."""
    decisions = [
        Decision(place, (10**8,), (0,), place**2, 0.001, place**2 > 0.001)
        for place in (0.5, 0.25, 0.125, 0.0625, 0.03125)
    ]
    told = Round.of(YOUNGEST, Progress(tuple(decisions)), EPOCH)
    field = metric_key(YOUNGEST.name, YOUNGEST.revision)
    store.client.hset(redis_keys.rounds_key(TOPIC), field, encode(told))


def wages(store: Store) -> None:
    """Count two panes that are over, and an open one, in every partition."""
    for number in store.partitions() or [0]:
        batches = [
            batch(WAGE, [4.0] * 25, epsilon, EPOCH + pane * WAGE.pane_ms, 900 + 8 * pane + place)
            for pane in range(3)
            for place, epsilon in enumerate([*WAGE.levels] * 4)
        ]
        count(store, number, *batches)


def release(store: Store, start: int) -> None:
    """Release a pane of two hundred wages, as a publisher leaves it in Redis."""
    level, statistic = [0] * 100 + [1] * 100, WAGE.zero()
    WAGE.accumulate(statistic, level, WAGE.randomize([4.0] * 200, level))
    drawn = dataclasses.replace(WAGE.release(statistic, weights="adpm"), status="final")
    end = start + WAGE.pane_ms
    pane = Window(metric=WAGE, start_ms=start, end_ms=end, status="final", policy="adpm")
    prefix, key = redis_keys.publisher_key(TOPIC), metric_key(WAGE.name, WAGE.revision)
    store.client.zadd(redis_keys.final_key(prefix, key), {str(start): start})
    store.client.set(redis_keys.release_key(prefix, key, start), events.release_data(pane, drawn))


def count_vectors(store: Store) -> None:
    count(store, 7, batch(PLACE, [[0.1, -1.5, 0, 0.5, 0]] * 2000, 8))


def count_heights(store: Store) -> None:
    """Two thousand devices, half of which are at 2.5 and half at 7.5."""
    count(store, 6, batch(TALL, [2.5] * 1000 + [7.5] * 1000, 8))


def count_slices(store: Store) -> None:
    """Devices of three countries; of the last one too few."""
    sent = [
        batch(LATE, [place] * reports, 8, EPOCH, 500 + place, attributes=attributes)
        for place, (country, reports) in enumerate([("DE", 400), ("FR", 600), ("GB", 20)])
        for attributes in [[Attribute(name="country", value=country)]]
    ]
    count(store, 3, *sent)


def families(text: str) -> dict[str, Family]:
    return {family.name: family for family in prometheus(text)}


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return a metric's samples by their labels' values, in the declared order."""
    declared = name.removesuffix("_total").removesuffix("_info")
    (labels,) = (e.labels for e in reference.all_exported() if e.name == declared)
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in prometheus(text)
        for sample in family.samples
        if sample.name == name
    }


def bounded(text: str, name: str) -> list[dict[tuple[str, ...], float]]:
    """Return lower bounds, values and upper bounds of a metric."""
    return [samples(text, f"{name}{suffix}") for suffix in ("_lower", "", "_upper")]


def scrape(client: Client) -> str:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def test_quantiles_are_exported_with_bounds(store: Store) -> None:
    """Bounds at beta = 0.05; the seeds of the reports are the system's."""
    count_heights(store)
    text = scrape(client_of(store))
    found = bounded(text, "dither_quantile")
    assert [[*each] for each in found] == [[("tall", q) for q in ("0.5", "0.9", "0.99")]] * 3
    for name in found[1]:
        lower, value, upper = (each[name] for each in found)
        assert 0 <= lower <= value <= upper <= 10
    assert not samples(text, "dither_estimate").keys() & {("tall", "")}
    shares = bounded(text, "dither_share_below")
    assert [[edge for _, edge in each] for each in shares] == [[*map(str, range(11)), "+Inf"]] * 3
    rows = [[*row] for row in zip(*(each.values() for each in shares), strict=True)]
    assert (rows[0], rows[-1]) == ([0, 0, 0], [1, 1, 1])
    assert shares[1]["tall", "5"] == pytest.approx(0.5, abs=0.2)
    assert all(row == sorted(row) for row in rows)
    assert [*shares[1].values()] == sorted(shares[1].values())


def test_slices_are_exported_up_to_a_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    count_slices(store)
    metrics = {**METRICS, "late": LATE}
    text = scrape(client_of(store, 2, metrics, slices=["late: country", "late: country, version"]))
    reports = {"DE": 400, "FR": 600, "other": 20}
    assert samples(text, "dither_slice_reports") == {
        ("late", f"country={country}{version}"): count
        for country, count in reports.items()
        for version in ("", ",version=none")
    }
    assert set(samples(text, "dither_slices_left_out").values()) == {0}
    found = Reader(store, metrics).estimate("late", by=["country"])
    (german,) = (one.estimate for one in found.slices if one.slice == {"country": "DE"})
    assert german is not None
    shown = german.top(2)
    exported = bounded(text, "dither_slice_estimate")
    for each, numbers in zip(exported, (shown.lower, shown.shown, shown.upper), strict=True):
        assert {c: v for (_, s, c), v in each.items() if s == "country=DE"} == dict(
            zip(shown.labels, np.atleast_1d(numbers), strict=True)
        )
        assert len(each) == 2 * 2 * 2, "too few reports: no estimate"
    assert "dither_slice" not in scrape(client_of(store, metrics=metrics))

    about: dict[str, Any] = {"metrics": metrics, "slices": ["late: country"]}
    text = scrape(client_of(store, **about, top_slices=1))
    assert samples(text, "dither_slice_reports") == {("late", "country=FR"): 600}
    assert samples(text, "dither_slices_left_out") == {("late", "country"): 2}
    monkeypatch.setattr(answer_samples, "MAX_SLICE_SAMPLES", 25)
    text = scrape(client_of(store, **about))
    assert sum("dither_slice" in line for line in text.splitlines() if line[0] != "#") <= 25
    assert samples(text, "dither_slices_left_out") == {("late", "country"): 1}


def test_of_an_open_vocabulary_what_is_on_watch_is_exported(store: Store) -> None:
    metrics = dict(METRICS)
    client = client_of(store, metrics=metrics)
    values = ["sun"] * 300 + ["rain"] * 700
    count(store, 0, *(batch(metric, values, 8) for metric in (WORDS, UNWATCHED)))
    text = scrape(client)
    shown = samples(text, "dither_estimate")
    assert shown.keys() == {("words", "sun"), ("words", "snow")}
    assert shown["words", "sun"] == pytest.approx(0.3, abs=0.1)
    assert samples(text, "dither_categories_left_out") == {("words",): 0}
    assert samples(text, "dither_effective_reports")[("unwatched",)] > 100
    metrics["words"] = define(name="words", kind="frequency", watch=["rain"], **OPEN)
    assert samples(scrape(client), "dither_estimate").keys() == {("words", "rain")}


def note_comparison(store: Store, metrics: MetricDefinitions) -> None:
    """Store how a comparison stands after the first hour."""
    run = ComparisonRun(Reader(store, metrics), COUNTRIES)
    assert [*run.due(store.overview(), {"late": EPOCH + 3_600_000})]
    store.client.set(run.state_key, msgspec.msgpack.encode(run.stored()))


ALARM_RAISED_ONCE = b"""{
"next_ms": 1356998400000, "skipped": 0, "is_learning": false, "reason": "",
"series": [{"baseline": null, "detector": "", "evidence": 0.5, "smallest_shift": 0.1, "panes": 3,
  "alarms": 1, "reason": "", "known": {"from": null, "to": null, "value": 0.5, "reports": null}}],
"raised": [{"alarm": "moved", "metric": "late", "unit": "", "slice": {}, "direction": "up",
  "at": "2013-01-01T01:00:00Z", "since": "2013-01-01T00:00:00Z", "panes": 1, "promise": "",
  "baseline": {"from": null, "to": null, "value": 0.5, "reports": null},
  "now": {"value": 0.7, "lower": 0.6, "upper": 0.8, "reports": 100},
  "evidence": 9.0, "needed": 7.0}]
}"""


def note_alarm(store: Store) -> None:
    """Store how an alarm stands."""
    state = msgspec.json.decode(ALARM_RAISED_ONCE, type=StoredAlarm)
    state = msgspec.structs.replace(state, next_ms=MOVED.start_ms + MOVED.every_ms)
    key = AlarmRun.key_of(Reader(store, {"late": LATE}), MOVED)
    store.client.set(key, msgspec.msgpack.encode(state))


def test_everything_declared_is_exported_and_nothing_else(store: Store) -> None:
    for note in (count_something, count_vectors, search_something, wages, count_slices):
        note(store)
    release(store, EPOCH)
    count_heights(store)
    metrics = MetricDefinitions(ALL, comparisons={"countries": COUNTRIES}, alarms={"moved": MOVED})
    note_alarm(store)
    note_comparison(store, metrics)
    client = client_of(store, metrics=metrics, otlp="http://127.0.0.1:9", slices=["late: country"])
    gateway: Any = StubGateway()
    gateway.crowds.counts = {("late", "accepted"): 1}
    reader = Reader(store, metrics)
    client.app = application(reader, client.settings, gateway=gateway, ends=lambda: client.ends)
    store.registry.note_stuck("host:7", "committing", 60, time.time_ns() // 1_000_000)
    failed = redis_keys.failed_searches_key(redis_keys.publisher_key(store.topic))
    store.client.hset(failed, "word", 1)
    declared = {
        e.name + "_info" * (e.type == "info"): ("gauge" if e.type == "info" else e.type, e)
        for e in reference.all_exported()
    }
    scrape(client)
    found = families(scrape(client))
    assert {name: (one.type, one.documentation) for name, one in found.items()} == {
        name: (kind, one.help) for name, (kind, one) in declared.items()
    }
    for name, family in found.items():
        assert family.samples
        own = {"le"} if family.type == "histogram" else set()
        labels = set(declared[name][1].labels)
        assert all(set(sample.labels) - own == labels for sample in family.samples)
    assert {label for e in reference.all_exported() for label in e.labels} == (
        metric_definitions.LABEL_MEANINGS.keys()
        | AlarmSamples.labels.keys()
        | ComparisonSamples.labels.keys()
        | {"kind", "mechanism", "unit", "levels", "revision"}
    )


def test_declarations_are_listed_once_and_their_reference_is_up_to_date() -> None:
    file = ROOT / "docs" / "metrics.md"
    assert file.read_text() == reference.reference(file.read_text()), (
        "run: python -m aggregator.monitoring.reference"
    )
    declared = [e.name for e in reference.all_exported()]
    assert len(set(declared)) == len(declared)


def test_both_formats_say_the_same_and_promtool_agrees(store: Store, client: Client) -> None:
    promtool = program("promtool", "install Prometheus (Debian: prometheus)")
    before = scrape(client)
    count_something(store)
    count_vectors(store)
    for text in (before, scrape(client)):
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    client.ends = dataclasses.replace(client.ends, asked_at=float("-inf"))  # the age grows
    answer = client.get("/metrics", headers={"Accept": OPENMETRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    for version in ("x", "1." + "0" * 5000):
        accept = {"Accept": f"application/openmetrics-text;version={version}"}
        assert client.get("/metrics", headers=accept).status_code == 200
    new, old = (
        {
            (sample.name, *sorted(sample.labels.items())): repr(sample.value)
            for family in parsed
            for sample in family.samples
            if not family.name.startswith(UNSTEADY)
        }
        for parsed in (openmetrics(answer.text), prometheus(scrape(client)))
    )
    assert len(new) > 100
    assert new == old


def test_samples_of_the_last_scrape_are_not_written_again(store: Store) -> None:
    count_something(store)
    exporter, written = Exporter(Reader(store, METRICS), TOP), list[ScrapedSample]()

    def noted(encode: Encode, collector: Collector) -> bytes:
        written.extend(sample for family in collector.collect() for sample in family.samples)
        return encode(collector)

    for accept in ("", OPENMETRICS, "text/plain; version=1.0.0; escaping=allow-utf-8"):
        encode, content_type = choose_encoder(accept)
        for state, rewritten in (("new", {*METRICS}), ("unchanged", set()), ("changed", {"delay"})):
            if state == "changed":
                count(store, 0, batch(DELAY, [4.0], 1, EPOCH + 60 * MINUTE, time.time_ns()))
            collected = CollectorRegistry()
            collected.collect = [*exporter.collect()].__iter__  # type: ignore[method-assign]
            written.clear()
            with row(accept, state):
                text = text_of(collected, functools.partial(noted, encode), content_type)
                assert text == encode(collected)
                steady = [sample for sample in written if not sample.name.startswith(UNSTEADY)]
                assert bool(steady) == bool(rewritten)
                levels = {s.labels["metric"] for s in steady if s.name == "dither_level_reports"}
                assert levels == rewritten


def test_estimates_are_the_readers_with_the_policy_in_force(store: Store, client: Client) -> None:
    count_something(store)
    text, reader = scrape(client), Reader(store, METRICS)
    expected = reader.estimate("delay", bound="anytime")
    shown = [each["delay", ""] for each in bounded(text, "dither_estimate")]
    assert shown == [expected.lower, expected.value, expected.upper]
    assert expected.upper > reader.estimate("delay", bound="fixed").upper
    assert samples(text, "dither_effective_reports")[("delay",)] == expected.effective_reports
    reports = {k: v for k, v in samples(text, "dither_level_reports").items() if k[0] == "delay"}
    assert reports == {("delay", "0.5"): 200, ("delay", "1"): 400}
    weights = samples(text, "dither_level_weight")
    assert weights["delay", "0.5"] + weights["delay", "1"] == pytest.approx(1)
    pvalues = samples(text, "dither_level_heterogeneity_pvalue")
    assert pvalues == {("delay",): expected.heterogeneity}, "carrier has one level"
    store.registry.set_policy("delay", "uniform")
    assert samples(scrape(client), "dither_level_weight")["delay", "0.5"] == pytest.approx(1 / 3)


def test_of_trusted_metrics_the_release_and_what_waits_for_one_are_told(store: Store) -> None:
    wages(store)
    client = client_of(store, metrics={WAGE.name: WAGE})
    first, second = (((EPOCH + number * WAGE.pane_ms) / 1000) for number in (1, 2))
    text = scrape(client)
    assert samples(text, "dither_release_timestamp_seconds") == {}
    assert samples(text, "dither_release_due_timestamp_seconds") == {("wage",): first}
    release(store, EPOCH)
    text = scrape(client)
    assert samples(text, "dither_release_timestamp_seconds") == {("wage",): first}
    assert samples(text, "dither_release_due_timestamp_seconds") == {("wage",): second}
    losses = samples(text, "dither_level_loss")
    (saturation,) = samples(text, "dither_release_saturation").values()
    assert losses["wage", "0.1"] == pytest.approx(0.1)
    assert losses["wage", "4"] == pytest.approx(saturation)
    assert saturation < 4
    assert samples(text, "dither_level_reports")["wage", "4"] == 100
    release(store, EPOCH + WAGE.pane_ms)
    text = scrape(client)
    assert samples(text, "dither_release_timestamp_seconds") == {("wage",): second}
    assert samples(text, "dither_release_due_timestamp_seconds") == {}, "the last pane is open"
    prefix, key = redis_keys.publisher_key(TOPIC), metric_key(WAGE.name, WAGE.revision)
    key = redis_keys.release_key(prefix, key, EPOCH + WAGE.pane_ms)
    drawn = msgspec.json.decode(store.client.get(key) or b"")
    for damage in (
        {"upper": [1.0]},
        {"levels": [{**x, "reports": 2**70} for x in drawn["levels"]]},
    ):
        with row(str(damage)):
            store.client.set(key, msgspec.json.encode(drawn | damage))
            assert samples(scrape(client), "dither_metric_unreadable") == {("wage",): 1}


def test_what_was_counted_and_measured_is_told_and_who_counts(store: Store, client: Client) -> None:
    count_something(store)
    text = scrape(client)
    assert 7 <= samples(text, "dither_log_end_age_seconds")[()] < 60
    once = dict.fromkeys([("0",), ("1",)], 1)
    for name, expected in {
        "dither_consumer_lag": {("0",): 4, ("1",): 5},
        "dither_kafka_up": {(): 1},
        "dither_partition_halted": {("0",): 0, ("1",): 1},
        "dither_gap_offsets": {("0",): 5, ("1",): 5},
        "dither_partition_epoch": once,
        "dither_partition_owner_info": {("0", "test"): 1, ("1", "test"): 1},
        "dither_estimate_last_update_timestamp_seconds": dict.fromkeys(
            [("delay",), ("carrier",)], ARRIVAL / 1000
        ),
        "dither_reports_total": {
            ("", "malformed"): 2,
            ("carrier", "accepted"): 1200,
            ("delay", "accepted"): 600,
            ("delay", "duplicate"): 400,
            ("delay", "late"): 14,
        },
        "dither_deadletters_total": {("malformed",): 2},
        "dither_commit_bytes_total": {(): 200},
        "dither_coordinator_leader": {(): 0},
        "dither_worker_deaths_total": {(): 0},
        "dither_worker_stuck_seconds": {},
    }.items():
        assert samples(text, name) == expected, name
    for name, known, total in (
        ("dither_commit_duration_seconds", {"0.0025": 0, "0.005": 2, "+Inf": 2}, 0.008),
        ("dither_end_to_end_latency_seconds", {"0.05": 0, "0.1": 2, "1.0": 6, "+Inf": 6}, 3.0),
    ):
        shown = {s.labels.get("le", s.name): s.value for s in families(text)[name].samples}
        assert {edge: shown[edge] for edge in known} == known
        assert shown[f"{name}_count"] == known["+Inf"]
        assert shown[f"{name}_sum"] == pytest.approx(total)

    assert Lease(store.client, redis_keys.coordinator_key(TOPIC), "one", 60).acquire()
    store.registry.add_worker_death()
    store.registry.note_stuck("host:7", "committing", 61.0, time.time_ns() // 10**6)
    text = scrape(client)
    assert samples(text, "dither_coordinator_leader") == {(): 1}
    assert samples(text, "dither_worker_deaths_total") == {(): 1}
    assert samples(text, "dither_worker_stuck_seconds") == {("host:7", "committing"): 61}


def test_what_is_not_known_has_no_number(store: Store) -> None:
    """Too few reports, reports whose sum is spoilt, and a partition that cannot be read."""
    few = {m.name: dataclasses.replace(m, minimum_reports=50) for m in (DELAY, TALL)}
    client = client_of(store, metrics={**few, "carrier": CARRIER})
    sent = [
        batch(m, [4.0] * 20, m.levels[-1], EPOCH, 1 + place) for place, m in enumerate(few.values())
    ]
    count(store, 0, *sent, batch(CARRIER, [0] * 300, 8, EPOCH, 3))
    for key in store.client.keys(f"{{dither:{TOPIC}:0}}:*carrier@*"):
        store.client.set(key, b"spoilt")
    text = scrape(client)
    for name in ("estimate", "estimate_upper", "quantile", "share_below"):
        assert samples(text, f"dither_{name}") == {}
    gone = Window(metric=DELAY, status="").expired()
    told = [one.exported for one in answer_samples.samples_of(gone, Reader.answer(gone), TOP)]
    assert metric_definitions.EFFECTIVE_REPORTS in told
    assert metric_definitions.BOUNDED_ESTIMATE.value not in told
    by_metric = {("delay",): 0, ("tall",): 0, ("carrier",): 1}
    assert samples(text, "dither_metric_unreadable") == by_metric
    store.client.hset(f"{redis_keys.tag(TOPIC, 0)}:owner", "next", "spoilt")
    publisher = redis_keys.publisher_key(TOPIC)
    for key in (redis_keys.deaths_key(TOPIC), f"{publisher}:events", f"{publisher}:lease"):
        store.client.set(key, "spoilt")
    text = scrape(client)
    assert samples(text, "dither_partition_halted") == {("0",): 1}
    assert samples(text, "dither_publisher_leader") == {(): 0}
    for name in ("dither_worker_deaths_total", "dither_published_events_total"):
        assert samples(text, name) == {}, "they cannot be read, and hide no other"


def test_a_lag_that_kafka_does_not_tell_is_not_a_number(store: Store, client: Client) -> None:
    count_something(store)
    client.ends = LogEnds({1: (0, HIGH + 1), 2: (5, 12)}, "")
    lags = samples(scrape(client), "dither_consumer_lag")
    assert (lags.pop(("1",)), lags.pop(("2",))) == (5, 7), "also of one that nobody ever counted"
    (unknown,) = lags.values()
    assert math.isnan(unknown)
    client.ends = LogEnds()
    text = scrape(client)
    assert all(math.isnan(lag) for lag in samples(text, "dither_consumer_lag").values())
    assert samples(text, "dither_kafka_up") == {(): 0}


def test_the_last_commit_and_who_counts_are_told_by_one_clock(store: Store, client: Client) -> None:
    """The worker's own clock is that of another host: here it is years behind."""
    assert samples(scrape(client), "dither_workers") == {(): 0}
    count_something(store)
    text = scrape(client)
    assert samples(text, "dither_workers") == {(): 1}
    for at in samples(text, "dither_last_commit_timestamp_seconds").values():
        assert abs(time.time() - at) < 300
    any_client: Any = store.client
    keys = [f"{redis_keys.tag(TOPIC, number)}:committed" for number in (0, 1)]
    for key in keys:
        any_client.pexpire(key, LAST_COMMIT_MS - 90_000)
    text = scrape(client)
    assert samples(text, "dither_workers") == {(): 0}
    for at in samples(text, "dither_last_commit_timestamp_seconds").values():
        assert 80 < time.time() - at < 300
    any_client.delete(*keys)
    later = samples(scrape(client), "dither_last_commit_timestamp_seconds")
    assert later["1",] == ARRIVAL / 1000, "where Redis has forgotten, the worker's word is taken"


def test_answers_are_counted_by_route_and_never_by_path(client: Client) -> None:
    for path in ("/healthz", "/healthz", "/readyz", "/wp-login.php", "/metrics/delay"):
        client.get(path)
    text = scrape(client)
    assert samples(text, "dither_http_requests_total") == {
        ("/healthz", "GET", "2xx"): 2,
        ("/readyz", "GET", "5xx"): 1,
        ("", "GET", "4xx"): 2,
    }
    durations = families(text)["dither_http_request_duration_seconds"].samples
    counts = {s.labels["route"]: s.value for s in durations if s.name.endswith("_count")}
    assert counts == {"/healthz": 2, "/readyz": 1, "": 2}


def test_the_largest_categories_are_exported_and_nothing_of_no_reports(store: Store) -> None:
    count_something(store)
    names = CARRIER.category_names
    for top, left_out in ((TOP, 2), (99, 0)):
        text = scrape(client_of(store, top))
        for found in bounded(text, "dither_estimate"):
            assert {c for m, c in found if m == "carrier"} == {*names[: len(names) - left_out]}
        assert samples(text, "dither_categories_left_out") == {("carrier",): left_out}
    assert any(name == "silent" for name, *_ in samples(text, "dither_metric_info"))
    for name in ("dither_estimate", "dither_event_time_timestamp_seconds"):
        assert all(metric != "silent" for metric, *_ in samples(text, name))
    assert samples(text, "dither_effective_reports")[("silent",)] == 0


def scrape_gateway(store: Store, publishes: bool = False) -> httpx.Response:
    """Return what a gateway's scrape gives after a request for a path that it does not have."""
    client = Client(store, METRICS, Settings(publish=Publish(enabled=publishes)))
    gateway = Gateway(METRICS, {"bootstrap.servers": "127.0.0.1:1"}, TOPIC)
    client.app = application(Reader(store, METRICS), client.settings, gateway=gateway, ends=LogEnds)
    client.get("/nothing")
    return client.get("/metrics")


OWN = {
    *("dither_kafka_up", "dither_definitions_unusable", "dither_build_info"),
    *("dither_http_requests", "dither_http_request_duration_seconds"),
    "dither_collection_duration_seconds",
}


def test_a_gateway_exports_its_own_alone(redis_server: Redis, redis_url: str, store: Store) -> None:
    count_something(store)
    rules = roles(Settings(topics=Topics(reports=TOPIC)))["gateway"].redis
    store.client.execute_command("ACL", "SETUSER", "g", "reset", "on", ">secret", *rules)  # type: ignore[no-untyped-call]
    with Store(connect(f"{redis_url}?username=g&password=secret"), TOPIC) as denied:
        answer = scrape_gateway(denied)
        assert answer.status_code == 200, answer.text
        assert families(answer.text).keys() == OWN
        assert samples(answer.text, "dither_http_requests_total")["", "GET", "4xx"] == 1
        assert scrape_gateway(denied, publishes=True).status_code == 503, "it is of no use so"
    assert "dither_estimate{" in scrape_gateway(store).text, "it may read everything"
    redis_server.kill()
    try:
        answer = scrape_gateway(store)
    finally:
        redis_server.restart()
    assert answer.status_code == 200, answer.text
    assert families(answer.text).keys() == OWN
