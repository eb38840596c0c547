"""Questions over HTTP: definitions, estimates in every state, and what cannot be answered."""

import datetime
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from aggregator.config.live_metrics import LiveMetrics
from aggregator.config.settings import Access, Settings
from aggregator.features.comparisons import arms
from aggregator.features.comparisons.changes import OFFERED_PERIODS
from aggregator.features.reader import Reader
from aggregator.kafka.log_ends import LogEnds
from aggregator.reading.pane_sums import PaneSums
from aggregator.storage.parsing import LAST_COMMIT_MS
from aggregator.storage.redis_keys import failed_searches_key, publisher_key
from aggregator.storage.store import Store
from aggregator.web.application import application
from estimators import Metric
from tests.support.reports.counted import DEFINITIONS, MINUTE, Client, Counting
from tests.support.reports.messages import ARRIVAL, EPOCH
from tests.support.rows import row
from tests.support.running.servers import Redis
from tests.support.running.stub_gateway import StubGateway

FIRST = EPOCH // 1000
"""In seconds."""


def test_a_definition_has_all_a_device_needs(client: Client, metrics: dict[str, Metric]) -> None:
    found = {one["name"]: one for one in client.json("/v1/metrics")["metrics"]}
    assert list(found) == list(metrics)
    assert found["delay"] == {
        "name": "delay",
        "description": "Departure delay",
        "title": "",
        "group": "",
        "kind": "mean",
        "shape": "number",
        "trust": "local",
        "mechanism": "randomized_response",
        "options": {},
        "unit": "minutes",
        "levels": [0.5, 1],
        "revision": metrics["delay"].revision,
        "pane_seconds": 60,
        "lateness_seconds": 60,
        "minimum_reports": 10,
        "memoized": False,
        "policy": "optimal",
        "policies": ["optimal", "paper", "uniform", "proportional"],
        "range": [0, 10],
    }
    assert found["carrier"]["categories"] == ["AA", "B6", "DL", "UA"]
    assert (found["page"]["categories"], found["page"]["watch"]) == ("open", ["/", "/checkout"])
    assert found["page"]["options"] == {"rows": 4, "buckets": 64}
    assert (found["place"]["coordinates"], found["place"]["radius"]) == (["x", "y", "z"], 2)
    for name, definition in found.items():
        assert client.json(f"/v1/metrics/{name}") == definition


def test_a_change_is_of_closed_panes_and_shares_its_error_with_all_others(
    client: Client, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/metrics/delay/change"
    assert client.json(path) == client.json(path, period="1h") == {"comparisons": []}
    counting.some(minutes=150)
    (change,) = client.json(path)["comparisons"]
    end = FIRST + 148 * 60  # of a minute ago, which is the lateness, no pane is closed
    two = {"from": end - 3600, "to": end, "against-from": end - 7200, "against-to": end - 3600}
    numbers = len(counting.metrics) * len(OFFERED_PERIODS)
    alone = {"metric": "delay", "beta": 0.05 / numbers}
    (same,) = client.json("/v1/compare", **two, **alone)["comparisons"]
    assert change["status"] == "final"
    for key in ("value", "lower", "upper", "a", "b"):
        assert change[key] == same[key]
    assert change["p_value"] == min(1, numbers * same["p_value"])
    assert change["covers"] == f"{numbers} windows"
    assert client.json(path, period="1h") == {"comparisons": [change]}
    with monkeypatch.context() as broken:
        broken.setattr(arms, "compare", None)
        assert client.json(path) == {"comparisons": [change]}, "equal sums are compared once"
    (long,) = client.json(path, period="24h")["comparisons"]
    assert (long["status"], long["value"]) == ("too_few_reports", None)


def test_an_answer_says_its_window_and_if_it_can_change(client: Client, counting: Counting) -> None:
    counting.some(5)
    assert client.json(f"{DELAY}/estimate")["status"] == "provisional"
    found = client.json(f"{DELAY}/estimate", **{"from": FIRST, "to": FIRST + 120})
    assert (found["status"], found["bound"]) == ("final", "fixed")
    assert (found["from"], found["to"]) == ("2013-01-01T00:00:00Z", "2013-01-01T00:02:00Z")
    assert found["updated"] == "2014-01-01T00:00:00Z"


def test_categories_are_those_asked_for_or_the_largest(client: Client, counting: Counting) -> None:
    counting.some(10)
    whole = client.json("/v1/metrics/carrier/estimate")
    assert whole["categories"] == ["AA", "B6", "DL", "UA"]
    assert "left_out" not in whole
    found = client.json("/v1/metrics/carrier/estimate", top=2)
    assert (found["categories"], found["left_out"]) == (["AA", "B6"], 2)
    assert found["value"] == whole["value"][:2]
    assert found["upper"] == whole["upper"][:2], "the bounds stay those of all"
    place = client.json("/v1/metrics/place/estimate", top=1)
    assert (place["coordinates"], place["left_out"], place["kind"]) == (["y"], 2, "vector_mean")
    assert place["radius"] > 0
    found = client.json("/v1/metrics/page/estimate", category=["/a b&c", "né"])
    assert found["categories"] == ["/a b&c", "né"]
    assert client.json("/v1/metrics/page/estimate")["categories"] == ["/", "/checkout"]


DELAY = "/v1/metrics/delay"
WRONG = [
    (f"{DELAY}/estimate?bta=0.1", "parameter 'bta': did you mean 'beta'?"),
    (f"{DELAY}/estimate?beta=0", "beta = '0': expected float >="),
    (f"{DELAY}/estimate?beta=1", "beta = '1': expected float <="),
    (f"{DELAY}/estimate?beta=nan", "beta = 'nan': expected"),
    (f"{DELAY}/estimate?beta=0.1&beta=0.2", "beta = ['0.1', '0.2']: expected it once"),
    (f"{DELAY}/estimate?bound=best", "bound = 'best': "),
    (f"{DELAY}/estimate?weights=unifrom", "weights = 'unifrom': did you mean 'uniform'?"),
    (f"{DELAY}/estimate?weights=foo", "expected one of optimal, paper, proportional, uniform"),
    (f"{DELAY}/estimate?weights=null", "weights = 'null': "),
    (f"{DELAY}/estimate?from=null", "from = 'null': expected a time such as"),
    (f"{DELAY}/estimate?from=2026-01-05T10:00:00+01:00", "write %2B for a + in an address"),
    (f"{DELAY}/estimate?target=me", "target = 'me': "),
    (f"{DELAY}/estimate?top=0", "top = '0': expected int >= 1"),
    (f"{DELAY}/estimate?top=null", "top = 'null': expected int"),
    (f"{DELAY}/estimate?pointwise=maybe", "pointwise = 'maybe': expected bool"),
    (f"{DELAY}/estimate?from=2013", "could be a year or a date: write 2013-01-01, or 2013.0"),
    (f"{DELAY}/estimate?to=20130101", "to = '20130101': expected a time such as"),
    (f"{DELAY}/estimate?to=nan", "to = 'nan': expected a time such as"),
    (f"{DELAY}/estimate?from=1e300", "from = '1e300': expected a time such as"),
    (f"{DELAY}/estimate?from=9999-12-31T23:00-12:00", "12:00': expected a time"),
    (f"{DELAY}/estimate?from=200&to=100", "1970-01-01T00:01:40Z: expected an end"),
    (f"{DELAY}/estimate?window=1", "window = '1': expected a duration such as 30s, 5m, 1h or 1d"),
    (f"{DELAY}/estimate?window=0s", "window = '0s': expected a duration above zero"),
    (f"{DELAY}/estimate?window=1h&from=0", "window = '1h' and a start or an end"),
    (f"{DELAY}/estimate?category=AA", "metric 'delay' has none"),
    ("/v1/metrics/carrier/estimate?category=UAA", "did you mean 'UA'?"),
    ("/v1/metrics/carrier/estimate?category=UA&category=UA", "each once"),
    ("/v1/compare?metric=delay&against-metric=carrier", "have different kind: expected the same"),
    ("/v1/compare?metric=delay&weights=unifrom", "did you mean 'uniform'? (known: optimal, "),
    ("/v1/compare?metric=delay&weights=x", "expected one of optimal, paper, proportional, st"),
    (f"{DELAY}/series?simultaneous=all", "'all': expected points"),
    (f"{DELAY}/series?bins=32", "expected them for a distribution alone"),
    (f"{DELAY}/estimate?format=csv&window=x", "window = 'x': expected a duration"),
    (f"{DELAY}/estimate?format=parquet", "csv"),
]


def test_a_question_that_has_no_answer_names_what_was_wrong(client: Client) -> None:
    for path, told in WRONG:
        with row(path):
            problem = client.problem(400, path)
            assert problem["title"] == "Bad Request"
            assert told in problem["detail"]


def test_what_is_not_there_is_a_problem_that_says_where_to_look(client: Client) -> None:
    problem = client.problem(404, "/v1/metrics/dely/estimate")
    assert "did you mean 'delay'?" in problem["detail"]
    assert problem["remedy"] == "GET /v1/metrics lists the metrics"
    for path in ("/v1/nothing", "/v1/metrics/", "/v1/metrics/delay/estimate/", "/v2"):
        assert "/openapi.json" in client.problem(404, path)["remedy"]
    client.problem(404, "/v1/metrics/nothing/series?format=csv")
    answer = client.ask("DELETE", "/v1/metrics/delay")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_an_unexpected_error_tells_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("secret internals")

    monkeypatch.setattr(PaneSums, "read_window", broken)
    problem = client.problem(500, "/v1/metrics/delay/estimate")
    assert "secret" not in json.dumps(problem)
    assert "log" in problem["remedy"]


def test_a_missing_redis_is_a_503(redis_server: Redis, client: Client, counting: Counting) -> None:
    counting.store.client.config_set("appendfsync", "always")  # so that the kill loses nothing
    counting.some(5)
    redis_server.kill()
    try:
        for path in ("/v1/metrics", f"{DELAY}/estimate", f"{DELAY}/series", "/metrics", "/readyz"):
            assert "Redis does not answer" in client.problem(503, path)["detail"]
            assert int(client.get(path).headers["retry-after"]) > 0
            assert redis_server.url.rpartition("//")[2] not in client.get(path).text
        status = client.json("/v1/status")
        assert status["redis"].startswith("Redis does not answer")
        assert client.get("/healthz").status_code == 200
    finally:
        redis_server.restart()
    assert client.json("/v1/status")["redis"] == "ok"
    assert client.json("/v1/status")["missing"] == []


PATHS = [
    "/v1/metrics",
    "/v1/metrics/delay",
    "/v1/metrics/delay/estimate",
    "/v1/metrics/delay/estimate?window=1h",
    "/v1/metrics/delay/series",
    "/v1/metrics/delay/estimate?format=csv",
    "/v1/metrics/delay/series?format=csv",
]


def test_no_answer_is_sent_again_until_weights_change(client: Client, counting: Counting) -> None:
    counting.some(5)
    tags = {}
    for path in PATHS:
        with row(path):
            first = client.get(path)
            tags[path] = tag = first.headers["etag"]
            assert first.headers["cache-control"] == "no-cache"
            for known in (tag, f'"x", {tag}', tag.removeprefix("W/"), "*"):
                again = client.get(path, headers={"If-None-Match": known})
                assert (again.status_code, again.content) == (304, b"")
                assert again.headers["etag"] == tag
            assert client.get(path, headers={"If-None-Match": 'W/"other"'}).status_code == 200
    assert len(set(tags.values())) == len(PATHS)
    answer = client.ask("PUT", "/v1/metrics/delay/weights", json={"policy": "uniform"})
    assert answer.status_code == 200
    assert answer.json() == client.json("/v1/metrics/delay")
    assert client.json("/v1/metrics/delay/estimate")["policy"] == "uniform"
    assert client.json("/v1/metrics/carrier/estimate")["policy"] == "optimal"
    for path, tag in tags.items():
        with row(path):
            changed = client.get(path, headers={"If-None-Match": tag})
            assert changed.status_code == 200
            assert changed.headers["etag"] != tag


def test_weights_that_are_none_change_nothing(client: Client) -> None:
    """They are JSON, so that no form can set them, of a limited size with and without a length."""

    async def endless() -> Any:
        for _ in range(3000):
            yield b" " * 1000

    as_json, good = "application/json", b'{"policy": "uniform"}'
    cases: list[tuple[int, str, Any, str]] = [
        (400, as_json, b'{"policy": "unifrom"}', "policy 'unifrom': did you mean 'uniform'?"),
        (400, as_json, b'{"policy": "bad"}', "policy 'bad': expected one of optimal, paper, "),
        (400, as_json, b'{"policy": 1}', 'expected JSON such as {"policy": "optimal"}'),
        (400, as_json, b'{"polcy": "uniform"}', "polcy"),
        (400, as_json, b"uniform", "JSON"),
        (400, as_json, b"", "truncated"),
        (400, as_json, b"\xff\xfe", ""),
        (413, as_json, b"[" + b" " * 2_000_000, "more than 1048576 bytes"),
        (413, as_json, endless(), "more than 1048576 bytes"),
        (415, "text/plain", good, "expected application/json"),
        (415, "application/x-www-form-urlencoded", good, "expected application/json"),
        (415, "", good, "expected application/json"),
    ]
    path = "/v1/metrics/delay/weights"
    for status, media, content, told in cases:
        with row(status, media, told):
            headers = {"Content-Type": media}
            problem = client.problem(status, path, "PUT", content=content, headers=headers)
            assert told in problem["detail"]
    assert client.json("/v1/metrics/delay")["policy"] == "optimal"


def test_a_deleted_pane_is_told_meanwhile(client: Client, store: Store, counting: Counting) -> None:
    counting.some(9)
    (found,) = store.client.keys(f"*:1}}:pane:delay@*:{EPOCH}")
    store.client.delete(found)
    key = found.decode() if isinstance(found, bytes) else found
    window = {"from": FIRST, "to": FIRST + 120}
    assert key in client.problem(503, "/v1/metrics/delay/estimate", params=window)["detail"]
    status = client.json("/v1/status")
    assert status["redis"] == "ok", "it answers"
    (told,) = status["missing"]
    assert key in told
    assert "dither recount" in told
    assert any(key in warning for warning in client.json("/readyz")["warnings"])
    store.client.delete(*store.client.keys("{dither:*"))
    assert client.json("/v1/status")["missing"] == []


def test_the_status_tells_outcomes_and_dead_letters(client: Client, counting: Counting) -> None:
    counting.some(5)
    counting.count(1, b"\xff", halted="why", gap=5)
    done = int(counting.store.owner(1)["next"])
    client.ends = LogEnds({0: (0, done - 1), 1: (0, done + 17), 2: (100, 120)}, "")
    found = client.json("/v1/status")
    assert found["metrics"]["delay"] == {
        "outcomes": {"accepted": 406, "duplicate": 6, "late": 14},
        "reports_per_second": None,
        "event_time": "2013-01-01T00:04:00Z",
        "updated": "2014-01-01T00:00:00Z",
    }
    assert found["metrics"]["silent"]["event_time"] is None
    assert found["deadletters"] == {"late": 14, "malformed": 3}
    first, second, third = found["partitions"]
    assert first == {
        "partition": 0,
        "lag": 0,
        "halted": False,
        "gap": 0,
        "reason": "",
        "epoch": 1,
        "committed": "2014-01-01T00:00:00Z",
        "counting": True,
    }
    assert (second["lag"], second["halted"], second["gap"]) == (17, True, 5)
    assert (second["reason"], second["counting"]) == ("why", False)
    assert (third["lag"], third["counting"], third["committed"]) == (20, False, None)
    assert found["redis"] == found["kafka"] == "ok"
    assert (found["counting"], found["silent_since"]) == (True, None)
    assert found["version"]


def test_nothing_is_counted_where_all_is_halted(client: Client, counting: Counting) -> None:
    counting.some(5)
    counting.count(0, b"\xff", halted="why")
    found = client.json("/v1/status")
    assert found["counting"], "the other one is"
    assert found["kafka"] == "Kafka does not answer"
    assert [one["lag"] for one in found["partitions"]] == [None, None]
    assert client.json("/readyz")["warnings"] == ["halted partitions, see /v1/status: [0]"]
    done = int(counting.store.owner(0)["next"])
    client.ends = LogEnds({0: (0, done + 88)}, "")
    assert [one["lag"] for one in client.json("/v1/status")["partitions"]] == [88, None]
    counting.count(1, b"\xff", halted="why")
    assert not client.json("/v1/status")["counting"]
    assert "every partition is halted" in client.json("/readyz")["warnings"][0]


def test_when_nobody_counts_the_status_says_since_when(client: Client, counting: Counting) -> None:
    counting.some(5)
    began, committed = time.time(), f"{{dither:{counting.store.topic}:%s}}:committed"
    for number in counting.store.partitions():
        assert counting.store.client.pexpire(committed % number, LAST_COMMIT_MS - 90_000)
    found = client.json("/v1/status")
    assert found["counting"] is False
    assert not any(one["counting"] for one in found["partitions"])
    since = datetime.datetime.fromisoformat(found["silent_since"]).timestamp()
    assert began - 91 <= since <= time.time() - 89
    answer = client.get("/readyz")
    assert answer.status_code == 200, "what there is can still be read"
    (warning,) = answer.json()["warnings"]
    assert warning.startswith("no worker has counted since 20")
    assert "dither aggregate" in warning
    counting.count(1, b"\xff")
    assert client.json("/v1/status")["silent_since"] is None
    (warning,) = client.json("/readyz")["warnings"]
    assert warning == "no worker counts partitions [0], see /v1/status"
    counting.some(5)
    assert "warnings" not in client.json("/readyz")
    counting.store.client.hset(f"{{dither:{counting.store.topic}:0}}:owner", "partitions", 4)
    (warning,) = client.json("/readyz")["warnings"]
    assert warning == "no worker counts partitions [2, 3], see /v1/status", "nor ever has"


def test_definitions_that_change_or_fail_are_told(counting: Counting, tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(DEFINITIONS)
    metrics = LiveMetrics(file)
    client = Client(counting.store, metrics, Settings(access=Access(anonymous=["read"])))
    counting.some(5)

    def told(text: str = "") -> tuple[str, list[str], str]:
        if text:
            file.write_text(text)
        metrics.force_refresh()
        metrics.refresh()
        scraped = client.get("/metrics").text
        (gauge,) = re.findall(r"^dither_definitions_unusable (\S+)$", scraped, re.MULTILINE)
        found = client.json("/v1/status")
        hashes.append(found["definitions_hash"])
        return found["definitions"], client.json("/readyz").get("warnings", []), gauge

    hashes: list[str] = []
    assert told() == told(DEFINITIONS.replace("reports = 10", "reports = 11")) == ("ok", [], "0.0")
    assert told(DEFINITIONS) == ("ok", [], "0.0")
    assert hashes[0] == hashes[2] != hashes[1]
    mine, warnings, gauge = told(DEFINITIONS.replace("levels = [8]", "levels = [-8]"))
    assert mine.startswith(f"this server cannot use {file}: place.levels = [-8]: expected eps")
    assert mine.endswith("the previous definitions stay in force")
    assert (warnings, gauge) == ([mine], "1.0")
    file.unlink()
    assert told()[0].startswith(f"this server cannot use {file}: No such file or directory")
    assert told(DEFINITIONS) == ("ok", [], "0.0")
    counting.count(1, b"\xff", unusable="metrics.toml: place.radius = 0: expected more")
    theirs, warnings, gauge = told()
    assert theirs.startswith("a worker cannot use metrics.toml: place.radius = 0")
    assert (warnings, gauge) == ([theirs], "1.0")


def test_a_server_is_ready_for_what_it_is_for(client: Client, counting: Counting) -> None:
    """A gateway is, where Kafka answers; whoever reads, where Redis has something."""
    problem = client.problem(503, "/readyz")
    assert "dither aggregate" in problem["remedy"]
    assert int(client.get("/readyz").headers["retry-after"]) > 0
    away, refused = "Kafka does not answer", "Kafka does not answer: posts are refused"
    cases: list[tuple[bool, bool, str, int, list[str]]] = [
        (False, False, "", 200, []),
        (False, True, "", 200, ["nothing was counted yet"]),
        (False, True, away, 503, ["posts are refused", "nothing was counted"]),
        (True, False, "", 200, []),
        (True, False, away, 503, [refused]),
        (True, True, "", 200, []),
        (True, True, away, 200, [refused]),
    ]
    for counted, publishes, kafka, status, told in cases:
        with row(counted, publishes, kafka):
            if counted and not counting.store.partitions():
                counting.some(5)
            client.settings.publish.enabled = publishes
            reader, gateway = Reader(client.store, counting.metrics), StubGateway(kafka=kafka)
            client.app = application(reader, client.settings, gateway=gateway, ends=LogEnds)  # type: ignore[arg-type]
            answer = client.get("/readyz")
            assert answer.status_code == status, answer.text
            said = "; ".join(answer.json().get("warnings", [answer.json().get("detail", "")]))
            assert bool(said) == bool(told)
            assert all(words in said for words in told)
    publisher: Any = SimpleNamespace(obstacles=lambda: ["nothing is published: why"])
    reader = Reader(client.store, counting.metrics)
    client.app = application(reader, client.settings, publisher=publisher, ends=LogEnds)
    assert client.json("/readyz")["warnings"] == ["nothing is published: why"]
    key = failed_searches_key(publisher_key(client.store.topic))
    client.store.client.set(key, "spoilt")
    assert key in client.json("/readyz")["warnings"][1]


def test_panes_that_expire_make_another_answer_in_time(
    client: Client, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(5)
    path = "/v1/metrics/page/estimate?from=2013-01-01"
    now = [ARRIVAL / 1000]
    monkeypatch.setattr("aggregator.reading.plans.local.time.time", lambda: now[0])
    tag = client.get(path).headers["etag"]
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
    now[0] += 2 * MINUTE / 1000
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200


# -- Tables: over HTTP an answer is also one in CSV, that of the reader ---------------------------

WINDOW = {"from": "2013-01-01", "to": "2013-01-01T01:00Z"}


@pytest.fixture
def reader(counting: Counting) -> Reader:
    delays = [counting.batch("delay", [minute] * 20, minute) for minute in range(10)]
    counting.count(0, *delays, counting.batch("page", ["=1+1"] * 90, 1, 8))
    return Reader(counting.store, counting.metrics)


def table(client: Client, path: str, **params: str) -> httpx.Response:
    found = client.get(path, params={"format": "csv", **params})
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "text/csv; charset=utf-8"
    assert found.headers["x-content-type-options"] == "nosniff"
    return found


def test_an_estimate_and_a_series_are_tables_on_request(client: Client, reader: Reader) -> None:
    found = table(client, "/v1/metrics/delay/estimate", **WINDOW)
    assert found.text == reader.estimate("delay", *WINDOW.values()).to_frame().to_csv()
    assert found.headers["content-disposition"] == 'attachment; filename="delay-estimate.csv"'
    assert "value" in client.json("/v1/metrics/delay/estimate", format="json", **WINDOW)

    found = table(client, "/v1/metrics/delay/series", step="5m", **WINDOW)
    expected = reader.series("delay", *WINDOW.values(), step="5m").to_frame()
    assert found.text == expected.to_csv()
    assert found.headers["content-disposition"] == 'attachment; filename="delay-series.csv"'


def test_a_strangers_string_is_no_formula_in_a_spreadsheet(client: Client, reader: Reader) -> None:
    found = table(client, "/v1/metrics/page/estimate", category="=1+1")
    assert found.text.splitlines()[1].startswith("page,frequency,,,,'=1+1,")
