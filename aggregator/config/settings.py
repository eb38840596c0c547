"""The settings of a deployment: ``dither.toml``, ``DITHER_*`` variables and flags.

Flags override the environment, which overrides the file, which overrides the defaults; each value
remembers where it came from, for ``--show-settings``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from aggregator.config import container
from aggregator.config.environment import FILE, PREFIX, variables
from aggregator.config.setting_checks import (
    DURATIONS,
    GROUP_PROTOCOL,
    SMALLEST,
    check,
    check_token,
    split,
)
from aggregator.config.temporary_settings import is_left_over
from aggregator.errors import DitherError, SettingsError
from aggregator.secrets import HIDDEN, KAFKA_ADDRESSES, is_secret, masked_path
from aggregator.secrets import masked as masked
from estimators import durations
from estimators.errors import nearest, readable
from producers.kafka.servers import check_servers

DEFAULT_FILE = "dither.toml"


class Topics(msgspec.Struct, forbid_unknown_fields=True):
    """Names of the Kafka topics, and how they are created where they are missing.

    `managed` says whether Dither may administer them: create those that are missing, and ask for
    the id by which a topic that was deleted and created again is recognised.
    """

    reports: str = "dither.reports"
    deadletters: str = "dither.deadletters"
    estimates: str = "dither.estimates"
    rounds: str = "dither.rounds"
    managed: bool = True
    partitions: int = 6
    replication: int = -1


class Redis(msgspec.Struct, forbid_unknown_fields=True):
    """The address of Redis, which keeps the sums."""

    url: str = "redis://localhost:6379/0"


class Serve(msgspec.Struct, forbid_unknown_fields=True):
    """The HTTP server; with a certificate and its key, in PEM files, it speaks TLS alone.

    `workers` processes share the port. Each of them also listens on a port of its own, from
    `worker_port` on, for what asks after each of them, as Prometheus does; 0: no such ports.

    `slices` are exported to Prometheus, as ``METRIC: ATTRIBUTE, ATTRIBUTE``: of each the
    `top_slices` with most reports.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    worker_port: int = 0
    tls_certificate: str = ""
    tls_key: str = ""
    top_categories: int = 20
    slices: list[str] = msgspec.field(default_factory=list)
    top_slices: int = 20
    gateway: bool = True
    hosts: list[str] = msgspec.field(default_factory=list)
    trusted_proxies: list[str] = msgspec.field(default_factory=list)
    cors_origins: list[str] = msgspec.field(default_factory=list)
    max_request_bytes: int = 1_048_576
    max_streams: int = 1_000
    max_streams_per_client: int = 50


class Access(msgspec.Struct, forbid_unknown_fields=True):
    """Access over HTTP: scopes that need no token, and tokens by name with their scopes."""

    anonymous: list[str] = msgspec.field(default_factory=lambda: ["read", "report"])
    tokens: dict[str, str] = msgspec.field(default_factory=dict)


class Gateway(msgspec.Struct, forbid_unknown_fields=True):
    """Where devices report over HTTP; sizes are in bytes.

    `rate_limit` (posts), `rate_limit_bytes` and `rate_limit_reports` are of each client.

    `trusted_without_tls` lets in true values (metrics with ``trust = "central"``) over plain HTTP.
    """

    rate_limit: str = "100/second"
    rate_limit_bytes: str = "1000000/second"
    rate_limit_reports: str = "100000/second"
    max_body: int = 240_000
    max_in_flight: int = 67_108_864
    acknowledge_timeout: str = "10s"
    trusted_without_tls: bool = False


class Aggregate(msgspec.Struct, forbid_unknown_fields=True):
    """The counting workers.

    `memory` is in bytes, of what a worker has fetched and of its open panes; where it is not set,
    it is half of the container's limit, if that is less. `skip` names what may be passed if it
    cannot be counted, as PARTITION:OFFSET. Above one of the limits `deadletter_consecutive`
    (messages in a row, over `deadletter_span` of Kafka's time at least) and `deadletter_ratio` (a
    share of the last `deadletter_window` messages) a partition halts; 0: never. A worker that is in
    one step for `stuck_after` says so, and ends after `stuck_exit`; 0s: never. `health_port`
    answers whether it works; 0: no port.
    """

    group: str = "dither"
    workers: int = 1
    commit_interval: str = "1s"
    commit_reports: int = 100_000_000
    future: str = "10m"
    past: str = "400d"
    idle: str = "30s"
    on_gap: str = "stop"
    skip: list[str] = msgspec.field(default_factory=list)
    memory: int = 2_147_483_648
    deadletter_consecutive: int = 10_000
    deadletter_span: str = "2m"
    deadletter_ratio: float = 0.0
    deadletter_window: int = 10_000
    stuck_after: str = "1m"
    stuck_exit: str = "5m"
    health_port: int = 0


class Publish(msgspec.Struct, forbid_unknown_fields=True):
    """The events on the estimates topic: published by one of the `serve` processes.

    Final events have `slices`, as ``METRIC: ATTRIBUTE, ATTRIBUTE``, and the frequent strings of
    metrics that discover them, but for those in `unsearched`. With `connect_schemas` each event has
    a schema for typed sinks of Kafka Connect.
    """

    enabled: bool = True
    interval: str = "10s"
    lease: str = "10s"
    since: str = ""
    top_categories: int = 1_000
    slices: list[str] = msgspec.field(default_factory=list)
    unsearched: list[str] = msgspec.field(default_factory=list)
    connect_schemas: bool = False


class Schemas(msgspec.Struct, forbid_unknown_fields=True):
    """The schema registry, for `dither schemas`, and frames for it.

    `url` is that of the registry's Confluent-compatible API. Access is by `user` and `password`,
    or by `token`; `ca` is a PEM file with the authority of its certificate. `naming` says what
    subjects are called: after the ``topic``, the ``record``, or both (``topic_record``). With
    `schema_id` the gateway, `dither produce` and heartbeats frame their batches; 0: they do not.
    """

    url: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    ca: str = ""
    naming: str = "topic"
    schema_id: int = 0


class Coordinate(msgspec.Struct, forbid_unknown_fields=True):
    """Opening and deciding the rounds of minimum and maximum: one `dither coordinate` at a time.

    `health_port` answers whether it works; 0: no port.
    """

    lease: str = "10s"
    health_port: int = 0


class Otlp(msgspec.Struct, forbid_unknown_fields=True):
    """Where `dither serve` sends its metrics by OTLP over HTTP; nowhere without an `endpoint`.

    The endpoint is a collector's address without the path of a signal. With `traces`, spans go
    there, too: of each request, commit of a worker, publish, and round of a coordinator.
    """

    endpoint: str = ""
    interval: str = "30s"
    traces: bool = False


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """Everything that is configurable, with its defaults."""

    metrics: str = "metrics.toml"
    kafka: dict[str, str | int | float | bool] = msgspec.field(
        default_factory=lambda: {"bootstrap.servers": "localhost:9092"}
    )
    topics: Topics = msgspec.field(default_factory=Topics)
    redis: Redis = msgspec.field(default_factory=Redis)
    serve: Serve = msgspec.field(default_factory=Serve)
    aggregate: Aggregate = msgspec.field(default_factory=Aggregate)
    publish: Publish = msgspec.field(default_factory=Publish)
    coordinate: Coordinate = msgspec.field(default_factory=Coordinate)
    access: Access = msgspec.field(default_factory=Access)
    gateway: Gateway = msgspec.field(default_factory=Gateway)
    otlp: Otlp = msgspec.field(default_factory=Otlp)
    schemas: Schemas = msgspec.field(default_factory=Schemas)
    sources: dict[str, str] = msgspec.field(default_factory=dict)


SECTIONS: dict[str, type[msgspec.Struct]] = {
    name: kind
    for name, kind in get_type_hints(Settings).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
KAFKA_NAME = re.compile("[a-z0-9._-]*")
PLAIN = re.compile("[a-z._-]{1,40}")
"""A key that may be a mistyped one; of letters alone no token is."""
CONTAINER = "half of the container's limit"


def load_settings(
    path: str | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read the settings in force.

    Parameters
    ----------
    path : str, optional
        A TOML file; by default DITHER_CONFIG, else ``dither.toml`` where there is one.
    flags : mapping of dotted key to value, optional
        From the command line; None values are passed over.
    environ : mapping, optional
        ``os.environ`` by default.

    Raises
    ------
    SettingsError
        Naming the source, the key, the value and what was expected.
    DitherError
        If the file was left by a `dither up` that was killed.
    """
    environ = os.environ if environ is None else environ
    settings = Settings()
    if path is not None:
        named, by = path, ("--config", "command line")
    else:
        named, by = environ.get("DITHER_CONFIG", ""), ("file", "DITHER_CONFIG")
    if named and not Path(named).exists():
        raise SettingsError(by[0], masked_path(named), "a file that exists", by[1])
    if is_left_over(Path(named or DEFAULT_FILE)):
        raise DitherError(
            f"{named or DEFAULT_FILE} was left by a `dither up` that was killed. Its servers have "
            "ended and their data are lost. Run `dither up` again, or delete the file"
        )
    for key, value in _file(Path(named or DEFAULT_FILE)):
        _put(settings, key, value, named or DEFAULT_FILE)
    keys = {section: list(get_type_hints(known)) for section, known in SECTIONS.items()}
    for variable, key, text in variables(environ, keys):
        _put(settings, key, text, variable)
    for key, value in (flags or {}).items():
        if value is not None:
            _refuse_visible(key, value)
            _put(settings, key, value, "command line")
    _fit_container(settings)
    return settings


def _fit_container(settings: Settings) -> None:
    """Let a worker use half of what its container may, unless somebody said how much."""
    limit = container.memory_limit()
    if "aggregate.memory" in settings.sources or limit is None:
        return
    fitting = max(SMALLEST["aggregate.memory"], limit.bytes // 2)
    if fitting < settings.aggregate.memory:
        settings.aggregate.memory = fitting
        settings.sources["aggregate.memory"] = f"{CONTAINER}, {limit.file}"


def in_force(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Yield (dotted key, value, source) for every setting, secrets masked."""
    for key, value in values(settings):
        yield key, masked(key, value), settings.sources.get(key, "default")


def values(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every setting, secrets as they are."""
    plain = msgspec.to_builtins(settings)
    del plain["sources"]
    yield from _flat(plain)


def container_share(settings: Settings, workers: int) -> int | None:
    """Return the memory of each of several workers in one container; None: what is set holds."""
    if not settings.sources.get("aggregate.memory", "").startswith(CONTAINER):
        return None
    return max(SMALLEST["aggregate.memory"], settings.aggregate.memory // workers)


def _file(file: Path) -> Iterator[tuple[str, Any]]:
    if not file.exists():
        return
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        # the message may quote a table or a key, which may be a secret that stands there
        said = re.sub(r"\('.*'\)|'.{2,}'", "a name", str(error), flags=re.DOTALL)
        raise SettingsError("TOML", said, "a file that parses as TOML", str(file)) from None
    except UnicodeDecodeError as error:
        raise SettingsError("text", str(error), "a file in UTF-8", str(file)) from None
    except OSError as error:
        raise SettingsError("file", error.strerror, "a file that can be read", str(file)) from None
    yield from _flat(document)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _refuse_visible(key: str, value: Any) -> None:
    """Refuse a secret on the command line, which every user of the machine can see."""
    if is_secret(key, value) and not key.startswith("access."):  # hashes are kept of tokens
        shown = _shown(key)
        variable = f"{PREFIX}{shown}".upper().replace(".", "_")
        raise SettingsError(
            shown,
            masked(key, value),
            f"a secret in dither.toml, in {variable}, or in a file that {variable}{FILE} names: "
            "everyone who lists this machine's processes sees a command line",
            "command line",
        )


def _put(settings: Settings, key: str, value: Any, source: str) -> None:
    try:
        _assign(settings, key, value)
    except ValueError as error:
        expected = readable(error) if isinstance(error, msgspec.ValidationError) else str(error)
        shown = masked(key, value) if _is_known(key) and not source.endswith(FILE) else HIDDEN
        if shown != value:
            items = [value, *split(key, value)] if isinstance(value, str) else [value]
            for text in value if isinstance(value, list) else items:
                expected = expected.replace(repr(text), HIDDEN)
        raise SettingsError(_shown(key, value), shown, expected, source) from None
    settings.sources[key] = source


def _shown(key: str, value: Any = None) -> str:
    """Return a key without what may be a secret: who swaps the two sides of = has it there."""
    section, _, name = key.partition(".")
    if key.startswith("access.tokens."):
        return key if str(value).startswith("sha256:") else f"access.tokens.{HIDDEN}"
    if _is_known(key) and KAFKA_NAME.fullmatch(name):
        return key
    known = ["metrics", "kafka", *SECTIONS]
    if section not in known:
        return key if PLAIN.fullmatch(key) and get_close_matches(section, known) else HIDDEN
    names = [*get_type_hints(SECTIONS[section])] if section in SECTIONS else []
    is_meant = not name or (PLAIN.fullmatch(name) and get_close_matches(name, names))
    return key if is_meant else f"{section}.{HIDDEN}"


def _is_known(key: str) -> bool:
    """Return whether there is such a setting; what stands at any other may be a secret."""
    section, _, name = key.partition(".")
    if section in SECTIONS:
        return name in get_type_hints(SECTIONS[section]) or key.startswith("access.tokens.")
    return key == "metrics" or (section == "kafka" and bool(name))


def _assign(settings: Settings, key: str, value: Any) -> None:
    """Set a value; a ValueError says what was expected instead."""
    section, _, name = key.partition(".")
    if section == "metrics":
        if name:
            raise ValueError("one value for metrics: the file with the definitions")
        settings.metrics = msgspec.convert(value, str)
    elif section not in ("kafka", *SECTIONS):
        raise ValueError(f"a known section: {nearest(section, ['metrics', 'kafka', *SECTIONS])}")
    elif not name:
        raise ValueError(f"a table [{section}]")
    elif section == "kafka" and not KAFKA_NAME.fullmatch(name):
        raise ValueError("a property of librdkafka, such as sasl.username")
    elif section == "kafka":
        if key in KAFKA_ADDRESSES:
            if "@" in str(value):
                raise ValueError(
                    "only hosts and ports; user and password belong in sasl.username and "
                    "sasl.password"
                )
            check_servers({name: value})
        settings.kafka[name] = msgspec.convert(value, str | int | float | bool)
        if key == GROUP_PROTOCOL:
            check(key, value)
    elif key == "access.tokens":
        raise ValueError(
            "a table [access.tokens] with NAME = ..., as `dither tokens new` prints it"
        )
    elif key.startswith("access.tokens."):
        settings.access.tokens[key.removeprefix("access.tokens.")] = check_token(value)
    else:
        types = get_type_hints(SECTIONS[section])
        if name not in types:
            raise ValueError(f"a known key of [{section}]: {nearest(name, types)}")
        if types[name] == list[str] and isinstance(value, str):
            value = split(key, value)
        if key in DURATIONS and not isinstance(value, str):
            raise ValueError(durations.EXPECTED_DURATION)
        converted = msgspec.convert(value, types[name], strict=False)
        check(key, converted)
        setattr(getattr(settings, section), name, converted)
