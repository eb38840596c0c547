"""No secret is shown, in whatever variable or address it was given."""

import json
import re
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregator.cli.main import cli
from aggregator.config.settings import in_force, load_settings
from aggregator.errors import DitherError
from aggregator.storage import connection
from aggregator.storage.connection import connect

PIECES = ("hunterone", "huntertwo", "hunterthree")
HOLDERS = (
    *("DITHER_KAFKA_SASL_PASSWORD", "DITHER_KAFKA_SSL_KEY_PASSWORD", "DITHER_KAFKA_SSL_KEY_PEM"),
    "DITHER_KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET",
    *("DITHER_REDIS_URL", "DITHER_REDIS_PASSWORD", "DITHER_SCHEMAS_PASSWORD"),
    *("DITHER_ACCESS_TOKENS_CI", "DITHER_ACCESS_TOKENS"),
)
HERE = "127.0.0.1:1"
URLS = (
    "redis://app:{}@" + HERE + "/0",
    "redis://:{}@" + HERE,
    "rediss://app:{}@" + HERE + ",[::1]:1/0?ssl_ca_certs=/ca.pem",
    "redis+sentinel://app:{}@" + HERE + "/NAME/0",
    "redis:/app:{}@" + HERE,
    "redis//app:{}@" + HERE,
    "redis ://app:{}@" + HERE,
    "http://app:{}@" + HERE,
    "app:{}@" + HERE,
    "{}",
    "redis://" + HERE + "/{}",
    "redis://" + HERE + "?password={}",
    "redis://" + HERE + "?pasword={}",
    "redis://" + HERE + "?db={}",
    "redis+sentinel://" + HERE + "/NAME?sentinel_password={}&db=0",
    "unix://app:{}@/run/nothing.sock",
    "unix:///run/nothing.sock?password={}",
)
secrets = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).flatmap(
    lambda pieces: st.lists(
        st.text("@/:?#&=%;, $'\"\n\\ü", min_size=1, max_size=2),
        min_size=len(pieces),
        max_size=len(pieces),
    ).map(lambda between: "".join(p + b for p, b in zip(pieces, between, strict=True)))
)
addresses = st.builds(str.format, st.sampled_from(URLS), secrets)


@st.composite
def mistyped(draw: st.DrawFn) -> str:
    """Return a variable that holds a secret, perhaps with slips of the hand."""
    name = draw(st.sampled_from(HOLDERS)) + draw(st.sampled_from(["", "_FILE"]))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(len("DITHER_"), len(name) - 1))
        left, letter, right = name[:at], name[at], name[at + 1 :]
        slips = [left + right, left + 2 * letter + right, left + right[:1] + letter + right[1:]]
        name = draw(st.sampled_from([*slips, left + draw(st.sampled_from("AEIOSTX_")) + right]))
    return name


def told(error: Exception) -> str:
    return f"{error} {error!r} {vars(error)}"


def tells(said: str) -> list[str]:
    return [piece for piece in PIECES if piece in said]


@given(variable=mistyped(), text=st.one_of(secrets, addresses))
@settings(max_examples=150)
def test_no_variable_or_setting_shows_a_secret_in_any_spelling(variable: str, text: str) -> None:
    key = variable.removeprefix("DITHER_").lower().replace("_", ".")
    for environ, flags in (({variable: text}, {}), ({}, {key: text})):
        try:
            said = json.dumps([*in_force(load_settings(flags=flags, environ=environ))])
        except DitherError as error:
            said = told(error)
        assert not tells(said), (environ, flags)


def test_no_file_and_no_assignment_shows_a_secret_whatever_its_shape(tmp_path: Path) -> None:
    address = '"http://app:hunterone@db"'
    shapes = ('"hunterone"', '["hunterone"]', '{ a = "hunterone" }', "[4711]", "4711", address)
    access = ("tokens", "token", "tokens.ci", "tokens.ci.x", "token.ci", "anonymous")
    holders = [f"access.{name}" for name in access]
    holders += ["redis.url", "schemas.password", "schemas.token", "schemas.url"]
    given = [(key, shape) for key in holders for shape in shapes]
    given += [("otlp.interval", address), ("serve.cors_origins", f"[{address}]")]
    file = tmp_path / "dither.toml"
    for key, shape in given:
        section, _, name = key.partition(".")
        file.write_text(f"[{section}]\n{name} = {shape}\n")
        try:
            said = json.dumps([*in_force(load_settings(str(file), environ={}))])
        except DitherError as error:
            said = told(error)
        assert not tells(said), (key, shape)
        assert "4711" not in said, (key, shape)
    for document in ('[access.tokens]\n{} = "ci"', '[access]\n{} = "ci"', "[{}]\na = 1", "{} = 1"):
        for key in ("hunterone", '"hunterone"', '"redis://:hunterone@db"', '"sha256:hunterone"'):
            file.write_text(document.format(key))
            with pytest.raises(DitherError) as refused:
                load_settings(str(file), environ={})
            assert not tells(told(refused.value)), (document, key)
    for document in ("[access.tokens.{0}]\n[access.tokens.{0}]", "a = {{ {0} = 1, {0} = 2 }}"):
        file.write_text(document.format("hunterone"))
        with pytest.raises(DitherError) as refused:
            load_settings(str(file), environ={})
        assert not tells(told(refused.value)), document
    file.write_text("late: country; hunterone")
    for name in ("CONFIG", "SERVE_SLICES_FILE"):
        value = str(file) if name.endswith("FILE") else "https://app:hunterone@host/dither.toml"
        with pytest.raises(DitherError) as refused:
            load_settings(environ={f"DITHER_{name}": value})
        assert not tells(told(refused.value)), name
    for assignment in (
        *("redis.url=redis://:hunterone@db", "redis.ulr=redis://:hunterone@db"),
        *("redis://:hunterone@db=redis.url", "redis.url:redis://:hunterone@db?db=1"),
        *("access.tokens.hunterone=ci", "access.hunterone=ci", "hunterone=access.tokens.ci"),
        *("kafka.sasl.password:hunterone=1", "redis.hunterone=url", "metrics.hunterone=1"),
    ):
        found = CliRunner().invoke(cli, ["metrics", "--set", assignment])
        assert isinstance(found.exception, DitherError), assignment
        assert not tells(told(found.exception)), assignment
    found = CliRunner().invoke(cli, ["metrics", "--set", "access.tokens.ci:hunterone"])
    assert found.exit_code == 2
    assert "KEY=VALUE" in found.output
    assert not tells(found.output)


@given(text=addresses)
@example(text="redis://app:hunterone@hunterone?@127.0.0.1:1/0")
@settings(max_examples=100)
def test_no_address_of_redis_shows_a_secret_when_it_is_used(text: str) -> None:
    with patch.object(connection, "COMMAND_RETRIES", 0), pytest.raises(DitherError) as refused:
        connect(text)
    assert not tells(told(refused.value)), text


def test_what_is_no_secret_is_shown(tmp_path: Path) -> None:
    plain = {
        "DITHER_REDIS_URL": "rediss+sentinel://one:26379,two:26379/main/0?ssl_ca_certs=/ca.pem",
        "DITHER_KAFKA_BOOTSTRAP_SERVERS": "kafka1:9092,kafka2:9092",
        "DITHER_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "DITHER_KAFKA_SSL_CA_LOCATION": "/etc/ca.pem",
        "DITHER_SERVE_CORS_ORIGINS": "https://app.example",
        "DITHER_SERVE_HOSTS": "dither.example",
    }
    found = {source: value for _, value, source in in_force(load_settings(environ=plain))}
    shown = {name: " ".join(v) if isinstance(v, list) else v for name, v in found.items()}
    assert {name: shown[name] for name in plain} == plain
    for servers in (
        "one two:9092",
        "http://one:9092",
        "one:99999",
        "one:0",
        "one\uff1a9092",
        "${ONE}:9092",
    ):
        with pytest.raises(DitherError, match=f"'{re.escape(servers)}': expected HOST:PORT"):
            load_settings(flags={"kafka.bootstrap.servers": servers}, environ={})
    missing = str(tmp_path / "missing")
    with pytest.raises(DitherError, match=missing):
        load_settings(environ={"DITHER_REDIS_URL_FILE": missing})
