"""What Prometheus scrapes: well-formed, declared, bounded, and honest when Redis is away."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import subprocess
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as from_openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from aggregator.alarms.answers import AlarmRaised, Baseline, Since
from aggregator.alarms.stored import StoredAlarm, StoredSeries, identity, state_key
from aggregator.cli.roles import roles
from aggregator.config.alarm_definitions import AlarmDefinition
from aggregator.config.comparison_definitions import ComparisonDefinition
from aggregator.config.settings import Otlp, Publish, Serve, Settings, Topics
from aggregator.config.watches import Definitions
from aggregator.counting.measurements import Measurements
from aggregator.kafka.log_ends import LogEnds
from aggregator.monitoring import metric_definitions, slice_samples
from aggregator.monitoring.collector import Exporter
from aggregator.publishing import events
from aggregator.reading.comparisons.run import ComparisonRun
from aggregator.reading.comparisons.stored import ComparisonDecided
from aggregator.reading.comparisons.stored import state_key as comparison_key
from aggregator.reading.reader import Reader
from aggregator.reading.windows import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.connection import connect
from aggregator.storage.lease import Lease
from aggregator.storage.parsing import LAST_COMMIT_MS
from aggregator.storage.redis_keys import (
    coordinator_key,
    failed_searches_key,
    final_key,
    publisher_key,
    release_key,
    rounds_key,
    tag,
)
from aggregator.storage.store import Store
from aggregator.web import application
from estimators import Metric, define
from estimators.extremes import Decision, Progress
from estimators.metrics.categories import Vocabulary
from producers.device.rounds import Round, encode
from producers.gateway import Gateway
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.paths import ROOT
from tests.support.reports.messages import ARRIVAL, EPOCH, batch, log
from tests.support.running.servers import Redis, program

MINUTE = 60_000
TOPIC = "reports"
TOP = 3
HIGH = 17
"""Where the log of partition 0 ends: four messages are not counted."""
DELAY = define(
    name="delay",
    kind="mean",
    mechanism="randomized_response",
    range=(0, 10),
    levels=[0.5, 1],
    unit='minutes "late"\n',
)
CARRIER = define(
    name="carrier",
    kind="frequency",
    mechanism="rappor",
    categories=["AA", "B6", 'quoted " name', "back\\slash", "new\nline"],
    levels=[8],
)
SILENT = define(name="silent", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
PLACE = define(
    name="place", kind="vector_mean", mechanism="hemisphere", dimension=5, radius=2, levels=[8]
)
TALL = define(name="tall", kind="distribution", range=(0, 10), bins=10, levels=[8])
WORDS = define(
    name="words",
    kind="frequency",
    mechanism="count_sketch",
    categories="open",
    watch=["sun", "snow"],
    levels=[8],
)
UNWATCHED = dataclasses.replace(WORDS, name="unwatched", domain=Vocabulary(categories="open"))
YOUNGEST = define(name="youngest", kind="minimum", range=(0, 1), levels=[1], rounds=6)
WAGE = define(name="wage", kind="mean", trust="central", range=(0, 10), levels=[0.1, 4], pane="10m")
LATE = define(
    name="late",
    kind="frequency",
    mechanism="rappor",
    categories=["no", "yes", "much"],
    levels=[8],
    by=["country", "version"],
    attributes={"country": ["DE", "FR"], "version": ["1"]},
)
COUNTRIES = ComparisonDefinition(
    name="countries",
    metric="late",
    start_ms=EPOCH,
    where={"country": "DE"},
    against={"country": "FR"},
)
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
MEASURED = (
    Measurements().committed(0.004, 100).arrived(array("q", [0, 0, 600]), 700).refused("malformed")
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    with Store(connect(redis_url), TOPIC) as store:
        yield store


openmetrics: Callable[[str], Iterable[Family]] = from_openmetrics


class Client:
    """Asks an application as a scraper does, without a socket."""

    def __init__(
        self,
        store: Store,
        top: int = TOP,
        metrics: Mapping[str, Metric] = METRICS,
        otlp: str = "",
        **serve: Any,
    ) -> None:
        settings = Settings(serve=Serve(top_categories=top, **serve), otlp=Otlp(endpoint=otlp))
        self.ends = LogEnds({0: (0, HIGH), 1: (0, HIGH + 1)}, "")
        app = application(Reader(store, metrics), settings, ends=lambda: self.ends)
        self._transport = httpx.ASGITransport(app)

    def get(self, path: str, **headers: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url="http://localhost"
            ) as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())


@pytest.fixture
def client(store: Store) -> Client:
    return Client(store)


def count_something(store: Store) -> None:
    """Two partitions with reports of two metrics, a copy, and two kinds of bad batches."""
    for number in (0, 1):
        snapshot = store.partition.acquire(number, "test")
        partition = snapshot.partition(METRICS, 10 * MINUTE)
        seed = 100 * number
        one = batch(DELAY, [4.0] * 200, 1, EPOCH, seed + 1)
        messages: list[ReportBatch | bytes] = [
            one,
            one,
            *(
                batch(DELAY, [6.0] * size, 0.5, EPOCH + 9 * MINUTE, seed + 10 + place)
                for place, size in enumerate([12] * 7 + [16])
            ),
            batch(CARRIER, [0] * 300 + [1] * 200 + [2] * 100, 8, EPOCH, seed + 3),
            batch(DELAY, [1.0] * 7, 1, EPOCH, seed + 4),
            b"\xff not a batch",
        ]
        partition.count(log(*messages))
        facts: dict[str, str | int] = {
            "high": HIGH + number,
            "updated": ARRIVAL,
            "halted": "why" * number,
            "gap": 5,
        }
        facts |= MEASURED.facts()
        store.partition.commit(number, int(snapshot.owner["epoch"]), -1, partition, facts)


def search_something(store: Store) -> None:
    """Five of six rounds, whose shares fall with the square of the distance."""
    decisions = [
        Decision(place, (10**8,), (0,), place**2, 0.001, place**2 > 0.001)
        for place in (0.5, 0.25, 0.125, 0.0625, 0.03125)
    ]
    told = Round.of(YOUNGEST, Progress(tuple(decisions)), EPOCH)
    field = metric_key(YOUNGEST.name, YOUNGEST.revision)
    store.client.hset(rounds_key(TOPIC), field, encode(told))


def wages(store: Store) -> None:
    """Count two panes that are over, and an open one, in every partition."""
    for number in store.partitions() or [0]:
        snapshot = store.partition.acquire(number, "test")
        partition = snapshot.partition({**METRICS, WAGE.name: WAGE}, 10 * MINUTE)
        batches = [
            batch(WAGE, [4.0] * 25, epsilon, EPOCH + pane * WAGE.pane_ms, 900 + 8 * pane + place)
            for pane in range(3)
            for place, epsilon in enumerate([*WAGE.levels] * 4)
        ]
        before = snapshot.next_offset
        partition.count(log(*batches, first=max(0, before)))
        facts: dict[str, str | int] = {"updated": ARRIVAL}
        store.partition.commit(number, int(snapshot.owner["epoch"]), before, partition, facts)


def release(store: Store, start: int) -> None:
    """Release a pane of two hundred wages, as a publisher leaves it in Redis."""
    level, statistic = [0] * 100 + [1] * 100, WAGE.zero()
    WAGE.accumulate(statistic, level, WAGE.randomize([4.0] * 200, level))
    drawn = dataclasses.replace(WAGE.release(statistic, weights="adpm"), status="final")
    end = start + WAGE.pane_ms
    pane = Window(metric=WAGE, start_ms=start, end_ms=end, status="final", policy="adpm")
    prefix, key = publisher_key(TOPIC), metric_key(WAGE.name, WAGE.revision)
    store.client.zadd(final_key(prefix, key), {str(start): start})
    store.client.set(release_key(prefix, key, start), events.drawn(pane, drawn))


def count_vectors(store: Store) -> None:
    snapshot = store.partition.acquire(7, "test")
    partition = snapshot.partition(METRICS, 10 * MINUTE)
    partition.count(log(batch(PLACE, [[0.1, -1.5, 0, 0.5, 0]] * 2000, 8)))
    store.partition.commit(7, int(snapshot.owner["epoch"]), -1, partition, {"updated": ARRIVAL})


def count_heights(store: Store) -> None:
    """Two thousand devices, half of which are at 2.5 and half at 7.5."""
    snapshot = store.partition.acquire(6, "test")
    partition = snapshot.partition(METRICS, 10 * MINUTE)
    partition.count(log(batch(TALL, [2.5] * 1000 + [7.5] * 1000, 8)))
    store.partition.commit(6, int(snapshot.owner["epoch"]), -1, partition, {"updated": ARRIVAL})


def test_quantiles_are_exported_with_bounds(store: Store) -> None:
    """Bounds at beta = 0.05; the seeds of the reports are the system's."""
    count_heights(store)
    text = scrape(Client(store))
    found = {name: samples(text, f"dither_quantile{name}") for name in ("_lower", "", "_upper")}
    names = [("tall", q) for q in ("0.5", "0.9", "0.99")]
    assert [[*each] for each in found.values()] == [names] * 3
    for name in names:
        assert 0 <= found["_lower"][name] <= found[""][name] <= found["_upper"][name] <= 10
    assert not samples(text, "dither_estimate").keys() & {("tall", "")}
    shares = {n: samples(text, f"dither_share_below{n}") for n in ("_lower", "", "_upper")}
    edges = [*map(str, range(11)), "+Inf"]
    assert [[edge for _, edge in each] for each in shares.values()] == [edges] * 3
    ordered = [shares[name][key] for key in shares[""] for name in ("_lower", "", "_upper")]
    assert ordered[:3] == [0, 0, 0]
    assert ordered[-3:] == [1, 1, 1]
    assert shares[""]["tall", "5"] == pytest.approx(0.5, abs=0.2)
    for key, share in shares[""].items():
        assert shares["_lower"][key] <= share <= shares["_upper"][key]
    assert [*shares[""].values()] == sorted(shares[""].values())


def count_slices(store: Store) -> None:
    """Devices of three countries; of the last one too few."""
    snapshot = store.partition.acquire(3, "test")
    partition = snapshot.partition({LATE.name: LATE}, 10 * MINUTE)
    sent = [
        batch(LATE, [place] * reports, 8, EPOCH, 500 + place, attributes=attributes)
        for place, (country, reports) in enumerate([("DE", 400), ("FR", 600), ("GB", 20)])
        for attributes in [[Attribute(name="country", value=country)]]
    ]
    assert partition.count(log(*sent)) == []
    epoch = int(snapshot.owner["epoch"])
    store.partition.commit(3, epoch, -1, partition, {"updated": ARRIVAL})


def families(text: str) -> dict[str, Family]:
    return {family.name: family for family in prometheus(text)}


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return a metric's samples by their labels' values, in the declared order."""
    declared = name.removesuffix("_total").removesuffix("_info")
    (labels,) = (e.labels for e in metric_definitions.ALL if e.name == declared)
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in prometheus(text)
        for sample in family.samples
        if sample.name == name
    }


def scrape(client: Client) -> str:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def test_a_vector_is_exported_by_its_longest_coordinates_and_its_radius(
    store: Store, client: Client
) -> None:
    count_vectors(store)
    text = scrape(client)
    expected = Reader(store, METRICS).estimate("place")
    shown = {c: v for (m, c), v in samples(text, "dither_estimate").items() if m == "place"}
    assert len(shown) == TOP
    assert {"1", "3"} <= shown.keys()
    assert shown["1"] == pytest.approx(-1.5, abs=0.3)
    assert samples(text, "dither_estimate_radius") == {("place",): expected.radius}
    assert samples(text, "dither_categories_left_out") == {("place",): 2}


def test_slices_of_the_settings_are_exported_with_their_bounds(store: Store) -> None:
    count_slices(store)
    metrics = {**METRICS, "late": LATE}
    text = scrape(Client(store, 2, metrics, slices=["late: country", "late: country, version"]))
    both = {"country=DE,version=none": 400, "country=FR,version=none": 600}
    alone = {"country=DE": 400, "country=FR": 600, "country=other": 20}
    expected = {("late", name): count for name, count in (alone | both).items()}
    assert samples(text, "dither_slice_reports") == expected | {
        ("late", "country=other,version=none"): 20
    }
    assert set(samples(text, "dither_slices_left_out").values()) == {0}
    found = Reader(store, metrics).estimate("late", by=["country"])
    (german,) = (one.estimate for one in found.slices if one.slice == {"country": "DE"})
    assert german is not None
    shown = german.top(2)
    for name, numbers in {"": shown.shown, "_lower": shown.lower, "_upper": shown.upper}.items():
        exported = samples(text, f"dither_slice_estimate{name}")
        assert {c: v for (_, s, c), v in exported.items() if s == "country=DE"} == dict(
            zip(shown.labels, np.atleast_1d(numbers), strict=True)
        )
        assert len(exported) == 2 * 2 * 2, "too few reports: no estimate"
    assert "dither_slice" not in scrape(Client(store, metrics=metrics))


def test_slices_with_most_reports_are_exported_and_the_others_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_slices(store)
    about: dict[str, Any] = {"metrics": {**METRICS, "late": LATE}, "slices": ["late: country"]}
    text = scrape(Client(store, **about, top_slices=1))
    assert samples(text, "dither_slice_reports") == {("late", "country=FR"): 600}
    assert samples(text, "dither_slices_left_out") == {("late", "country"): 2}
    monkeypatch.setattr(slice_samples, "MOST_SAMPLES", 25)
    text = scrape(Client(store, **about))
    assert sum("dither_slice" in line for line in text.splitlines() if line[0] != "#") <= 25
    assert samples(text, "dither_slices_left_out") == {("late", "country"): 1}


def test_of_an_open_vocabulary_what_is_on_watch_is_exported(store: Store, client: Client) -> None:
    snapshot = store.partition.acquire(0, "test")
    partition = snapshot.partition(METRICS, 10 * MINUTE)
    values = ["sun"] * 300 + ["rain"] * 700
    partition.count(log(*(batch(metric, values, 8) for metric in (WORDS, UNWATCHED))))
    store.partition.commit(0, int(snapshot.owner["epoch"]), -1, partition, {"updated": ARRIVAL})
    text = scrape(client)
    shown = samples(text, "dither_estimate")
    assert shown.keys() == {("words", "sun"), ("words", "snow")}
    assert shown["words", "sun"] == pytest.approx(0.3, abs=0.1)
    assert samples(text, "dither_categories_left_out") == {("words",): 0}
    assert samples(text, "dither_effective_reports")[("unwatched",)] > 100


def note_comparison(
    store: Store, metrics: Definitions, definition: ComparisonDefinition
) -> list[ComparisonDecided]:
    """Store how a comparison stands after the first hour; return what that has decided."""
    run = ComparisonRun(Reader(store, metrics), definition)
    panes = run.advance(store.overview(), {"late": EPOCH + 3_600_000})
    decided = [one for found in panes for one in found]
    key = comparison_key(store.topic, run.name)
    client: Any = store.client
    client.set(key, msgspec.msgpack.encode(run.stored()))
    return decided


def test_comparisons_export_the_categories_that_differ_most(store: Store) -> None:
    count_slices(store)
    metrics = Definitions({"late": LATE}, {"countries": COUNTRIES})
    decided = note_comparison(store, metrics, COUNTRIES)
    assert {one.category for one in decided} == {"no", "yes"}
    client = Client(store, 2, metrics)
    text = scrape(client)
    found = Reader(store, metrics).comparison("countries")
    value, upper = np.asarray(found.value), np.asarray(found.upper)
    assert samples(text, "dither_difference") == {
        ("countries", "no"): pytest.approx(value[0]),
        ("countries", "yes"): pytest.approx(value[1]),
    }
    assert samples(text, "dither_difference_upper")["countries", "yes"] == pytest.approx(upper[1])
    assert set(samples(text, "dither_comparison_decided").values()) == {1}
    key = ("countries", "no")
    assert samples(text, "dither_comparison_decided_timestamp_seconds")[key] == EPOCH / 1000 + 3600
    assert scrape(client).count("dither_difference{") == 2


def note_alarm(store: Store, definition: AlarmDefinition) -> None:
    """Store how an alarm stands that was raised once."""
    known = Baseline(start=None, end=None, value=0.5, reports=None)
    now = Since(value=0.7, lower=0.6, upper=0.8, reports=100)
    raised = AlarmRaised(
        alarm="moved",
        metric="late",
        unit="",
        slice={},
        direction="up",
        at="2013-01-01T01:00:00Z",
        since="2013-01-01T00:00:00Z",
        baseline=known,
        now=now,
        evidence=9.0,
        needed=7.0,
        promise="",
        panes=1,
    )
    series = StoredSeries(
        baseline=None,
        detector=b"",
        known=known,
        evidence=0.5,
        smallest_shift=0.1,
        panes=3,
        alarms=1,
        reason="",
    )
    state = StoredAlarm(
        next_ms=definition.start_ms + definition.every_ms,
        skipped=0,
        is_learning=False,
        series=[series],
        raised=[raised],
        reason="",
    )
    key = state_key(store.topic, identity(definition, LATE))
    store.client.set(key, msgspec.msgpack.encode(state))


def test_everything_declared_is_exported_and_nothing_else(store: Store) -> None:
    count_something(store)
    count_vectors(store)
    search_something(store)
    wages(store)
    release(store, EPOCH)
    count_slices(store)
    count_heights(store)
    named = {metric.name: metric for metric in (*METRICS.values(), YOUNGEST, WAGE, LATE)}
    metrics = Definitions(named, {"countries": COUNTRIES}, {"moved": MOVED})
    note_alarm(store, MOVED)
    note_comparison(store, metrics, COUNTRIES)
    otlp = "http://127.0.0.1:9"
    client = Client(store, metrics=metrics, otlp=otlp, slices=["late: country"])
    store.registry.note_stuck("host:7", "committing", 60, time.time_ns() // 1_000_000)
    store.client.hset(failed_searches_key(publisher_key(store.topic)), "word", 1)
    kinds = {"info": "gauge"}
    suffix = {"info": "_info"}
    declared = {
        e.name + suffix.get(e.type, ""): (kinds.get(e.type, e.type), e.help)
        for e in metric_definitions.ALL
    }
    scrape(client)
    found = families(scrape(client))
    assert {name: (f.type, f.documentation) for name, f in found.items()} == declared
    labels = {e.name + suffix.get(e.type, ""): set(e.labels) for e in metric_definitions.ALL}
    for name, family in found.items():
        assert family.samples
        own = {"le"} if family.type == "histogram" else set()
        assert all(set(sample.labels) - own == labels[name] for sample in family.samples)
    assert {label for e in metric_definitions.ALL for label in e.labels} == (
        metric_definitions.LABELS.keys() | {"kind", "mechanism", "unit", "levels", "revision"}
    )


def test_the_reference_of_exported_metrics_is_up_to_date() -> None:
    file = ROOT / "docs" / "metrics.md"
    assert file.read_text() == metric_definitions.reference(), (
        "run: python -m aggregator.monitoring.metric_definitions > docs/metrics.md"
    )


def test_no_name_is_declared_twice_and_every_declaration_is_listed() -> None:
    declared = [
        x for x in vars(metric_definitions).values() if isinstance(x, metric_definitions.Exported)
    ]
    assert list(metric_definitions.ALL) == declared
    assert len({e.name for e in declared}) == len(declared)
    for one in declared:
        assert one.help.endswith(".")
        assert one.help[0].isupper() or one.help[0].isdigit()


def test_both_formats_parse_and_say_the_same(store: Store, client: Client) -> None:
    count_something(store)
    scrape(client)
    answer = client.get("/metrics", accept=OPENMETRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    new: defaultdict[str, dict[str, float]] = defaultdict(dict)
    old: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for found, parsed in ((new, openmetrics(answer.text)), (old, prometheus(scrape(client)))):
        for family in parsed:
            for sample in family.samples:
                found[sample.name][repr(sorted(sample.labels.items()))] = sample.value
    assert new.keys() == old.keys()
    of_the_server = {name for name in new if name.startswith(("dither_http_", "dither_collection"))}
    assert {n: new[n] for n in new.keys() - of_the_server} == {
        n: old[n] for n in old.keys() - of_the_server
    }


@pytest.mark.parametrize("counted", [True, False])
def test_promtool_finds_nothing_to_complain_about(
    store: Store, client: Client, counted: bool
) -> None:
    promtool = program("promtool", "install Prometheus (Debian: prometheus)")
    if counted:
        count_something(store)
        count_vectors(store)
        scrape(client)
    told = subprocess.run(
        [promtool, "check", "metrics"],
        input=scrape(client),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_estimates_are_those_of_the_reader_in_the_metrics_unit(
    store: Store, client: Client
) -> None:
    count_something(store)
    text = scrape(client)
    expected = Reader(store, METRICS).estimate("delay")
    for suffix, value in (("", expected.value), ("_lower", expected.lower)):
        assert samples(text, f"dither_estimate{suffix}")["delay", ""] == value
    assert samples(text, "dither_estimate_upper")["delay", ""] == expected.upper
    assert samples(text, "dither_effective_reports")[("delay",)] == expected.effective_reports
    assert samples(text, "dither_level_reports")["delay", "0.5"] == 200
    assert samples(text, "dither_level_reports")["delay", "1"] == 400
    weights = samples(text, "dither_level_weight")
    assert weights["delay", "0.5"] + weights["delay", "1"] == pytest.approx(1)


def test_running_totals_have_bounds_for_all_times_and_the_policy_in_force(
    store: Store, client: Client
) -> None:
    count_something(store)
    text, reader = scrape(client), Reader(store, METRICS)
    expected = reader.estimate("delay", bound="anytime")
    assert samples(text, "dither_estimate_upper")["delay", ""] == expected.upper
    assert expected.upper > reader.estimate("delay", bound="fixed").upper
    pvalues = samples(text, "dither_level_heterogeneity_pvalue")
    assert pvalues == {("delay",): expected.heterogeneity}, "carrier has one level"
    store.registry.set_policy("delay", "uniform")
    changed = samples(scrape(client), "dither_level_weight")
    assert changed["delay", "0.5"] == pytest.approx(1 / 3)


def test_of_what_is_collected_in_trust_the_release_and_what_waits_for_one_are_told(
    store: Store,
) -> None:
    wages(store)
    client = Client(store, metrics={WAGE.name: WAGE})
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


def test_whether_somebody_coordinates_is_told(store: Store, client: Client) -> None:
    assert samples(scrape(client), "dither_coordinator_leader") == {(): 0}
    lease = Lease(store.client, coordinator_key(TOPIC), "one", 60)
    assert lease.acquire()
    assert samples(scrape(client), "dither_coordinator_leader") == {(): 1}


def test_outcomes_are_counted_per_metric_and_reason(store: Store, client: Client) -> None:
    count_something(store)
    assert samples(scrape(client), "dither_reports_total") == {
        ("", "malformed"): 2,
        ("carrier", "accepted"): 1200,
        ("delay", "accepted"): 600,
        ("delay", "duplicate"): 400,
        ("delay", "late"): 14,
    }


def test_partitions_tell_lag_halt_gap_and_owner(store: Store, client: Client) -> None:
    count_something(store)
    text = scrape(client)
    assert samples(text, "dither_consumer_lag") == {("0",): 4, ("1",): 5}
    assert samples(text, "dither_kafka_up") == {(): 1}
    assert samples(text, "dither_partition_halted") == {("0",): 0, ("1",): 1}
    assert samples(text, "dither_gap_offsets") == {("0",): 5, ("1",): 5}
    assert samples(text, "dither_partition_epoch") == {("0",): 1, ("1",): 1}
    updates = samples(text, "dither_estimate_last_update_timestamp_seconds")
    assert updates == dict.fromkeys([("delay",), ("carrier",)], ARRIVAL / 1000)


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
        assert abs(time.time() - at) < 30
    any_client: Any = store.client
    for number in (0, 1):
        key = f"{tag(TOPIC, number)}:committed"
        any_client.pexpire(key, LAST_COMMIT_MS - 90_000)
    text = scrape(client)
    assert samples(text, "dither_workers") == {(): 0}
    for at in samples(text, "dither_last_commit_timestamp_seconds").values():
        assert 80 < time.time() - at < 120
        any_client.delete(key)
    later = samples(scrape(client), "dither_last_commit_timestamp_seconds")
    assert later["1",] == ARRIVAL / 1000, "where Redis has forgotten, the worker's word is taken"


def test_what_was_measured_of_the_counting_is_summed_over_partitions(
    store: Store, client: Client
) -> None:
    count_something(store)
    text = scrape(client)
    assert samples(text, "dither_deadletters_total") == {("malformed",): 2}
    assert samples(text, "dither_commit_bytes_total") == {(): 200}
    found = {
        (s.name, s.labels.get("le")): s.value
        for name in ("dither_commit_duration_seconds", "dither_end_to_end_latency_seconds")
        for s in families(text)[name].samples
    }
    assert found["dither_commit_duration_seconds_bucket", "0.0025"] == 0
    assert found["dither_commit_duration_seconds_bucket", "0.005"] == 2
    assert found["dither_commit_duration_seconds_bucket", "+Inf"] == 2
    assert found["dither_commit_duration_seconds_sum", None] == pytest.approx(0.008)
    assert found["dither_end_to_end_latency_seconds_bucket", "0.05"] == 0
    assert found["dither_end_to_end_latency_seconds_bucket", "0.1"] == 2
    assert found["dither_end_to_end_latency_seconds_bucket", "1.0"] == 6
    assert found["dither_end_to_end_latency_seconds_count", None] == 6
    assert found["dither_end_to_end_latency_seconds_sum", None] == pytest.approx(3.0)


def test_workers_that_own_partitions_or_died_are_told(store: Store, client: Client) -> None:
    count_something(store)
    text = scrape(client)
    owners = samples(text, "dither_partition_owner_info")
    assert owners == {("0", "test"): 1, ("1", "test"): 1}
    assert samples(text, "dither_worker_deaths_total") == {(): 0}
    store.registry.count_death()
    assert samples(scrape(client), "dither_worker_deaths_total") == {(): 1}
    assert samples(text, "dither_worker_stuck_seconds") == {}
    store.registry.note_stuck("host:7", "committing", 61.0, time.time_ns() // 10**6)
    stuck = samples(scrape(client), "dither_worker_stuck_seconds")
    assert stuck == {("host:7", "committing"): 61}


def test_an_estimate_is_computed_again_only_when_something_was_counted_or_its_weights_changed(
    store: Store,
) -> None:
    asked: list[str] = []

    class Asked(Reader):
        def read_totals(self, windows: Iterable[Window]) -> Iterator[Window | None]:
            fresh = [*windows]
            asked.extend(window.metric.name for window in fresh)
            return super().read_totals(fresh)

    exporter = Exporter(Asked(store, METRICS), TOP)

    def scraped() -> dict[str, Family]:
        asked.clear()
        return {family.name: family for family in exporter.collect()}

    count_something(store)
    first = scraped()
    assert sorted(asked) == sorted(METRICS)
    again = scraped()
    assert asked == []
    assert again["dither_estimate"] == first["dither_estimate"]
    store.registry.set_policy("delay", "uniform")
    assert scraped()["dither_level_weight"] != first["dither_level_weight"]
    assert asked == ["delay"]
    count_vectors(store)
    scraped()
    assert asked == list(METRICS), "a partition more"
    snapshot = store.partition.acquire(7, "test")
    scraped()
    assert asked == list(METRICS), "another owner: Redis may have lost something meanwhile"
    partition = snapshot.partition(METRICS, 10 * MINUTE)
    partition.count(log(batch(DELAY, [4.0] * 9, seed=77), first=snapshot.next_offset))
    store.partition.commit(7, int(snapshot.owner["epoch"]), snapshot.next_offset, partition, {})
    scraped()
    assert asked == ["delay"]


def test_answers_are_counted_by_route_and_never_by_path(store: Store, client: Client) -> None:
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


def test_only_the_largest_categories_are_exported_and_the_others_counted(
    store: Store, client: Client
) -> None:
    count_something(store)
    text = scrape(client)
    shown = {c for m, c in samples(text, "dither_estimate") if m == "carrier"}
    assert shown == {"AA", "B6", 'quoted " name'}
    for suffix in ("_lower", "_upper"):
        assert {c for m, c in samples(text, f"dither_estimate{suffix}") if m == "carrier"} == shown
    assert samples(text, "dither_categories_left_out") == {("carrier",): 2}


def test_any_category_name_can_be_a_label(store: Store) -> None:
    count_something(store)
    text = scrape(Client(store, top=99))
    shown = {c for m, c in samples(text, "dither_estimate") if m == "carrier"}
    assert shown == set(CARRIER.category_names)
    assert samples(text, "dither_categories_left_out") == {("carrier",): 0}


def test_a_metric_without_reports_has_a_definition_but_no_estimate(
    store: Store, client: Client
) -> None:
    count_something(store)
    text = scrape(client)
    assert any(name == "silent" for name, *_ in samples(text, "dither_metric_info"))
    for name in ("dither_estimate", "dither_event_time_timestamp_seconds"):
        assert all(metric != "silent" for metric, *_ in samples(text, name))
    assert samples(text, "dither_effective_reports")[("silent",)] == 0


def test_nothing_counted_is_alive_but_not_ready(store: Store, client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "dither aggregate" in answer.json()["remedy"]
    count_something(store)
    warnings = ["halted partitions, see /v1/status: [1]"]
    assert client.get("/readyz").json() == {
        "status": "ready",
        "partitions": 2,
        "warnings": warnings,
    }


def test_a_redis_that_is_gone_is_told_with_503_and_a_time_to_come_back(
    redis_server: Redis, store: Store, client: Client
) -> None:
    count_something(store)
    scrape(client)
    redis_server.kill()
    try:
        for path in ("/metrics", "/readyz"):
            answer = client.get(path)
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) > 0
            assert answer.json()["detail"].startswith("Redis does not answer: ")
            assert "Traceback" not in answer.text
        assert client.get("/healthz").status_code == 200
    finally:
        redis_server.restart()
    assert samples(scrape(client), "dither_reports_total")["delay", "accepted"] == 600
    assert client.get("/readyz").status_code == 200


def scrape_gateway(store: Store, publishes: bool = False) -> httpx.Response:
    """Return what a gateway's scrape gives after a request for a path that it does not have."""
    settings = Settings(publish=Publish(enabled=publishes))
    gateway = Gateway(METRICS, {"bootstrap.servers": "127.0.0.1:1"}, TOPIC)
    app = application(Reader(store, METRICS), settings, gateway=gateway, ends=LogEnds)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.get("/nothing")
            return await client.get("/metrics")

    return asyncio.run(ask())


OWN = {
    "dither_kafka_up",
    "dither_definitions_unusable",
    "dither_http_requests",
    "dither_http_request_duration_seconds",
    "dither_collection_duration_seconds",
    "dither_build_info",
}


def test_a_gateway_exports_what_is_its_own_with_the_rights_of_its_role(
    redis_url: str, store: Store
) -> None:
    count_something(store)
    rules = roles(Settings(topics=Topics(reports=TOPIC)))["gateway"].redis
    store.client.execute_command("ACL", "SETUSER", "g", "reset", "on", ">secret", *rules)  # type: ignore[no-untyped-call]
    with Store(connect(f"{redis_url}?username=g&password=secret"), TOPIC) as denied:
        answer = scrape_gateway(denied)
        assert answer.status_code == 200, answer.text
        assert {family.name for family in prometheus(answer.text)} == OWN
        requests = samples(answer.text, "dither_http_requests_total")
        assert requests["", "GET", "4xx"] == 1
        assert scrape_gateway(denied, publishes=True).status_code == 503, "it is of no use so"
    assert "dither_estimate{" in scrape_gateway(store).text, "it may read everything"


def test_a_gateway_exports_what_is_its_own_while_redis_is_away(
    redis_server: Redis, store: Store
) -> None:
    redis_server.kill()
    try:
        answer = scrape_gateway(store)
    finally:
        redis_server.restart()
    assert answer.status_code == 200, answer.text
    assert {family.name for family in prometheus(answer.text)} == OWN


@pytest.mark.parametrize("path", ["/metric", "/metrics/delay"])
def test_other_paths_are_not_found(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404
