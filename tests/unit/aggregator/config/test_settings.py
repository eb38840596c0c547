"""Settings: what overrides what, where each value came from, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aggregator.config.settings import Settings, in_force, load_settings
from aggregator.errors import SettingsError
from aggregator.reading.grouping import check_groupings
from estimators import define


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


def test_a_file_may_be_named_by_flag_or_by_variable(tmp_path: Path) -> None:
    for name in ("one.toml", "two.toml"):
        (tmp_path / name).write_text(f'metrics = "{name}.metrics"')
    named = load_settings(environ={"DITHER_CONFIG": "one.toml"})
    assert (named.metrics, named.sources["metrics"]) == ("one.toml.metrics", "one.toml")
    overridden = load_settings("two.toml", environ={"DITHER_CONFIG": "one.toml"})
    assert (overridden.metrics, overridden.sources["metrics"]) == ("two.toml.metrics", "two.toml")


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


def test_variables_name_kafkas_properties_with_underscores_for_dots() -> None:
    settings = load(
        '[kafka]\nbootstrap.servers = "file:9092"',
        environ={
            "DITHER_KAFKA_BOOTSTRAP_SERVERS": "variable:9092",
            "DITHER_KAFKA_SASL_MECHANISM": "PLAIN",
        },
    )
    found = shown(settings)
    assert found["kafka.bootstrap.servers"] == ("variable:9092", "DITHER_KAFKA_BOOTSTRAP_SERVERS")
    assert found["kafka.sasl.mechanism"] == ("PLAIN", "DITHER_KAFKA_SASL_MECHANISM")


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
    settings = load(environ={**links, **others, "DITHERING_SERVE_PORT": "x", "PATH": "x"})
    assert not settings.sources


def test_numbers_and_switches_may_be_written_as_text() -> None:
    settings = load(environ={"DITHER_TOPICS_PARTITIONS": "12", "DITHER_TOPICS_MANAGED": "false"})
    assert (settings.topics.partitions, settings.topics.managed) == (12, False)


@pytest.mark.parametrize(
    ("key", "value", "nearest"),
    [
        ("aggregate.comit_interval", "1s", "'commit_interval'"),
        ("redis.urls", "redis://db", "'url'"),
        ("serve.prot", "80", "'port'"),
        ("topics.report", "mine", "'reports'"),
        ("agregate.group", "mine", "'aggregate'"),
        ("metric", "mine.toml", "'metrics'"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(
    key: str, value: str, nearest: str
) -> None:
    error = refusal(flags={key: value})
    assert (error.key, error.source) == (key, "command line")
    assert error.value == "***", "nobody knows what it is"
    assert error.expected.split("? ")[0].endswith(nearest)
    assert str(error) == f"command line: {key} = '***': expected {error.expected}"


@pytest.mark.parametrize("origin", ["*", "null", "http://localhost:3000", "https://a.example"])
def test_an_origin_is_as_browsers_send_it(origin: str) -> None:
    settings = load(f"[serve]\ncors_origins = ['{origin}', 'capacitor://localhost']")
    assert settings.serve.cors_origins == [origin, "capacitor://localhost"]


@pytest.mark.parametrize("host", ["*", "*.a.example", "Localhost", "10.0.0.1", "[::1]"])
def test_a_host_is_as_requests_name_it(host: str) -> None:
    assert load(f"[serve]\nhosts = ['{host}', 'b.example']").serve.hosts == [host, "b.example"]


@pytest.mark.parametrize("rate", ["", "100/second", "5000 per hour"])
def test_a_rate_is_as_the_gateway_reads_it(rate: str) -> None:
    assert load(f"[gateway]\nrate_limit = '{rate}'").gateway.rate_limit == rate


@pytest.mark.parametrize(
    ("toml", "key", "value", "expected"),
    [
        ("[serve]\nport = 'http'", "serve.port", "http", "int"),
        ("[serve]\nport = 70000", "serve.port", 70000, "a port, 0 to 65535"),
        ("[serve]\nport = [80]", "serve.port", [80], "int"),
        ("[aggregate]\nworkers = 0", "aggregate.workers", 0, "a number of 1 or more"),
        ("[aggregate]\nworkers = 1.5", "aggregate.workers", 1.5, "int"),
        ("[aggregate]\nfuture = 10", "aggregate.future", 10, "a duration such as 30s"),
        ("[aggregate]\nidle = 'soon'", "aggregate.idle", "soon", "a duration such as 30s"),
        ("[aggregate]\non_gap = 'go'", "aggregate.on_gap", "go", "one of stop, skip"),
        ("[gateway]\nrate_limit = 'lots'", "gateway.rate_limit", "lots", "a rate such as 100/sec"),
        ("[serve]\ncors_origins = 'app'", "serve.cors_origins", "app", "origins as browsers send"),
        (
            "[serve]\ncors_origins = ['https://a.example/']",
            *("serve.cors_origins", ["https://a.example/"], "origins as browsers send"),
        ),
        ("[serve]\nhosts = ['a.example:80']", "serve.hosts", ["a.example:80"], "host names"),
        ("[serve]\nhosts = 'https://a.example'", "serve.hosts", "https://a.example", "host names"),
        ("[serve]\nhosts = ['*a.example']", "serve.hosts", ["*a.example"], "host names"),
        ("[publish]\nlease = '1ms'", "publish.lease", "1ms", "a duration of 500ms or more"),
        ("[publish]\nslices = ['late']", "publish.slices", ["late"], "METRIC: ATTRIBUTE, as in"),
        (
            "[serve]\nslices = ['late: a, a']",
            *("serve.slices", ["late: a, a"], "METRIC: ATTRIBUTE, as in 'late: country' or"),
        ),
        ("[serve]\ntop_slices = 0", "serve.top_slices", 0, "a number of 1 or more"),
        ("[publish]\nsince = 'soon'", "publish.since", "soon", "a time such as 2013-01-31"),
        ("[topics]\nmanaged = 'perhaps'", "topics.managed", "perhaps", "bool"),
        ("[topics]\nreplication = 0", "topics.replication", 0, "a number of 1 or more"),
        ("[kafka]\nbrokers = ['a', 'b']", "kafka.brokers", "***", "bool | int | float | str"),
        ("metrics = 7", "metrics", 7, "str"),
        (
            "[kafka]\n'bootstrap.servers' = 'app:x@broker:9092'",
            *("kafka.bootstrap.servers", "app:***@broker:9092", "only hosts and ports"),
        ),
        ("kafka = 'broker:9092'", "kafka", "***", "a table [kafka]"),
        ("[metrics]\nfile = 'x'", "metrics.file", "***", "one value for metrics"),
    ],
)
def test_a_value_that_cannot_be_used_names_source_key_value_and_what_was_expected(
    toml: str, key: str, value: object, expected: str
) -> None:
    error = refusal(toml)
    assert (error.source, error.key, error.value) == ("dither.toml", key, value)
    assert error.expected.startswith(expected)
    assert str(error) == f"dither.toml: {key} = {value!r}: expected {error.expected}"


def test_a_variable_that_cannot_be_used_is_named() -> None:
    error = refusal(environ={"DITHER_SERVE_PORT": "eighty"})
    assert str(error).startswith("DITHER_SERVE_PORT: serve.port = 'eighty': expected int")


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


def test_a_folder_is_not_a_settings_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="expected a file that can be read"):
        load_settings(str(tmp_path), environ={})


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
URLS = [
    "redis://:hunter2@db/0",
    "rediss://app:hunter2@db/0?ssl_ca_certs=/ca.pem",
    "redis://app:%68unter2-hunter2@db/0",
    "redis://app:hunter2/with@signs:hunter2@db/0",  # what should have been percent-encoded
    "redis://db/0?username=app&password=hunter2",
    "rediss://db/0?p%61ssword=hunter2&ssl_password=hunter2",
    "unix://app:hunter2@/run/redis.sock?db=0",
]


def quoted(key: str) -> str:
    section, _, name = key.partition(".")
    return f"[{section}]\n'{name}'"


@pytest.mark.parametrize("key", SECRETS)
def test_secrets_are_masked_wherever_settings_are_shown(key: str) -> None:
    value, source = shown(load(f"{quoted(key)} = '{SECRETS[key]}'"))[key]
    assert "hunter2" not in value
    assert "***" in value
    assert source == "dither.toml"


@pytest.mark.parametrize("url", URLS)
def test_passwords_are_masked_wherever_they_are_in_a_url(url: str) -> None:
    value, _ = shown(load(environ={"DITHER_REDIS_URL": url}))["redis.url"]
    assert "hunter2" not in value
    assert "unter2" not in value
    assert "***" in value
    assert value.endswith(("/0", "db=0", ".pem", "***"))


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_on_the_command_line_is_refused_and_not_shown(key: str) -> None:
    error = refusal(flags={key: SECRETS[key]})
    variable = f"DITHER_{key}".upper().replace(".", "_")
    assert f"in {variable}, or in a file that {variable}_FILE names" in str(error)
    assert error.source == "command line"
    assert "hunter2" not in str(error)


def test_a_secret_comes_from_the_file_that_a_variable_names(tmp_path: Path) -> None:
    secret, url = tmp_path / "password", tmp_path / "url"
    secret.write_text("hunter2 with a space \n")
    url.write_text("rediss://app:hunter3@db:6380/0\r\n")
    settings = load(
        "[kafka]\nsasl.password = 'older'",
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


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DITHER_REDIS_URL_FILE": "missing"}, "a file that can be read (No such file"),
        ({"DITHER_REDIS_URL_FILE": "."}, "a file that can be read (Is a directory"),
        ({"DITHER_REDIS_URL_FILE": "empty"}, "a file that is not empty"),
        ({"DITHER_REDIS_URL_FILE": "bytes"}, "a file in UTF-8"),
        ({"DITHER_REDIS_URL_FILE": "x", "DITHER_REDIS_URL": "y"}, "one of DITHER_REDIS_URL and"),
        ({"DITHER_METRICS_FILE": "secret"}, "DITHER_METRICS, which names a file itself"),
        ({"DITHER_SERVE_TLS_KEY_FILE": "secret"}, "DITHER_SERVE_TLS_KEY, which names a file"),
        ({"DITHER_KAFKA_SSL_CA_LOCATION_FILE": "secret"}, "DITHER_KAFKA_SSL_CA_LOCATION, which"),
        ({"DITHER_SERVE_PORT_FILE": "secret"}, "int"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_variable(
    environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "secret").write_text("hunter2")
    error = refusal(environ=environ)
    assert error.expected.startswith(expected)
    assert next(iter(environ)) in str(error)
    assert "hunter2" not in str(error)


def test_a_property_of_librdkafka_whose_name_ends_in_file_is_a_value() -> None:
    name = "sasl.oauthbearer.assertion.private.key.file"
    variable = f"DITHER_KAFKA_{name}".upper().replace(".", "_")
    assert load(environ={variable: "/run/key.pem"}).kafka[name] == "/run/key.pem"


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("DITHER_AGREGATE_GROUP", "DITHER_AGGREGATE_GROUP"),
        ("DITHER_KAFFKA_SASL_PASSWORD_FILE", "DITHER_KAFKA_SASL_PASSWORD"),
        ("DITHER_KAFAK_FETCH_MIN_BYTES", "DITHER_KAFKA"),
        ("DITHER_REDDIS_URL", "DITHER_REDIS_URL"),
        ("DITHER_METRIC", "DITHER_METRICS"),
        ("DITHER_TOPIC_REPORTS", "DITHER_TOPICS_REPORTS"),
        ("DITHER_SERVER_PORT", "DITHER_SERVE_PORT"),
        ("DITHER_WORKERS", "DITHER_SERVE_WORKERS or DITHER_AGGREGATE_WORKERS"),
        ("DITHER_PORT", "DITHER_SERVE_PORT"),
    ],
)
def test_a_mistyped_variable_is_an_error_that_names_the_nearest(
    variable: str, nearest: str
) -> None:
    error = refusal(environ={variable: "redis://app:hunter2@db"})
    assert f"{nearest}? (known: kafka, topics," in str(error).replace("_...", "")
    assert str(error).startswith(f"environment: {variable} = ")
    assert "hunter2" not in str(error)


def test_places_and_names_are_not_masked() -> None:
    plain = {"kafka.ssl.key.location": "/etc/key", "kafka.sasl.username": "app"}
    found = shown(load(flags=plain))
    assert {key: found[key][0] for key in plain} == plain


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("redis.password", "hunter2"),
        ("reddis.url", "redis://app:hunter2@db:6379/0"),
        ("kafka.sasl.password", ["hunter2"]),
        ("kafka.servers", ["redis://app:hunter2@db"]),
        ("access.tokens.ci", "dither_hunter2"),
    ],
)
def test_an_error_does_not_tell_a_secret(key: str, value: object) -> None:
    error = refusal(f"{quoted(key)} = {value!r}")
    assert "hunter2" not in str(error)
    assert "hunter2" not in str(error.value)
    assert key in str(error)


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("memory = 1000", "33554432 or more"),
        ("deadletter_ratio = 1.0", "a share from 0"),
        ("deadletter_ratio = -0.1", "a share from 0"),
        ("deadletter_consecutive = -1", "0 or more"),
        ("deadletter_window = 0", "1 or more"),
        ('stuck_after = "soon"', "a duration"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(toml: str, expected: str) -> None:
    assert expected in str(refusal(f"[aggregate]\n{toml}"))


def test_limits_are_switched_off_by_zero() -> None:
    flags = {"aggregate.deadletter_consecutive": "0", "aggregate.deadletter_ratio": "0"}
    aggregate = load(flags=flags).aggregate
    assert (aggregate.deadletter_consecutive, aggregate.deadletter_ratio) == (0, 0.0)


def test_slices_in_one_text_are_separated_by_semicolons() -> None:
    settings = load(environ={"DITHER_SERVE_SLICES": "late: country, version; late: country"})
    assert settings.serve.slices == ["late: country, version", "late: country"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lete: country", "expected a metric; did you mean 'late'?"),
        ("late: contry", "expected its attributes; attribute 'contry': did you mean 'country'?"),
        ("plain: country", "expected its attributes; metric 'plain' has no slices"),
    ],
)
def test_slices_that_no_metric_has_are_refused(text: str, expected: str) -> None:
    about: dict[str, Any] = {"kind": "mean", "mechanism": "laplace", "range": (0, 1), "levels": [1]}
    by = {"by": ["country"], "attributes": {"country": ["DE"]}}
    metrics = {"late": define(name="late", **about, **by), "plain": define(name="plain", **about)}
    settings = load(f"[publish]\nslices = ['late: country', '{text}']")
    with pytest.raises(SettingsError) as error:
        check_groupings(settings, metrics)
    assert str(error.value).startswith(f"dither.toml: publish.slices = '{text}': {expected}")
    check_groupings(load("[serve]\nslices = ['late: country']"), metrics)
