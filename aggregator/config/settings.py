"""The settings by section: from flags, then ``DITHER_*`` variables, then ``dither.toml``."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from aggregator.config import container_memory
from aggregator.config import setting_checks as checked
from aggregator.config.environment import FILE_SUFFIX, VARIABLE_PREFIX, variables
from aggregator.config.setting_checks import MIN_MEMORY, SUBJECT_NAMINGS, check_token, split
from aggregator.config.temporary_settings import is_abandoned
from aggregator.errors import DitherError, SettingsError
from aggregator.secrets import HIDDEN, KAFKA_ADDRESSES, is_secret, masked, masked_path
from estimators import durations
from estimators.errors import nearest, readable
from producers.kafka.broker_addresses import check_servers

DEFAULT_FILE = "dither.toml"


class Topics(msgspec.Struct, forbid_unknown_fields=True):
    """The names of the Kafka topics, and how missing topics are created.

    If they are `managed`, Dither creates missing topics, and reads the ids of topics, by which it
    notices that a topic was deleted and created again.
    """

    reports: str = "dither.reports"
    deadletters: str = "dither.deadletters"
    estimates: str = "dither.estimates"
    rounds: str = "dither.rounds"
    managed: bool = True
    partitions: checked.Count = 6
    replication: checked.Replication = -1


class Redis(msgspec.Struct, forbid_unknown_fields=True):
    """The address of Redis."""

    url: str = "redis://localhost:6379/0"


class Serve(msgspec.Struct, forbid_unknown_fields=True):
    """The HTTP server; with a certificate and its key, in PEM files, it uses only TLS.

    `workers` processes share the port. Each process also listens on a separate port for Prometheus,
    from `worker_port` on; with 0 there are no such ports.

    For each ``METRIC: ATTRIBUTE, ATTRIBUTE`` in `slices`, the `top_slices` slices with most reports
    are exported to Prometheus.
    """

    host: str = "127.0.0.1"
    port: checked.Port = 8080
    workers: checked.Count = 1
    worker_port: checked.Port = 0
    tls_certificate: str = ""
    tls_key: str = ""
    top_categories: checked.Count = 20
    slices: checked.Groupings = msgspec.field(default_factory=list)
    top_slices: checked.Count = 20
    gateway: bool = True
    hosts: checked.Hosts = msgspec.field(default_factory=list)
    trusted_proxies: checked.Proxies = msgspec.field(default_factory=list)
    cors_origins: checked.Origins = msgspec.field(default_factory=list)
    max_request_bytes: checked.Count = 1_048_576
    max_streams: checked.Count = 1_000
    max_streams_per_client: checked.Count = 50


class Access(msgspec.Struct, forbid_unknown_fields=True):
    """Access over HTTP: scopes that need no token, and tokens by name with their scopes."""

    anonymous: checked.Scopes = msgspec.field(default_factory=lambda: ["read", "report"])
    tokens: dict[str, str] = msgspec.field(default_factory=dict)


class GatewaySettings(msgspec.Struct, forbid_unknown_fields=True):
    """The gateway of devices; sizes are in bytes.

    `rate_limit` (posts), `rate_limit_bytes` and `rate_limit_reports` apply to each client.
    `trusted_without_tls` admits true values (``trust = "central"``) over plain HTTP. `crowd_keys`
    is a file with private keys, one on each line, which open the reports that a relay posts.
    """

    rate_limit: checked.Rate = "100/second"
    rate_limit_bytes: checked.Rate = "1000000/second"
    rate_limit_reports: checked.Rate = "100000/second"
    max_body: checked.Count = 240_000
    max_in_flight: checked.Count = 67_108_864
    acknowledge_timeout: checked.Duration = "10s"
    trusted_without_tls: bool = False
    crowd_keys: str = ""


class Aggregate(msgspec.Struct, forbid_unknown_fields=True):
    """The counting workers.

    `memory` in bytes is for fetched messages and open panes; by default at most half of the
    container's limit. `skip` lists messages, PARTITION:OFFSET, that may be skipped if they cannot
    be counted. A partition halts if `deadletter_consecutive` messages in a row are refused, over at
    least `deadletter_span` of Kafka's time, or if more than the share `deadletter_ratio` of the
    last `deadletter_window` messages is refused; a number or share of 0 means never. A worker that
    is in one step for `stuck_after` logs this, and ends after `stuck_exit`; 0s means never.
    `health_port` 0 means no port.
    """

    group: str = "dither"
    workers: checked.Count = 1
    commit_interval: checked.Duration = "1s"
    commit_reports: checked.Count = 100_000_000
    future: checked.Duration = "10m"
    past: checked.Duration = "400d"
    idle: checked.Duration = "30s"
    on_gap: Annotated[str, checked.one_of("stop", "skip")] = "stop"
    skip: checked.SkippedMessages = msgspec.field(default_factory=list)
    memory: Annotated[int, checked.at_least(MIN_MEMORY)] = 2_147_483_648
    deadletter_consecutive: Annotated[int, checked.at_least(0)] = 10_000
    deadletter_span: checked.Duration = "2m"
    deadletter_ratio: checked.Share = 0.0
    deadletter_window: checked.Count = 10_000
    stuck_after: checked.Duration = "1m"
    stuck_exit: checked.Duration = "5m"
    health_port: checked.Port = 0


class Publish(msgspec.Struct, forbid_unknown_fields=True):
    """The events on the estimates topic, which one of the `serve` processes publishes.

    Final events contain the slices for each ``METRIC: ATTRIBUTE, ATTRIBUTE`` in `slices`, and the
    discovered strings, except those of metrics in `unsearched`. `connect_schemas` adds a schema for
    typed sinks of Kafka Connect.
    """

    enabled: bool = True
    interval: checked.Interval = "10s"
    lease: checked.LeaseDuration = "10s"
    since: checked.Time = ""
    top_categories: checked.Count = 1_000
    slices: checked.Groupings = msgspec.field(default_factory=list)
    unsearched: list[str] = msgspec.field(default_factory=list)
    connect_schemas: bool = False


class Schemas(msgspec.Struct, forbid_unknown_fields=True):
    """The schema registry for `dither schemas`, and whether batches have its frames.

    `url` is the address of the registry's Confluent-compatible API. `user` and `password`, or
    `token`, give access to it; `ca` is a PEM file with the authority that signed its certificate.
    `naming` says after what subjects are named: ``topic``, ``record``, or both (``topic_record``).
    If `schema_id` is not 0, the gateway, `dither produce` and heartbeats frame their batches with
    it.
    """

    url: checked.RegistryUrl = ""
    user: str = ""
    password: str = ""
    token: str = ""
    ca: str = ""
    naming: Annotated[str, checked.one_of(*SUBJECT_NAMINGS)] = "topic"
    schema_id: checked.SchemaId = 0


class Coordinate(msgspec.Struct, forbid_unknown_fields=True):
    """The coordinator of the rounds of minimum and maximum; `health_port` 0 means no port."""

    lease: checked.LeaseDuration = "10s"
    health_port: checked.Port = 0


class Otlp(msgspec.Struct, forbid_unknown_fields=True):
    """The collector to which `dither serve` sends metrics by OTLP; none if `endpoint` is empty.

    `endpoint` is the collector's address without the path of a signal. With `traces` the collector
    also gets spans of requests, commits, publishing and rounds.
    """

    endpoint: checked.Endpoint = ""
    interval: checked.Interval = "30s"
    traces: bool = False


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """All settings, with their defaults."""

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
    gateway: GatewaySettings = msgspec.field(default_factory=GatewaySettings)
    otlp: Otlp = msgspec.field(default_factory=Otlp)
    schemas: Schemas = msgspec.field(default_factory=Schemas)
    sources: dict[str, str] = msgspec.field(default_factory=dict)


SECTION_TYPES: dict[str, type[msgspec.Struct]] = {
    name: kind
    for name, kind in get_type_hints(Settings).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
KAFKA_NAME = re.compile("[a-z0-9._-]*")
GROUP_PROTOCOL = "kafka.group.protocol"
PLAIN_KEY = re.compile("[a-z._-]{1,40}")
"""A key that may be a typing error; a token would have other characters, too."""
CONTAINER_SOURCE = "half of the container's limit"


def load_settings(
    path: str | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings in force.

    Parameters
    ----------
    path : str, optional
        A TOML file; by default DITHER_CONFIG, else ``dither.toml`` if it exists.
    flags : mapping of dotted key to value, optional
        Settings from the command line; None values are ignored.
    environ : mapping, optional
        The environment variables; by default ``os.environ``.

    Raises
    ------
    SettingsError
        If the named file does not exist, or a value is invalid.
    DitherError
        If the file was left by a killed `dither up`.
    """
    environ = os.environ if environ is None else environ
    settings = Settings()
    if path is not None:
        config_path, by = path, ("--config", "command line")
    else:
        config_path, by = environ.get("DITHER_CONFIG", ""), ("file", "DITHER_CONFIG")
    if config_path and not Path(config_path).exists():
        raise SettingsError(by[0], masked_path(config_path), "a file that exists", by[1])
    if is_abandoned(Path(config_path or DEFAULT_FILE)):
        raise DitherError(
            f"{config_path or DEFAULT_FILE} was left by a `dither up` that was killed. Its servers "
            "have ended, and only --folder keeps data. Run `dither up` again, or delete the file"
        )
    for key, value in _read_file(Path(config_path or DEFAULT_FILE)):
        _set(settings, key, value, config_path or DEFAULT_FILE)
    keys = {name: list(get_type_hints(kind)) for name, kind in SECTION_TYPES.items()}
    for variable, key, text in variables(environ, keys):
        _set(settings, key, text, variable)
    for key, value in (flags or {}).items():
        if value is not None:
            _refuse_visible(key, value)
            _set(settings, key, value, "command line")
    _fit_container(settings)
    return settings


def _fit_container(settings: Settings) -> None:
    """Limit a worker's memory to half of its container's limit, unless the setting is given."""
    limit = container_memory.memory_limit()
    if "aggregate.memory" in settings.sources or limit is None:
        return
    fitting = max(MIN_MEMORY, limit.bytes // 2)
    if fitting < settings.aggregate.memory:
        settings.aggregate.memory = fitting
        settings.sources["aggregate.memory"] = f"{CONTAINER_SOURCE}, {limit.file}"


def in_force(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Yield (dotted key, value, source) for every setting; secrets are masked."""
    for key, value in values(settings):
        yield key, masked(key, value), settings.sources.get(key, "default")


def values(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every setting; secrets are not masked."""
    plain = msgspec.to_builtins(settings)
    del plain["sources"]
    yield from _flatten(plain)


def container_share(settings: Settings, workers: int) -> int | None:
    """Return each worker's memory in bytes; None if no container's limit determines it."""
    if not settings.sources.get("aggregate.memory", "").startswith(CONTAINER_SOURCE):
        return None
    return max(MIN_MEMORY, settings.aggregate.memory // workers)


def _read_file(file: Path) -> Iterator[tuple[str, Any]]:
    if not file.exists():
        return
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        # the message may quote a table or a key, which may be a misplaced secret
        syntax_error = re.sub(r"\('.*'\)|'.{2,}'", "a name", str(error), flags=re.DOTALL)
        raise SettingsError("TOML", syntax_error, "a file that parses as TOML", str(file)) from None
    except UnicodeDecodeError as error:
        raise SettingsError("text", str(error), "a file in UTF-8", str(file)) from None
    except OSError as error:
        raise SettingsError("file", error.strerror, "a file that can be read", str(file)) from None
    yield from _flatten(document)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _refuse_visible(key: str, value: Any) -> None:
    """Raise SettingsError for a secret on the command line, which every local user can see."""
    if is_secret(key, value) and not key.startswith("access."):  # tokens are hashed
        shown = _masked_key(key)
        variable = f"{VARIABLE_PREFIX}{shown}".upper().replace(".", "_")
        raise SettingsError(
            shown,
            masked(key, value),
            f"a secret in dither.toml, in {variable}, or in a file that {variable}{FILE_SUFFIX} "
            "names: everyone who lists this machine's processes sees a command line",
            "command line",
        )


def _set(settings: Settings, key: str, value: Any, source: str) -> None:
    try:
        _assign(settings, key, value)
    except ValueError as error:
        expected = readable(error) if isinstance(error, msgspec.ValidationError) else str(error)
        is_shown = _is_known(key) and not source.endswith(FILE_SUFFIX)
        shown = masked(key, value) if is_shown else HIDDEN
        if shown != value:
            items = [value, *split(key, value)] if isinstance(value, str) else [value]
            for text in value if isinstance(value, list) else items:
                expected = expected.replace(repr(text), HIDDEN)
        raise SettingsError(_masked_key(key, value), shown, expected, source) from None
    settings.sources[key] = source


def _masked_key(key: str, value: Any = None) -> str:
    """Return a key; mask the part that may be a secret because key and value were swapped."""
    section, _, name = key.partition(".")
    if key.startswith("access.tokens."):
        return key if str(value).startswith("sha256:") else f"access.tokens.{HIDDEN}"
    if _is_known(key) and KAFKA_NAME.fullmatch(name):
        return key
    sections = ["metrics", "kafka", *SECTION_TYPES]
    if section not in sections:
        return key if PLAIN_KEY.fullmatch(key) and get_close_matches(section, sections) else HIDDEN
    names = [*get_type_hints(SECTION_TYPES[section])] if section in SECTION_TYPES else []
    is_meant = not name or (PLAIN_KEY.fullmatch(name) and get_close_matches(name, names))
    return key if is_meant else f"{section}.{HIDDEN}"


def _is_known(key: str) -> bool:
    """Return whether a setting of this key exists; other keys may contain a secret."""
    section, _, name = key.partition(".")
    if section in SECTION_TYPES:
        return name in get_type_hints(SECTION_TYPES[section]) or key.startswith("access.tokens.")
    return key == "metrics" or (section == "kafka" and bool(name))


def _assign(settings: Settings, key: str, value: Any) -> None:
    """Set a value; raise ValueError, with what was expected, if it is invalid."""
    section, _, name = key.partition(".")
    if section == "metrics":
        if name:
            raise ValueError("one value for metrics: the file with the definitions")
        settings.metrics = msgspec.convert(value, str)
    elif section not in ("kafka", *SECTION_TYPES):
        sections = ["metrics", "kafka", *SECTION_TYPES]
        raise ValueError(f"a known section: {nearest(section, sections)}")
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
        if key == GROUP_PROTOCOL and value != "classic":
            raise ValueError(
                "classic: workers set session.timeout.ms and partition.assignment.strategy, which "
                "other protocols leave to the brokers"
            )
    elif key == "access.tokens":
        raise ValueError(
            "a table [access.tokens] with NAME = ..., as `dither tokens new` prints it"
        )
    elif key.startswith("access.tokens."):
        settings.access.tokens[key.removeprefix("access.tokens.")] = check_token(value)
    else:
        types = get_type_hints(SECTION_TYPES[section], include_extras=True)
        if name not in types:
            raise ValueError(f"a known key of [{section}]: {nearest(name, types)}")
        is_checked = get_origin(types[name]) is Annotated
        plain_type, *checks = get_args(types[name]) if is_checked else [types[name]]
        if plain_type == list[str] and isinstance(value, str):
            value = split(key, value)
        if any(isinstance(c, checked.Lasting) for c in checks) and not isinstance(value, str):
            raise ValueError(durations.EXPECTED_DURATION)
        converted = msgspec.convert(value, plain_type, strict=False)
        for check in checks:
            check(converted)
        setattr(getattr(settings, section), name, converted)
