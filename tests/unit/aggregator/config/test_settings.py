"""Settings: what overrides what, where each value came from, and errors that say what to do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aggregator.config.settings import Settings, in_force, load_settings
from aggregator.errors import SettingsError
from aggregator.reading.grouping import check_groupings
from estimators import define
from tests.support.rows import row


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(
    toml: str = "", environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    Path("dither.toml").write_text(toml)
    return load_settings(None, flags, environ or {})


def shown(settings: Settings) -> dict[str, tuple[Any, str]]:
    return {key: (value, source) for key, value, source in in_force(settings)}


def refusal(toml: str = "", **where: Mapping[str, Any]) -> SettingsError:
    with pytest.raises(SettingsError) as error:
        load(toml, **where)
    return error.value


def test_without_a_file_or_variables_the_defaults_are_in_force() -> None:
    settings = load_settings(environ={})
    assert settings.kafka == {"bootstrap.servers": "localhost:9092"}
    assert settings.redis.url == "redis://localhost:6379/0"
    assert {source for _, source in shown(settings).values()} == {"default"}


def test_flags_override_variables_which_override_the_file_which_overrides_the_defaults() -> None:
    settings = load(
        """
        [serve]
        host = "file"
        port = 1
        top_categories = 2
        """,
        environ={"DITHER_SERVE_PORT": "3", "DITHER_SERVE_TOP_CATEGORIES": "4"},
        flags={"serve.top_categories": 5, "redis.url": None},
    )
    found = shown(settings)
    assert found["serve.host"] == ("file", "dither.toml")
    assert found["serve.port"] == (3, "DITHER_SERVE_PORT")
    assert found["serve.top_categories"] == (5, "command line")
    assert found["redis.url"] == ("redis://localhost:6379/0", "default")


def test_kafka_takes_any_property_of_librdkafka_quoted_or_not() -> None:
    settings = load(
        """
        [kafka]
        bootstrap.servers = "broker:9092"
        "security.protocol" = "SASL_SSL"
        fetch.queue.backoff.ms = 2
        socket.keepalive.enable = true
        """
    )
    assert settings.kafka == {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_SSL",
        "fetch.queue.backoff.ms": 2,
        "socket.keepalive.enable": True,
    }
    assert settings.sources["kafka.bootstrap.servers"] == "dither.toml"


def test_variables_of_others_are_left_alone() -> None:
    links = {  # what Kubernetes sets for a service that is called dither-serve
        "DITHER_SERVE_SERVICE_HOST": "10.0.0.1",
        "DITHER_SERVE_SERVICE_PORT_HTTP": "8080",
        "DITHER_SERVE_PORT": "tcp://10.0.0.1:8080",
        "DITHER_SERVE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "DITHER_SERVE_PORT_8080_TCP_ADDR": "10.0.0.1",
        "DITHER_PORT": "tcp://10.0.0.1:8080",
    }
    others = {"DITHER_TEST_KAFKA": "x", "DITHER_REQUIRE_REAL": "1", "DITHER_HOME": "/opt/dither"}
    assert not load(environ={**links, **others, "DITHERING_SERVE_PORT": "x", "PATH": "x"}).sources


def test_an_unknown_key_is_an_error_that_names_the_nearest() -> None:
    for key, nearest in (
        ("aggregate.comit_interval", "'commit_interval'"),
        ("redis.urls", "'url'"),
        ("agregate.group", "'aggregate'"),
        ("metric", "'metrics'"),
    ):
        error = refusal(flags={key: "something"})
        with row(key):
            assert (error.key, error.source) == (key, "command line")
            assert error.value == "***", "nobody knows what it is"
            assert error.expected.split("? ")[0].endswith(nearest)
            assert str(error) == f"command line: {key} = '***': expected {error.expected}"


def test_origins_hosts_and_rates_are_as_they_are_sent_and_read() -> None:
    for origin in ("*", "null", "http://localhost:3000", "https://a.example"):
        settings = load(f"[serve]\ncors_origins = ['{origin}', 'capacitor://localhost']")
        assert settings.serve.cors_origins == [origin, "capacitor://localhost"]
    for host in ("*", "*.a.example", "Localhost", "10.0.0.1", "[::1]"):
        assert load(f"[serve]\nhosts = ['{host}', 'b.example']").serve.hosts[0] == host
    for url in ("", "https://a.example/registry"):
        assert load(f"[schemas]\nurl = '{url}'").schemas.url == url
    assert load('[serve]\ntrusted_proxies = ["10.0.0.0/8"]').serve.trusted_proxies
    for rate in ("", "100/second", "5000 per hour"):
        assert load(f"[gateway]\nrate_limit = '{rate}'").gateway.rate_limit == rate


UNUSABLE: list[tuple[str, object, str]] = [
    ("serve.port", "http", "int"),
    ("serve.port", 70000, "a port, 0 to 65535"),
    ("serve.port", [80], "int"),
    ("aggregate.workers", 0, "a number of 1 or more"),
    ("aggregate.workers", 1.5, "int"),
    ("aggregate.future", 10, "a duration such as 30s"),
    ("aggregate.idle", "soon", "a duration such as 30s"),
    ("aggregate.on_gap", "go", "one of stop, skip"),
    ("aggregate.memory", 1000, "a number of 33554432 or more"),
    ("aggregate.deadletter_ratio", 1.0, "a share from 0"),
    ("aggregate.deadletter_ratio", -0.1, "a share from 0"),
    ("aggregate.deadletter_consecutive", -1, "a number of 0 or more"),
    ("aggregate.skip", ["8812"], "places as PARTITION:OFFSET or PARTITION:FIRST-"),
    ("gateway.rate_limit", "lots", "a rate such as 100/sec"),
    ("serve.cors_origins", "app", "origins as browsers send"),
    ("serve.cors_origins", ["https://a.example", "https://a.example/"], "origins as browsers send"),
    ("serve.hosts", ["a.example:80"], "host names"),
    ("serve.hosts", ["a.example", "*a.example"], "host names"),
    ("publish.lease", "1ms", "a duration of 500ms or more"),
    ("publish.slices", ["late"], "METRIC: ATTRIBUTE, as in"),
    ("serve.slices", ["late: a, a"], "METRIC: ATTRIBUTE, as in 'late: country' or"),
    ("kafka.group.protocol", "consumer", "classic: workers set session.timeout.ms and"),
    ("publish.since", "soon", "a time such as 2013-01-31"),
    ("topics.managed", "perhaps", "bool"),
    ("schemas.schema_id", 1 << 31, "the number that `dither schemas` prints"),
    ("serve.trusted_proxies", ["10.0.0.0/8", "0.0.0.0/0"], "addresses or networks"),
]


def test_a_value_that_cannot_be_used_names_source_key_value_and_what_was_expected() -> None:
    masked: list[tuple[str, str, object, str]] = [
        ("[kafka]\nbrokers = ['a', 'b']", "kafka.brokers", "***", "bool | int | float | str"),
        ("metrics = 7", "metrics", 7, "str"),
        (
            "[kafka]\n'bootstrap.servers' = 'app:x@broker:9092'",
            *("kafka.bootstrap.servers", "app:***@broker:9092", "only hosts and ports"),
        ),
        ("[otlp]\n'endpoint' = 'http://a/v1/traces'", "otlp.endpoint", "***", "a collector's"),
        ("[schemas]\n'url' = 'app:x@host'", "schemas.url", "***", "http:// or https://, a host"),
        ("kafka = 'broker:9092'", "kafka", "***", "a table [kafka]"),
        ("[metrics]\nfile = 'x'", "metrics.***", "***", "one value for metrics"),
        ("[reddis]\nurl = 'redis://app:hunter2@db'", "reddis.url", "***", "a known section"),
    ]
    plain = ((f"{quoted(key)} = {value!r}", key, value, words) for key, value, words in UNUSABLE)
    for toml, key, value, expected in (*plain, *masked):
        error = refusal(toml)
        with row(toml):
            assert (error.source, error.key, error.value) == ("dither.toml", key, value)
            assert error.expected.startswith(expected)
            assert str(error) == f"dither.toml: {key} = {value!r}: expected {error.expected}"


def test_a_file_that_is_named_must_be_there() -> None:
    with pytest.raises(SettingsError, match=r"command line: --config = 'no\.toml'.*that exists"):
        load_settings("no.toml", environ={})
    with pytest.raises(SettingsError, match=r"^DITHER_CONFIG: file = 'no\.toml'.*that exists"):
        load_settings(environ={"DITHER_CONFIG": "no.toml"})


def test_a_file_that_is_not_toml_is_named_with_the_line() -> None:
    error = refusal("[kafka]\nbootstrap.servers = broker:9092")
    assert error.source == "dither.toml"
    assert "line 2" in str(error)
    Path("dither.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"dither\.toml: .*UTF-8"):
        load_settings(environ={})


SECRETS = {
    "kafka.sasl.password": "hunter2",
    "kafka.ssl.key.password": "hunter2",
    "kafka.ssl.keystore.password": "hunter2",
    "kafka.ssl.key.pem": "-----BEGIN hunter2",
    "kafka.sasl.oauthbearer.client.secret": "hunter2",
    "kafka.sasl.oauthbearer.client.credentials.client.secret": "hunter2",
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase": "hunter2",
    "kafka.sasl.oauthbearer.assertion.private.key.pem": "-----BEGIN hunter2",
    "kafka.sasl.oauthbearer.config": "principal=hunter2",
    "kafka.sasl.jaas.config": "password=hunter2",
    "redis.url": "redis://app:hunter2@db:6379/0",
}


def quoted(key: str) -> str:
    section, _, name = key.partition(".")
    return f"[{section}]\n'{name}'"


def test_secrets_are_masked_wherever_settings_are_shown_and_refused_on_the_command_line() -> None:
    for key, secret in SECRETS.items():
        value, source = shown(load(f"{quoted(key)} = '{secret}'"))[key]
        with row(key):
            assert "hunter2" not in value
            assert "***" in value
            assert source == "dither.toml"
        error = refusal(flags={key: secret})
        variable = f"DITHER_{key}".upper().replace(".", "_")
        with row(key):
            assert f"in {variable}, or in a file that {variable}_FILE names" in str(error)
            assert error.source == "command line"
            assert "hunter2" not in str(error)


def test_a_secret_comes_from_the_file_that_a_variable_names(tmp_path: Path) -> None:
    secret, url = tmp_path / "password", tmp_path / "url"
    secret.write_text("\ufeffhunter2 with a space \n")
    url.write_text("rediss://app:hunter3@db:6380/0\r\n")
    settings = load(
        "\ufeff[kafka]\nsasl.password = 'older'",
        environ={"DITHER_KAFKA_SASL_PASSWORD_FILE": str(secret), "DITHER_REDIS_URL_FILE": str(url)},
    )
    assert settings.kafka["sasl.password"] == "hunter2 with a space "
    assert settings.redis.url == "rediss://app:hunter3@db:6380/0"
    found = shown(settings)
    assert found["kafka.sasl.password"] == ("***", "DITHER_KAFKA_SASL_PASSWORD_FILE")
    assert found["redis.url"] == ("rediss://app:***@db:6380/0", "DITHER_REDIS_URL_FILE")


def test_a_token_may_come_from_a_file(tmp_path: Path) -> None:
    line = f"sha256:{'0' * 64} read"
    (tmp_path / "token").write_text(line)
    settings = load(environ={"DITHER_ACCESS_TOKENS_CI_FILE": str(tmp_path / "token")})
    assert settings.access.tokens == {"ci": line}
    (tmp_path / "token").write_text("dither_hunter2")
    error = refusal(environ={"DITHER_ACCESS_TOKENS_CI_FILE": str(tmp_path / "token")})
    assert "hunter2" not in str(error)
    assert "`dither tokens new`" in str(error)


def test_a_file_that_cannot_be_used_is_named_with_its_variable(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "secret").write_text("hunter2")
    rows: list[tuple[dict[str, str], str]] = [
        ({"DITHER_REDIS_URL_FILE": "missing"}, "a file that can be read (No such file"),
        ({"DITHER_REDIS_URL_FILE": "."}, "a file that can be read (Is a directory"),
        ({"DITHER_REDIS_URL_FILE": "empty"}, "a file that is not empty"),
        ({"DITHER_REDIS_URL_FILE": "bytes"}, "a file in UTF-8"),
        ({"DITHER_REDIS_URL_FILE": "x", "DITHER_REDIS_URL": "y"}, "one of DITHER_REDIS_URL and"),
        ({"DITHER_SERVE_TLS_KEY_FILE": "secret"}, "DITHER_SERVE_TLS_KEY, which names a file"),
        ({"DITHER_SERVE_PORT_FILE": "secret"}, "int"),
    ]
    for environ, expected in rows:
        error = refusal(environ=environ)
        with row(environ):
            assert error.expected.startswith(expected)
            assert next(iter(environ)) in str(error)
            assert "hunter2" not in str(error)


def test_a_mistyped_variable_is_an_error_that_names_the_nearest() -> None:
    for variable, nearest in (
        ("DITHER_AGREGATE_GROUP", "DITHER_AGGREGATE_GROUP"),
        ("DITHER_KAFFKA_SASL_PASSWORD_FILE", "DITHER_KAFKA_SASL_PASSWORD"),
        ("DITHER_KAFAK_FETCH_MIN_BYTES", "DITHER_KAFKA"),
        ("DITHER_METRIC", "DITHER_METRICS"),
        ("DITHER_WORKERS", "DITHER_SERVE_WORKERS or DITHER_AGGREGATE_WORKERS"),
        ("DITHER_PORT", "DITHER_SERVE_PORT"),
    ):
        error = str(refusal(environ={variable: "redis://app:hunter2@db"}))
        with row(variable):
            assert f"{nearest}? (known: kafka, topics," in error.replace("_...", "")
            assert error.startswith(f"environment: {variable} = ")
            assert "hunter2" not in error


def test_quotes_that_came_along_with_a_variable_are_named() -> None:
    for variable in ("DITHER_REDIS_URL", "DITHER_KAFKA_BOOTSTRAP_SERVERS", "DITHER_METRICS"):
        for text in ('"hunter2"', "'hunter2'"):
            error = str(refusal(environ={variable: text}))
            with row(variable, text):
                assert error.startswith(f"environment: {variable} = ")
                assert "without the quotes around it" in error
                assert "hunter2" not in error


def test_slices_that_no_metric_has_are_refused() -> None:
    about: dict[str, Any] = {"kind": "mean", "mechanism": "laplace", "range": (0, 1), "levels": [1]}
    by = {"by": ["country"], "attributes": {"country": ["DE"]}}
    metrics = {"late": define(name="late", **about, **by), "plain": define(name="plain", **about)}
    check_groupings(load("[serve]\nslices = ['late: country']"), metrics)
    for text, expected in (
        ("lete: country", "expected a metric; did you mean 'late'?"),
        ("late: contry", "expected its attributes; attribute 'contry': did you mean 'country'?"),
        ("plain: country", "expected its attributes; metric 'plain' has no slices"),
    ):
        settings = load(f"[publish]\nslices = ['late: country', '{text}']")
        with row(text), pytest.raises(SettingsError) as error:
            check_groupings(settings, metrics)
        assert str(error.value).startswith(f"dither.toml: publish.slices = '{text}': {expected}")
