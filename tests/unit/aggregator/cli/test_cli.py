"""The command line: help that a newcomer can follow, and messages instead of tracebacks."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import redis
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException

from aggregator.cli.lean_imports import may_use_tls
from aggregator.cli.main import BLAS_THREADS, cli, command_help, main
from aggregator.local.embedded_servers import EmbeddedUnavailableError
from aggregator.verifying.state_differences import Verification
from producers.populations.population import Population
from tests.support.paths import ROOT
from tests.support.rows import row

NOWHERE = ["--kafka", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0"]
METRICS = """
[metrics]
delay = {kind = "mean", mechanism = "randomized_response", range = [0, 10], levels = [0.5, 1], \
unit = "minutes"}
carrier = {kind = "frequency", mechanism = "rappor", categories = ["AA", "B6", "DL"], levels = [1]}
"""


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

    return CliRunner(charset="latin-1").invoke(dither, ["--", *arguments])


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
    for name in command_help():
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
            assert command_help()[name].endswith(".")


HELP = """
import os, sys
from aggregator.cli.main import BLAS_THREADS, main
try:
    main(sys.argv[1:])
except SystemExit:
    slow = {"numpy", "scipy", "redis", "confluent_kafka", "starlette", "rich", "msgspec", "google",
            "opentelemetry", "structlog", "aggregator.reading", "producers.populations", "asyncio",
            "_ssl", "_hashlib", "importlib.metadata", "importlib.resources", "http.server",
            "redis.asyncio.client", "google.protobuf.text_format"}
    print(*sorted(slow & sys.modules.keys()), os.environ[BLAS_THREADS], file=sys.stderr)
"""
READS = "aggregator.reading confluent_kafka msgspec numpy redis"
COUNTS = "confluent_kafka google msgspec numpy redis structlog"


@pytest.mark.parametrize(
    ("command", "own", "loaded"),
    [
        ("", None, "1"),
        ("", "3", "3"),
        *((command, "3", f"{READS} 3") for command in ("estimate", "alarms")),
        ("aggregate", "3", f"{COUNTS} 3"),
        ("aggregate --redis rediss://x", "3", f"_hashlib _ssl {COUNTS} 3"),
    ],
)
def test_help_loads_nothing_slow_readers_what_they_need_and_matrices_have_one_thread_or_those_named(
    command: str, own: str | None, loaded: str
) -> None:
    """OpenBLAS reads the variable when numpy is imported, so it is set before that.

    Redis over TLS needs OpenSSL, which takes 7 MB.
    """
    env = {name: value for name, value in os.environ.items() if name != BLAS_THREADS}
    env |= {"PYTHONPATH": str(ROOT)} | ({} if own is None else {BLAS_THREADS: own})
    args = [sys.executable, "-c", HELP, *command.split(), "--help"]
    assert subprocess.run(args, env=env, capture_output=True, text=True).stderr.strip() == loaded


def test_a_redis_over_tls_is_seen_wherever_its_url_may_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS in sight, Redis's client is loaded without it."""
    monkeypatch.chdir(tmp_path)
    for name, url in (("plain", "redis://a"), ("secure", "rediss+sentinel://a:1/b")):
        Path(f"{name}.toml").write_text(f'[redis]\nurl = "{url}"\n')
    for args, variables, expected in (
        ("", {}, False),
        ("--config plain.toml", {"DITHER_REDIS_URL": "redis://a"}, False),
        ("--set=redis.url=REDISS://a", {}, True),
        ("--config secure.toml", {}, True),
        ("--config=secure.toml", {}, True),
        (f"--config {5000 * 'a'}", {}, True),
        ("", {"DITHER_CONFIG": "secure.toml"}, True),
        ("", {"DITHER_REDIS_URL": "rediss://a"}, True),
        ("", {"DITHER_REDIS_URL_FILE": "/run/secrets/url"}, True),
    ):
        with row((args, variables)), monkeypatch.context() as patch:
            patch.setattr(os, "environ", variables)
            assert may_use_tls(args.split()) == expected
    Path("secure.toml").rename("dither.toml")
    assert may_use_tls(())


def test_an_answer_that_nobody_gets_is_an_error() -> None:
    for streams, told in (
        (">&-", "Error: standard output is closed: name a file or a pipe for the answer\n"),
        ("<&- >/dev/full", "Error: the output: No space left on device\n"),
        ("| head -c 0", ""),
    ):
        line = f'"$0" -m aggregator roles {streams}; exit ${{PIPESTATUS[0]}}'
        ended = subprocess.run(
            ["/bin/bash", "-c", line, sys.executable],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        with row(streams):
            assert (ended.stdout, ended.stderr, ended.returncode) == ("", told, 1)


def test_define_says_how_its_file_is_produced(tmp_path: Path) -> None:
    file = tmp_path / "my file.csv"
    file.write_text("How late;Land\n" + "".join(f"{i},5;\xfc\u5317\n" for i in range(99)))
    options = ["--column", "how late", "--by", "Land", "--above", "9.5", "--decimal", ","]
    result = run("define", str(file), *options)
    assert 'land = ["\xfc\u5317"]'.encode() in result.stdout_bytes, "a file, not a latin-1 console"
    words = shlex.split(result.stderr.splitlines()[-1].rpartition("second terminal: ")[2])
    expected = ["dither", "produce", "how_late_above_9_5", "--csv", str(file), "--column"]
    expected += ["how late", "--attribute", "land=Land", "--above", "9.5", "--decimal", ","]
    assert words == expected
    population = Population(np.arange(3), {"late": np.array([9.5, 9.6, np.nan]), "c": np.arange(3)})
    assert population.above("late", 9.5).columns["late"].tolist()[:2] == [0, 1]
    assert population.above("late", 9.5).count_missing("late") == 1
    with pytest.raises(ValueError, match="above 1: expected numbers, as of a mean, in 'c'"):
        population.above("c", 1)


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
    "estimate delay --from 2026-01-05T10.5": "expected 2013-01-31",
    "estimate delay --from 1767571200000": "not milliseconds",
    "estimate delay --from 202601": "could be a year or a date",
    "estimate delay --from 202601051030": "could be a year or a date",
    "estimate delay --from 2013-02-01 --to 2013-01-01": "expected an end",
    "weights delay unifrom": "no policy 'unifrom': did you mean 'uniform'?",
    "watch delay --interval soon": "a duration such as 30s",
    "watch delay --interval 1ms": "0.1s or more",
    "watch delay --window long": "a duration such as 30s",
}
FAILURES = {
    "estimate dely": "Error: metric 'dely' is not defined in metrics.toml: ",
    "watch dely": "Error: metric 'dely' is not defined in metrics.toml: ",
    "weights dely uniform": "Error: metric 'dely' is not defined in metrics.toml: ",
    "metrics --metrics .": "Error: .: Is a directory\n",
    "metrics --set serve.prot=80": "Error: command line: serve.prot = '***': expected a known key",
    "produce delay --csv table.csv --column v --redis x://y": "Error: redis: redis.url = 'x://y'",
    "produce delay --csv table.csv --column w": "Error: 5 of 5 values are outside of [",
    "define table.csv --column v --range 5 1": "Error: --range 5 1: expected two finite numbers",
    "define table.csv --column v --range 1 5 --level 99": "Error: --level 99: expected epsilons",
    "define table.csv --column v --range 1 5 --name No": "Error: --name No: expected a lower-case",
    "define --examples table.csv --name No": "Error: --name No: expected a lower-case",
    "define table.csv --column v --range 0 9 --by land": "Error: --by: attributes.land = ['a",
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
    Path("table.csv").write_text("v,w,land\n1,1000,a\x7f\n" + "2,2000,a\x7f\n" * 4)
    for words, wrong in FAILURES.items():
        with row(words):
            at = () if "define" in words or "--redis" in words else ("--redis", redis_url)
            told = failure(*words.split(), *at)
            assert f"\n{wrong}" in f"\n{told}"
            assert "dely" not in words or "did you mean 'delay'?" in told


ON_KAFKA = [["aggregate"], ["verify"], ["produce", "delay", "--simulate", "uniform"]]
ON_REDIS = [["estimate", "delay"], ["serve"]]
EVERYWHERE = [*ON_KAFKA, *ON_REDIS, ["metrics"]]


def test_a_missing_server_is_one_message_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator.kafka.clients.SILENT_SECONDS", 0.2)
    monkeypatch.setenv("DITHER_REDIS_URL", "redis://app:hunter2@127.0.0.1:1/0")
    broker = ["start one", "--kafka", "DITHER_KAFKA_BOOTSTRAP_SERVERS", "dither.toml"]
    server = ["redis-server", "--redis", "DITHER_REDIS_URL", "dither.toml"]
    for commands, missing, remedies in (
        (ON_KAFKA, "Kafka broker answers at 127.0.0.1:1 (", broker),
        (ON_REDIS, "Redis answers at redis://app:***@127.0.0.1:1/0 (", server),
    ):
        for arguments in commands:
            with row(*arguments):
                told = failure(*arguments, *NOWHERE[:2])
                assert told.startswith(f"Error: no {missing}")
                assert told.count("\n") == 1
                assert [remedy for remedy in remedies if remedy not in told] == []
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
        ("[metrics]", "[metrics", "TOML = "),
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
    (KafkaException(KafkaError(KafkaError._INVALID_ARG, 'property "a" of config')), "[kafka]: "),
    (EmbeddedUnavailableError("pip install 'dither[demo]'"), "pip install 'dither[demo]'"),
    (ModuleNotFoundError("No module", name="rich"), "dither metrics needs rich, which"),
    (PermissionError(13, "Permission denied", "metrics.toml"), "metrics.toml: Permission"),
]
DEFECTS = [KeyError("x"), ValueError("x"), ModuleNotFoundError("x")]


def test_a_failure_is_one_message_and_defects_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_verify_tells_changed_definitions(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Verification()
    monkeypatch.setattr("aggregator.cli.commands.verify.replay", lambda *_: outcome)
    monkeypatch.setattr("aggregator.cli.commands.verify.clients.admin", lambda *_: None)
    for digest, told in (("a", ""), ("b", "changed 1 time: "), ("c", "changed 2 times: ")):
        outcome.definitions.append(digest)
        shown = run("verify", "--redis", redis_url).stdout
        assert ("definitions" in shown, told in shown) == (bool(told), True)


def strict(text: str) -> Any:
    """Read JSON as every language does: without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


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
