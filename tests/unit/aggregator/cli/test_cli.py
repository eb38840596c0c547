"""The command line: help that a newcomer can follow, and messages instead of tracebacks."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import redis
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException

from aggregator.cli.commands.watch import changes
from aggregator.cli.format import Shown, as_text
from aggregator.cli.main import BLAS_THREADS, COMMANDS, cli, main
from aggregator.local.embedded import EmbeddedUnavailableError
from aggregator.reading.query import Query
from aggregator.reading.reader import Reader
from aggregator.reading.serialization import as_dict
from aggregator.reading.windows import Sums, Window
from aggregator.storage.connection import connect
from aggregator.storage.parsing import LAST_COMMIT_MS
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from estimators import Metric, define, load_metrics
from estimators.rounding import at_most
from tests.support.paths import ROOT
from tests.support.reports.messages import batch, log
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.deployment import wait_until

NOWHERE = ["--kafka", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0"]
METRICS = """
[metrics.delay]
kind = "mean"
mechanism = "randomized_response"
range = [0, 10]
levels = [0.5, 1]
unit = "minutes"

[metrics.carrier]
kind = "frequency"
mechanism = "rappor"
categories = ["AA", "B6", "DL"]
levels = [1]
"""
PLACE = """
[metrics.place]
kind = "vector_mean"
mechanism = "hemisphere"
dimension = 3
radius = 2
levels = [8]
unit = "km"
"""
OPEN = 'kind = "frequency", mechanism = "count_sketch", categories = "open"'


@pytest.fixture(autouse=True)
def _folder_with_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.toml").write_text(METRICS)


def run(*arguments: str) -> Result:
    """Run the command line as `main` does, where a test can look at it."""

    @click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def dither(words: tuple[str, ...]) -> None:
        main(list(words))

    return CliRunner().invoke(dither, ["--", *arguments])


def failure(*arguments: str, exit_code: int = 1) -> str:
    """Return the message of a command that fails as it should."""
    result = run(*arguments)
    assert result.exit_code == exit_code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return result.stderr


def test_every_command_explains_itself_and_each_of_its_options() -> None:
    listed = run("--help")
    assert listed.exit_code == 0
    assert "Start with `dither demo`" in listed.output
    context = click.Context(cli)
    for name in COMMANDS:
        with row(name):
            command = cli.get_command(context, name)
            assert command is not None
            assert command.help is not None
            assert len(command.help.split("\n\n")) > 1, "what it does, then how it is used"
            for option in command.params:
                if isinstance(option, click.Option):
                    assert option.help, f"{option.opts} has no help"
                    assert option.help.endswith((".", "]")), option.help
            told = run(name, "--help").output
            assert told.startswith("Usage: ")
            assert all(len(line) <= 80 for line in told.splitlines())
            assert "\\b" not in told
            examples = re.findall(rf"^ +dither {name} .*", told, re.MULTILINE)
            assert all(example.count(f"dither {name} ") == 1 for example in examples)
            assert re.search(rf"^  {name} +[A-Z]", listed.output, re.MULTILINE)
            assert COMMANDS[name].endswith(".")


HELP = """
import os, sys
from aggregator.cli.main import BLAS_THREADS, main
try:
    main(["--help"])
except SystemExit:
    heavy = {"numpy", "scipy", "redis", "confluent_kafka", "starlette", "rich", "msgspec"}
    print(sorted(heavy & sys.modules.keys()), os.environ[BLAS_THREADS], file=sys.stderr)
"""


@pytest.mark.parametrize(("own", "used"), [(None, "1"), ("3", "3")])
def test_help_imports_nothing_heavy_and_matrices_have_one_thread_unless_it_is_said_otherwise(
    own: str | None, used: str
) -> None:
    """OpenBLAS reads the variable when numpy is imported, so it is set before that."""
    env = {name: value for name, value in os.environ.items() if name != BLAS_THREADS}
    env |= {"PYTHONPATH": str(ROOT)} | ({} if own is None else {BLAS_THREADS: own})
    told = subprocess.run([sys.executable, "-c", HELP], env=env, capture_output=True, text=True)
    assert told.stderr.strip() == f"[] {used}"


def test_an_unknown_command_names_the_nearest() -> None:
    for typed, meant in (("agregate", "aggregate"), ("metric", "metrics"), ("verfy", "verify")):
        told = failure(typed, exit_code=2)
        assert f"no command {typed!r}: did you mean {meant!r}?" in told
        assert ", ".join(sorted(COMMANDS)) in told


WRONG_USES = {
    "estimate": "Missing argument",
    "estimate delay --beta high": "--beta",
    "estimate delay --from yesterday": "--from",
    "estimate delay --weights best": "--weights",
    "estimate carrier --top 0": "Invalid value for '--top': 0 is not in the range x>=1",
    "watch carrier --top -3": "Invalid value for '--top': -3 is not in the range x>=1",
    "aggregate --workers 0": "--workers",
    "aggregate --log-level loud": "--log-level",
    "serve --port 70000": "--port",
    "demo --seconds 0": "--seconds",
    "metrics --set kafka": "--set",
    "produce delay": "",
    "verify --jsn": "--jsn",
}
NO_ANSWERS = {
    "estimate delay --beta 2": "expected",
    "estimate delay --from inf": "expected",
    "estimate delay --from nan": "expected",
    "estimate delay --from 2013-02-01 --to 2013-01-01": "expected an end",
    "weights delay unifrom": "no policy 'unifrom': did you mean 'uniform'?",
}
FAILURES = {
    "estimate dely": "Error: metric 'dely' is not defined in metrics.toml: ",
    "weights dely uniform": "Error: metric 'dely' is not defined in metrics.toml: ",
    "metrics --metrics .": "Error: .: Is a directory\n",
    "metrics --set serve.prot=80": "Error: command line: serve.prot = '***': expected a known key",
    "define table.csv --column v --range 5 1": "Error: --range 5 1: expected two finite numbers",
    "define table.csv --column v --range 1 5 --level 99": (
        "Error: --level 99: expected epsilons above 0"
    ),
    "define table.csv --column v --range 1 5 --name No": (
        "Error: --name No: expected a lower-case letter"
    ),
}


def test_a_wrong_use_and_a_question_without_an_answer_are_explained(redis_url: str) -> None:
    for words, wrong in WRONG_USES.items():
        with row(words):
            told = failure(*words.split(), exit_code=2)
            assert "Usage: " in told
            assert "Error: " in told
            assert wrong in told
    for words, wrong in NO_ANSWERS.items():
        with row(words):
            assert wrong in failure(*words.split(), "--redis", redis_url, exit_code=2)
    Path("table.csv").write_text("v\n1\n2\n")
    for words, wrong in FAILURES.items():
        with row(words):
            at = () if words.startswith("define") else ("--redis", redis_url)
            told = failure(*words.split(), *at)
            assert told.startswith(wrong)
            assert "dely" not in words or "did you mean 'delay'?" in told


def test_columns_and_files_that_a_command_cannot_read_are_named() -> None:
    Path("t.csv").write_text("delay,lon\n1,2\n")
    Path("metrics.toml").write_text(METRICS + PLACE)
    for words, said in {
        "define t.csv --column delay --column lon": (
            "--column delay --column lon: expected one column"
        ),
        "produce place --simulate uniform": (
            "expected --csv FILE with one --column for each coordinate"
        ),
        "produce delay --simulate uniform --attribute a=b": "--attribute: expected --csv FILE",
        "produce delay --csv t.csv --attribute land": "--attribute 'land': expected NAME=COLUMN",
        "produce delay --csv t.csv --attribute a=delay": "attribute 'a': expected none",
    }.items():
        with row(words):
            at = () if words.startswith("define") else NOWHERE
            told = run(*words.split(), *at)
            assert told.exit_code
            assert said in told.output


ON_KAFKA = [["aggregate"], ["verify"], ["produce", "delay", "--simulate", "uniform"]]
ON_REDIS = [["estimate", "delay"], ["serve"]]
EVERYWHERE = [*ON_KAFKA, *ON_REDIS, ["metrics"]]


def test_the_metrics_say_what_auto_chose_what_is_denied_and_how_much_slices_reveal() -> None:
    plain = run("metrics", *NOWHERE).stdout
    assert "denied" not in plain
    assert "slices" not in plain
    text = METRICS.replace('"randomized_response"', '"auto"').replace("[0.5, 1]", "[0.5, 1, 4]")
    denied = '{longer_than = 40, presets = ["email"], patterns = ["/users/*", "*token*"]}'
    by = 'by = ["country", "version"]\n[metrics.carrier]'
    declared = '[attributes]\ncountry = ["DE", "FR", "US"]\nversion = ["1", "2", "3"]\n'
    text += f"[metrics]\npage = {{{OPEN}, levels = [1], deny = {denied}}}\n"
    Path("metrics.toml").write_text(declared + text.replace("[metrics.carrier]", by))
    told = run("metrics", *NOWHERE).stdout
    assert "auto (windows)" in told
    assert "page: devices report other in place of: longer than 40, email, 2 patterns" in told
    assert "delay: 25 slices, 4.6 bits, by country, version" in told
    delay, carrier, page = json.loads(run("metrics", *NOWHERE, "--json").stdout)
    assert (delay["chosen"], carrier["chosen"]) == (["windows"] * 3, ["rappor"])
    assert (delay["by"], delay["slices"], delay["bits"]) == (["country", "version"], 25, 4.644)
    assert (carrier["by"], carrier["slices"], carrier["bits"]) == ([], None, None)
    assert page["deny"] == tomllib.loads(f"deny = {denied}")["deny"]


def test_a_missing_broker_is_one_message_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aggregator.kafka.clients.ANSWER_SECONDS", 0.2)
    for arguments in ON_KAFKA:
        with row(*arguments):
            told = failure(*arguments, *NOWHERE)
            assert told.startswith("Error: no Kafka broker answers at 127.0.0.1:1 (")
            assert told.count("\n") == 1
            for remedy in ("start one", "--kafka", "DITHER_KAFKA_BOOTSTRAP_SERVERS", "dither.toml"):
                assert remedy in told


def test_serve_tells_the_port_that_it_chose_and_nothing_of_a_missing_kafka_but_that(
    redis_url: str, tmp_path: Path
) -> None:
    places = ["--kafka", "127.0.0.1:1", "--redis", redis_url]
    command = [sys.executable, "-m", "aggregator", "serve", "--port=0", "--log-json", *places]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    log = tmp_path / "serve.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stderr, stderr=stderr, env=path)
    try:
        wait_until(lambda: '"serving"' in log.read_text(), "the server tells where it listens")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (url,) = [line["url"] for line in lines if line["event"] == "serving"]
        assert http_client.get(f"{url}healthz").status_code == 200
    finally:
        process.terminate()
        process.wait(60)
    assert "rdkafka" not in log.read_text()
    assert all(json.loads(line) for line in log.read_text().splitlines())


def test_a_port_or_an_address_that_cannot_be_had_is_told_with_what_to_choose(
    redis_url: str,
) -> None:
    at = ("--redis", redis_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, setting in ((("serve", *at), "--port, or serve.port"), (("kafka",), "--port")):
            told = failure(*words, f"--port={port}")
            assert told.startswith(f"Error: port {port} of 127.0.0.1: Address already in use")
            assert told.endswith(f"choose another ({setting})\n")
    for host in ("192.0.2.1", "nowhere.invalid"):
        told = failure("serve", f"--host={host}", *at)
        assert told.startswith(f"Error: host {host!r}: ")
        assert told.endswith("choose an address of this machine (--host, or serve.host)\n")
    for first in (8079, 8078, 65534):
        several = ["--port=8080", "--workers=3", f"--set=serve.worker_port={first}"]
        told = failure("serve", *several)
        assert f"serve.worker_port = {first}: expected 3 ports up to 65535, without 8080" in told


def test_a_reason_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    for command in ("list", "replay", "drop"):
        words = ("deadletters", command, *NOWHERE, "--reason")
        told = failure(*words, "wrong_version", exit_code=2)
        assert "no reason 'wrong_version': did you mean 'wrong_revision'? (known: bad_b" in told
        assert "expected one of bad_batch_id, " in failure(*words, "q", exit_code=2)


def test_a_missing_redis_is_one_message_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DITHER_REDIS_URL", "redis://app:hunter2@127.0.0.1:1/0")
    for arguments in ON_REDIS:
        with row(*arguments):
            told = failure(*arguments)
            assert told.startswith("Error: no Redis answers at redis://app:***@127.0.0.1:1/0 (")
            assert told.count("\n") == 1
            for remedy in ("redis-server", "--redis", "DITHER_REDIS_URL", "dither.toml"):
                assert remedy in told
    told = failure("estimate", "delay", "--redis", "localhost:6379")
    for text in (told, " ".join(run("estimate", "--help").stdout.split())):
        for scheme in ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"):
            assert f" {scheme}://" in text


def test_definitions_that_are_missing_or_wrong_are_told_before_any_server_is_asked() -> None:
    wrong = [
        ("[0.5, 1]", "[1, 0.5]", "delay.levels = [1, 0.5]: expected ascending epsilons"),
        ("[0, 10]", "[10, 0]", "delay.range = [10, 0]: expected two finite numbers"),
        ('"rappor"', '"rapor"', "carrier.mechanism = 'rapor': expected 'rappor'?"),
        ("unit", "units", "delay.units = 'minutes': expected a known key: 'unit'?"),
        ('"mean"', '"average"', "delay.kind = 'average': expected "),
        ("[metrics.carrier]", "[metrics.carrier", "TOML = "),
    ]
    for arguments, (replaced, by, wanted) in zip(EVERYWHERE, wrong, strict=True):
        with row(*arguments, by):
            Path("metrics.toml").write_text(METRICS.replace(replaced, by))
            message = failure(*arguments, *NOWHERE)
            assert message.startswith(f"Error: metrics.toml: {wanted}")
            assert "expected" in message
            told = failure(*arguments, *NOWHERE, "--metrics", "nowhere.toml")
            assert told.startswith("Error: no metrics file 'nowhere.toml': ")
            for remedy in ("[metrics.NAME]", "--metrics", "DITHER_METRICS"):
                assert remedy in told


TOLD = [
    (redis.ConnectionError("Connection closed"), "Redis does not answer (Connection"),
    (redis.ResponseError("OOM command not allowed"), "Redis is full (OOM command not allowed)"),
    (KafkaException(KafkaError(KafkaError._TRANSPORT)), "Kafka failed: "),
    (EmbeddedUnavailableError("pip install 'dither[demo]'"), "pip install 'dither[demo]'"),
    (ModuleNotFoundError("No module", name="rich"), "dither metrics needs rich, which"),
    (PermissionError(13, "Permission denied", "metrics.toml"), "metrics.toml: Permission"),
]
DEFECTS = [KeyError("x"), ValueError("x"), ModuleNotFoundError("x")]


def test_a_failure_on_the_way_is_one_message_and_a_defect_of_ours_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(error: Exception) -> None:
        def fail(*_: Any) -> None:
            raise error

        monkeypatch.setattr("aggregator.cli.commands.metrics.defined_metrics", fail)

    for error, told in TOLD:
        with row(error):
            failing(error)
            message = failure("metrics")
            assert message.startswith(f"Error: {told}")
            assert message.count("\n") == 1
    for defect in DEFECTS:
        failing(defect)
        assert run("metrics").exception is defect


def test_show_settings_tells_sources_and_masks_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dither.toml").write_text('[kafka]\nsasl.password = "hunter2"\n[serve]\nport = 81')
    monkeypatch.setenv("DITHER_AGGREGATE_GROUP", "mine")
    monkeypatch.setenv("DITHER_REDIS_URL", "redis://app:hunter3@db/0")
    result = run("serve", "--show-settings", "--set", "kafka.acks=1")
    assert result.exit_code == 0
    assert "hunter" not in result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[0] == ["setting", "value", "source"]
    for line in (
        ["kafka.sasl.password", '"***"', "dither.toml"],
        ["serve.port", "81", "dither.toml"],
        ["aggregate.group", '"mine"', "DITHER_AGGREGATE_GROUP"],
        ["redis.url", '"redis://app:***@db/0"', "DITHER_REDIS_URL"],
        ["kafka.acks", '"1"', "command", "line"],
        ["topics.partitions", "6", "default"],
    ):
        assert line in lines


def strict(text: str) -> Any:
    """Read JSON as every language does: without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


METRIC_KEYS = [
    *("metric", "revision", "kind", "mechanism", "chosen", "range", "categories", "levels"),
    *("pane", "lateness", "by", "slices", "bits", "deny", "unit", "description"),
    *("reports", "refused", "earlier", "event_time"),
]
ESTIMATE_KEYS = [
    *("metric", "unit", "kind", "status", "from", "to", "updated", "value", "lower", "upper"),
    *("unbiased", "reports", "effective_reports", "beta", "bound", "covers"),
    *("target", "policy"),
    *("heterogeneity", "levels", "influence"),
]


def test_metrics_as_json_have_the_same_keys_with_and_without_redis(redis_url: str) -> None:
    for url, reports in ((redis_url, 0), ("redis://127.0.0.1:1/0", None)):
        result = run("metrics", "--json", "--redis", url)
        assert result.exit_code == 0
        found = strict(result.stdout)
        assert [list(row) for row in found] == [METRIC_KEYS, METRIC_KEYS]
        assert [row["metric"] for row in found] == ["delay", "carrier"]
        assert {(row["reports"], row["event_time"]) for row in found} == {(reports, None)}
    assert "no Redis answers" in result.stderr
    table = run("metrics", *NOWHERE).stdout.splitlines()[1:]
    assert all(line.split()[-2:] == ["-", "-"] for line in table), "unknown, and not zero"


def test_estimates_as_json_are_plain_before_the_first_report(redis_url: str) -> None:
    delay = strict(run("estimate", "delay", "--json", "--redis", redis_url).stdout)
    assert list(delay) == ESTIMATE_KEYS
    assert (delay["status"], delay["value"], delay["reports"]) == ("not_ready", None, 0)
    assert (delay["lower"], delay["upper"]) == (0, 10)
    nothing = {"share": 0.01, "reports": 0, "shift": None, "without_privacy": None}
    assert delay["influence"] == nothing
    assert [list(level) for level in delay["levels"]] == [["epsilon", "reports", "weight"]] * 2
    carrier = strict(run("estimate", "carrier", "--json", "--redis", redis_url).stdout)
    assert list(carrier) == [*ESTIMATE_KEYS, "categories"]
    assert carrier["categories"] == ["AA", "B6", "DL"]
    assert carrier["value"] == [None] * 3
    assert carrier["upper"] == [1] * 3
    told = run("estimate", "delay", "--redis", redis_url)
    assert told.exit_code == 0
    assert "not_ready" in told.output
    assert "nan" not in told.output
    assert run("estimate", "carrier", "--redis", redis_url, "--top", "2").exit_code == 0


def test_the_largest_so_many_are_the_same_for_people_and_as_json(redis_url: str) -> None:
    metric = load_metrics("metrics.toml")["carrier"]
    count_one(redis_url, metric, ["AA"] * 100 + ["DL"] * 700 + ["B6"] * 200)
    asked = ("estimate", "carrier", "--redis", redis_url)
    whole = strict(run(*asked, "--json").stdout)
    assert "left_out" not in whole
    found = strict(run(*asked, "--json", "--simplex", "--top", "1").stdout)
    assert (found["categories"], found["left_out"]) == (["DL"], 2)
    assert found["value"] == [max(whole["value"])]
    simplex = strict(run(*asked, "--json", "--simplex").stdout)["simplex"]
    assert found["simplex"] == [max(simplex)]
    assert "and 2 more categories" in run(*asked, "--top", "1").output


def test_weights_are_listed_and_set_from_now_on(redis_url: str) -> None:
    at = ("--redis", redis_url)
    assert strict(run("weights", "--json", *at).stdout) == {
        "delay": "optimal",
        "carrier": "optimal",
    }
    told = run("weights", "delay", "uniform", *at)
    assert told.exit_code == 0
    assert re.search(r"^delay +uniform$", told.output, re.MULTILINE)
    assert strict(run("weights", "--json", *at).stdout)["delay"] == "uniform"
    assert strict(run("weights", "carrier", "--json", *at).stdout) == {"carrier": "optimal"}
    found = strict(run("estimate", "delay", "--json", *at).stdout)
    assert (found["policy"], found["bound"]) == ("uniform", "anytime")
    asked = run("estimate", "delay", "--json", "--weights", "paper", "--bound", "normal", *at)
    found = strict(asked.stdout)
    assert (found["policy"], found["bound"]) == ("paper", "normal")


def test_an_estimate_warns_when_the_values_go_with_the_level() -> None:
    metric = define(
        name="m", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[0.5, 1]
    )
    for apart, weights in ((True, "optimal"), (True, "uniform"), (False, "optimal")):
        with row(apart, weights):
            statistic = np.array([9000, 5500, 9000, 3500] if apart else [9000, 4500] * 2)
            window = Window(metric=metric, status="provisional", content=Sums(statistic))
            found = Reader.answer(window, Query(weights=weights))
            told = as_text(Shown(window, found, 9))
            warned = "the values depend on the privacy level: weights" in told
            assert warned == (apart and weights == "optimal")
            assert ("no evidence that values depend on the privacy level" in told) != apart
            assert "(Cochran's Q, p = " in told
            assert as_dict(window, found)["heterogeneity"] == found.heterogeneity


def test_a_command_that_fails_leaves_no_connection_open(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        before = client.info("clients")["connected_clients"]
        failed = run("estimate", "carier", "--redis", redis_url)  # and its traceback
        assert "did you mean 'carrier'" in failed.output
        asked = (client.info("clients")["connected_clients"] for _ in range(1000))
        assert before in asked


def count_one(redis_url: str, metric: Metric, values: Sequence[Any]) -> None:
    """Count one batch of a metric at epsilon = 8 into the store."""
    with Store(connect(redis_url), "dither.reports") as store:
        snapshot = store.partition.acquire(0, "test")
        partition = snapshot.partition({metric.name: metric}, 60_000)
        partition.count(log(batch(metric, values, 8)))
        store.partition.commit(0, int(snapshot.owner["epoch"]), -1, partition, {})


def test_whoever_watches_is_told_once_when_nobody_counts(
    redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("metrics.toml").write_text(METRICS + PLACE)
    metric = load_metrics("metrics.toml")["place"]
    count_one(redis_url, metric, [[0.1, -1.5, 0.5]] * 20)
    with Store(connect(redis_url), "dither.reports") as store:
        seen = changes(Reader(store, {"place": metric}), "place", None, 0.01)
        next(seen)
        assert capsys.readouterr().err == "", "one has counted a moment ago"
        mark: Any = f"{tag('dither.reports', 0)}:committed"
        store.client.pexpire(mark, LAST_COMMIT_MS - 3_600_000)
        seen = changes(Reader(store, {"place": metric}), "place", None, 0.01)
        next(seen)
        told = capsys.readouterr().err
        assert told.startswith("no worker has counted since 20")
        assert told.count("\n") == 1
        assert "dither aggregate" in told


def test_a_vector_is_shown_by_coordinate_with_its_radius(redis_url: str) -> None:
    Path("metrics.toml").write_text(METRICS + PLACE)
    before = strict(run("estimate", "place", "--json", "--redis", redis_url).stdout)
    assert list(before) == [*ESTIMATE_KEYS, "coordinates", "radius"]
    assert (before["value"], before["upper"], before["radius"]) == ([None] * 3, [2] * 3, None)
    metric = load_metrics("metrics.toml")["place"]
    count_one(redis_url, metric, [[0.1, -1.5, 0.5]] * 2000)
    found = strict(run("estimate", "place", "--json", "--redis", redis_url).stdout)
    assert 0 < found["radius"] < 0.5
    told = run("estimate", "place", "--redis", redis_url, "--top", "2").output
    lies = found["influence"]
    assert lies["reports"] == 20
    assert 0 < lies["shift"] < lies["l2"]
    assert f"(20) were fabricated, this could be off by up to {at_most(lies['l2'])} km (l2)" in told
    told = told[told.index("coordinate") :]
    assert told.index("coordinate") < told.index("-1.") < told.index("0.")
    assert "and 1 more coordinates (--top)" in told
    assert f"within {at_most(found['radius'])} km of the true vector (l2)" in told
    assert "3 coordinates, length up to 2 km" in run("metrics", "--redis", redis_url).output


def test_any_string_of_an_open_vocabulary_may_be_asked_for(redis_url: str) -> None:
    definition = f'[metrics]\nwords = {{{OPEN}, levels = [8], watch = ["sun"]}}\n'
    Path("metrics.toml").write_text(definition)
    metric, at = load_metrics("metrics.toml")["words"], ("--redis", redis_url)
    count_one(redis_url, metric, ["sun"] * 300 + ["rain"] * 700)
    assert strict(run("estimate", "words", "--json", *at).stdout)["categories"] == ["sun"]
    asked = ("estimate", "words", *at, "--category", "rain", "--category", "never said")
    found = strict(run(*asked, "--json").stdout)
    assert found["categories"] == ["rain", "never said"]
    assert found["lower"][0] <= 0.7 <= found["upper"][0]
    assert found["lower"][1] == 0
    told = run(*asked).output
    assert told.index("rain") < told.index("never said")
    assert "sun" not in told
    (row,) = strict(run("metrics", "--json", *at).stdout)
    assert (row["categories"], row["reports"]) == ("open", 1000)
    Path("metrics.toml").write_text(definition.replace(', watch = ["sun"]', ""))
    for words, expected in {
        "": "ask for any string with --category",
        "--quantile 95": "95: expected a number between 0 and 1; the 95th percentile is 0.95",
        "--quantile 0.95": "'words' is a frequency, and only a distribution has them",
        "--from 2013-01-01": "window     from 2013-01-01T00:00:00Z to now",
    }.items():
        assert expected in run("estimate", "words", *at, *words.split()).output
