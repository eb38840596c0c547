"""Masks secrets wherever settings are shown; the value of a mistyped name may be a secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

SECRET_NAME = re.compile(
    r"password|passphrase|secret|\.key$|key\.pem|sasl\.oauthbearer|jaas", re.IGNORECASE
)
"""Names of librdkafka's properties whose values are secrets."""

HARMLESS_PROPERTIES = frozenset(
    Path(__file__).with_name("harmless_properties.txt").read_text(encoding="ascii").split()
)
"""Properties of librdkafka whose values are no secrets."""

REGISTRY_SECRETS = frozenset({"schemas.password", "schemas.token"})
REGISTRY_URL = re.compile(r"(https?://[^/?#@\s]+(/[^?#@\s]*)?)?")
HIDDEN = "***"
ADDRESS_SETTINGS = ("redis.url", "schemas.url")
KAFKA_ADDRESSES = ("kafka.bootstrap.servers", "kafka.metadata.broker.list")
HASHED_TOKEN = re.compile(r"sha256:[0-9a-f]{64}(?: (?:read|report|relay|admin))+")
"""The stored form of an access token, with its scopes."""
TOKEN_OR_SCOPES = re.compile(rf"{HASHED_TOKEN.pattern}|(?:read|report|relay|admin|[ ,])*")

HOST_PORT = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
USER_INFO = r"(?P<userinfo>[^/?#]*@)?"
"""The part of a URL up to the last @; in a password with / ? or # it is ambiguous."""
REDIS_URL = re.compile(
    rf"(?P<scheme>(?:rediss?|unix)(?:\+sentinel)?://){USER_INFO}"
    rf"(?P<places>(?:{HOST_PORT}(?:,{HOST_PORT})*)?)"
    r"(?P<path>(?:/[A-Za-z0-9._-]*)*)(?P<query>\?[^@]*)?"
)
DATABASE_PATH = re.compile(r"/?-?\d{0,20}")
KAFKA_SERVERS = re.compile(
    rf"(?P<scheme>(?:[A-Za-z_]+://)?){USER_INFO}(?P<places>{HOST_PORT}(?:, ?{HOST_PORT})*)"
    r"(?P<path>)(?P<query>)"
)
USER_AND_PASSWORD = re.compile(r"([A-Za-z0-9._-]*):.+@", re.DOTALL)
PLAIN_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{HOST_PORT}/?")
SECRET_PARAMETERS = frozenset({"password", "ssl_password", "sentinel_password"})
_OPEN_PARAMETERS = """
client_name sentinel_username ssl_ca_certs ssl_ca_path ssl_cert_reqs ssl_certfile
ssl_check_hostname ssl_keyfile ssl_min_version username
"""
OPEN_PARAMETERS = frozenset(_OPEN_PARAMETERS.split())
"""Parameters of a Redis URL that are no secrets."""
_NUMBER_PARAMETERS = """
db health_check_interval max_connections protocol socket_connect_timeout socket_timeout timeout
"""
NUMBER_PARAMETERS = frozenset(_NUMBER_PARAMETERS.split())
"""Parameters that are no secrets if they are numbers."""


def masked(key: str, value: Any) -> Any:
    """Return a setting's value with secrets hidden: passwords in URLs, or the whole value.

    The value is hidden, too, if it may be a secret. The hash of an access token is no secret.

    Examples
    --------
    >>> masked("redis.url", "redis://app:hunter2@db:6379/0"), masked("kafka.sasl.password", "x")
    ('redis://app:***@db:6379/0', '***')
    >>> masked("redis.url", "rediss://db/0?ssl_ca_certs=/ca.pem&ssl_p%61ssword=hunter2")
    'rediss://db/0?ssl_ca_certs=/ca.pem&ssl_password=***'
    >>> masked("redis.url", "redis:/app:hunter2@db"), masked("kafka.sasl.passwrod", "hunter2")
    ('***', '***')
    >>> masked("redis.url", "redis://hunter2@db?pasword=hunter2")
    'redis://***@db?***'
    >>> masked("redis.url", "redis://db/prod"), masked("redis.url", "redis+sentinel://db/main/prod")
    ('redis://db/***', 'redis+sentinel://db/main/***')
    >>> masked("otlp.endpoint", "user:hunter2@collector:4318")
    '***'
    """
    section, _, name = key.partition(".")
    if section == "kafka" and name not in HARMLESS_PROPERTIES:
        return HIDDEN
    if key in REGISTRY_SECRETS:
        return HIDDEN if value else value
    if isinstance(value, list):
        return [masked(key, item) for item in value]
    if section == "access":
        return value if isinstance(value, str) and TOKEN_OR_SCOPES.fullmatch(value) else HIDDEN
    if isinstance(value, dict):
        return HIDDEN
    if not isinstance(value, str):
        return HIDDEN if key in ADDRESS_SETTINGS else value
    if key == "schemas.url":
        return value if REGISTRY_URL.fullmatch(value) else HIDDEN
    if key == "redis.url":
        return value if PLAIN_ORIGIN.fullmatch(value) else _address(REDIS_URL.fullmatch(value))
    if key in KAFKA_ADDRESSES:
        return _address(KAFKA_SERVERS.fullmatch(value)) if "@" in value or "://" in value else value
    is_plain = "://" not in value and "@" not in value
    return value if is_plain or PLAIN_ORIGIN.fullmatch(value) else HIDDEN


def masked_path(path: object) -> str:
    """Return a path, hidden if it may be an address with a password.

    Examples
    --------
    >>> masked_path("conf/dither.toml"), masked_path("https://app:hunter2@host/dither.toml")
    ('conf/dither.toml', '***')
    """
    return str(masked("metrics", str(path)))


def _address(match: re.Match[str] | None) -> str:
    """Return an address with its possibly secret parts hidden; if it is malformed, hide all."""
    if match is None:
        return HIDDEN
    scheme, places, path = match["scheme"], match["places"], match["path"]
    is_path = scheme.startswith("unix")
    if bool(places) is is_path:
        return HIDDEN
    database = path.removeprefix("/").partition("/")[2] if "+" in scheme else path
    if not is_path and not DATABASE_PATH.fullmatch(database):
        path = f"{path.removesuffix(database).rstrip('/')}/{HIDDEN}"
    userinfo = match["userinfo"] or ""
    if userinfo:
        user = USER_AND_PASSWORD.fullmatch(userinfo)
        userinfo = f"{user[1]}:{HIDDEN}@" if user else f"{HIDDEN}@"
    query = match["query"] or ""
    if query:
        query = "?" + "&".join(map(_parameter, query[1:].split("&")))
    return f"{scheme}{userinfo}{places}{path}{query}"


def is_secret(key: str, value: Any) -> bool:
    """Return whether a setting's value is a secret, or an address that may contain one.

    Examples
    --------
    >>> is_secret("kafka.sasl.password", "x"), is_secret("redis.url", "redis://:x@db")
    (True, True)
    >>> is_secret("redis.url", "redis://db"), is_secret("kafka.bootstrap.servers", "a b:1")
    (False, False)
    """
    is_address = key in ADDRESS_SETTINGS or key in KAFKA_ADDRESSES
    if is_address and isinstance(value, str) and not re.search("[@=]", value):
        return False
    if key.startswith("kafka.") and key.removeprefix("kafka.") not in HARMLESS_PROPERTIES:
        return SECRET_NAME.search(key) is not None
    return bool(masked(key, value) != value)


def _parameter(pair: str) -> str:
    name, _, value = pair.partition("=")
    parameter = unquote(name)
    if parameter in SECRET_PARAMETERS:
        return f"{parameter}={HIDDEN}"
    is_number = parameter in NUMBER_PARAMETERS and value.replace(".", "").isdigit()
    return f"{parameter}={value}" if is_number or parameter in OPEN_PARAMETERS else HIDDEN
