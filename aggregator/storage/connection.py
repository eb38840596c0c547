"""Connects to Redis by URLs: one server, a Redis Cluster, or the master that Sentinels name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode
from redis.connection import parse_url
from redis.exceptions import RedisClusterException
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from aggregator.errors import SettingsError, StoreUnreachable
from aggregator.secrets import NUMBER_PARAMETERS, OPEN_PARAMETERS, SECRET_PARAMETERS, masked
from aggregator.storage.commands import ClusterClient, Packer
from aggregator.storage.failures import (
    REDIS_UNREACHABLE,
    WITH_TLS,
    WITHOUT_TLS,
    classify,
    explain_redis_error,
)
from producers.delivery.server_probe import (
    CLOSING_SERVER,
    REDIS_SENTINEL,
    REDIS_SERVER,
    ServerKind,
    identify_server,
)

SENTINEL_SUFFIX = "+sentinel"
COMMAND_RETRIES = 2
"""How often a command is tried again after a lost connection; with the retries of connecting this
takes 2.4 s at most.
"""
CLIENT_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": 5,
    "socket_timeout": 20,  # a server that hangs is unreachable
    "health_check_interval": 30,
    "command_packer": Packer(),
    "driver_info": None,  # to find out the client's version takes 1 MB
}
FIRST_CALL_TIMEOUTS = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), 1.5)
SENTINEL_PORT = 26_379
KNOWN_PARAMETERS = NUMBER_PARAMETERS | OPEN_PARAMETERS | SECRET_PARAMETERS | {"retry_on_timeout"}
HOST_AND_PORT = re.compile(r"(\[[^\[\]]+\]|[^\[\]: ]*)(:[1-9]\d*)?")
"""A host with an optional port."""
URL_FORMS = (
    "redis:// or rediss:// (TLS), then USER:PASSWORD@HOST:PORT/0 with the number of a database, "
    "special characters percent-encoded (no #), and redis-py's parameters (ssl_ca_certs=..., with "
    "rediss:// only); or unix:///PATH; or, for Sentinels, redis+sentinel:// or rediss+sentinel://, "
    "then HOST:PORT,HOST:PORT/NAME/0"
)


REDIS_ANSWERS = (redis.ResponseError, redis.AuthenticationError)  # their messages are Redis's


class Sentinels(Sentinel):
    """A client of Sentinels; if none answers, the error says why."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return a master's address; next time, ask the Sentinel that answered first."""
        sentinels: list[Any] = self.sentinels
        failures: list[Exception] = []
        for sentinel in sentinels:
            try:
                master = sentinel.sentinel_masters().get(service_name)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                failures.append(error)
                continue
            if master and self.check_master_state(master, service_name):  # type: ignore[no-untyped-call]
                self.sentinels = [sentinel, *(peer for peer in sentinels if peer is not sentinel)]
                return master["ip"], master["port"]
        if len(failures) == len(sentinels):
            raise min(failures, key=lambda failure: classify(failure) is REDIS_UNREACHABLE)
        raise MasterNotFoundError(
            f"no Sentinel that answers knows a running master {service_name!r}"
        )


def connect(url: str) -> redis.Redis:
    """Return a client for a Redis URL.

    Parameters
    ----------
    url : str
        ``redis://``, ``rediss://`` (TLS) or ``unix://``. The server says whether it belongs to a
        Redis Cluster. ``redis://one:6379,two:6379`` names several nodes of a cluster; the first
        that answers names the others. ``redis+sentinel://one:26379,two:26379/NAME/0`` (or
        ``rediss+sentinel://``) gets the master NAME from Sentinels.

    Raises
    ------
    StoreUnreachable
        If no server answers at the URL, or if the server that answers is not Redis.
    SettingsError
        If the URL is invalid.
    """
    url = url.strip()
    failure: Exception = ValueError("no address")
    try:
        parts, host_urls = _split_url(url)
        if parts.scheme.endswith(SENTINEL_SUFFIX):
            return _connect_by_sentinel(parts, host_urls)
        for host_url in host_urls:
            try:
                return _connect_to_server(host_url, host_urls)
            except redis.ConnectionError as error:
                failure = error
    except (_UnreadableError, TypeError) as error:  # the client's may have a part of the password
        is_ours = isinstance(error, _UnreadableError)
        reason = f"{error if is_ours else 'rediss:// for parameters of TLS'}; that is, "
        shown = masked("redis.url", url)
        raise SettingsError("redis.url", shown, reason + URL_FORMS, "redis") from None
    except (redis.RedisError, RedisClusterException, ValueError, OSError) as error:
        failure = error
    shown = str(masked("redis.url", url))
    raise StoreUnreachable(_explain_failure(shown, failure)) from None


def _explain_failure(url: str, failure: Exception) -> str:
    """Return why there is no connection, and what to do."""
    yours = "--redis, DITHER_REDIS_URL or [redis] url in dither.toml"
    if classify(failure) is REDIS_UNREACHABLE:
        return (
            f"no Redis answers at {url} ({failure}): start one (`redis-server --appendonly yes`), "
            f"or name yours with {yours}"
        )
    if isinstance(failure, ValueError):
        return f"{url}: {failure}; it comes from {yours}"
    return f"{url}: {explain_redis_error(failure)}"


class _UnreadableError(Exception):
    """An invalid URL; the message says what was expected, without a part of the URL."""


ADDRESS_FORM = "HOST:PORT after ://, an IPv6 address in brackets, and a port from 1 to 65535"


def _split_url(url: str) -> tuple[SplitResult, list[str]]:
    """Return a URL's parts, and for each of its hosts a URL that the client can parse."""
    try:
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        if "@" in parts.path + parts.query or "#" in url:  # the password is ambiguous
            raise _UnreadableError("a password with %2F for /, %3F for ? and %23 for #")
        if parts.scheme.removesuffix(SENTINEL_SUFFIX) not in ("redis", "rediss", "unix"):
            raise _UnreadableError("redis:// or another scheme of Redis")
        has_slashes = url.partition(":")[2].startswith("//")
        if parts.scheme == "unix" and (hosts or not has_slashes or not parts.path.strip("/")):
            raise _UnreadableError("three slashes and a path, as in unix:///run/redis.sock")
        if not has_slashes:
            raise _UnreadableError("two slashes after the scheme, as in redis://HOST:PORT/0")
        query_names = [unquote(pair.partition("=")[0]) for pair in parts.query.split("&") if pair]
        if not KNOWN_PARAMETERS.issuperset(query_names) or len({*query_names}) < len(query_names):
            raise _UnreadableError("parameters of redis-py after the ?, each once")
        host_urls = [_host_url(parts, user, host) for host in hosts.split(",")] if hosts else [url]
        for host_url in host_urls:
            protocol = parse_url(host_url).get("protocol", 3)  # type: ignore[no-untyped-call]
            host_and_port = urlsplit(host_url).netloc.rpartition("@")[2]
            if protocol not in (2, 3):
                raise _UnreadableError("protocol=2 or protocol=3")
            if not HOST_AND_PORT.fullmatch(host_and_port):
                raise _UnreadableError(ADDRESS_FORM)  # the client would use its default port
        path = parts.path.strip("/")
        if parts.scheme in ("redis", "rediss") and not hosts and path and not path.isdecimal():
            raise _UnreadableError("unix:// before the path of a socket")
        if parts.scheme.endswith(SENTINEL_SUFFIX):
            path = path.partition("/")[2]
        if parts.scheme != "unix" and path and (not path.isdecimal() or "db" in query_names):
            raise _UnreadableError("the number of a database after the /, and only there, as in /0")
    except ValueError:  # also of the client, which would use database 0
        raise _UnreadableError(f"{ADDRESS_FORM}, and numbers for its numeric parameters") from None
    return parts, host_urls


def _host_url(parts: SplitResult, user: str, host: str) -> str:
    """Return the URL of a single host, given the parts of a URL that may name several."""
    scheme = parts.scheme.removesuffix(SENTINEL_SUFFIX)
    path = "" if parts.scheme.endswith(SENTINEL_SUFFIX) else parts.path
    netloc = f"{user}@{host}" if user else host
    return parts._replace(scheme=scheme, netloc=netloc, path=path).geturl()


def _retry() -> Retry:
    return Retry(ExponentialWithJitterBackoff(base=0.1, cap=1), COMMAND_RETRIES)


def _connect_to_server(url: str, nodes: list[str]) -> redis.Redis:
    with contextlib.ExitStack() as closing:
        _check_answer(url)
        client = redis.Redis.from_url(url, retry=_retry(), **CLIENT_OPTIONS)
        closing.callback(client.close)
        client.ping()
        mode = _server_mode(client)
        if mode == "sentinel":
            kind = ServerKind(REDIS_SENTINEL, url.startswith("rediss"))
            raise redis.ConnectionError(f"it is {kind}")
        if mode != "cluster":
            if len(nodes) > 1:
                raise ValueError(
                    "several addresses: expected nodes of a Redis Cluster, or one server"
                )
            closing.pop_all()
            return client
    startup = [ClusterNode(*_address(node, 6_379)) for node in nodes]  # type: ignore[no-untyped-call]
    options = {**CLIENT_OPTIONS, "reinitialize_steps": 1, "require_full_coverage": False}
    cluster = ClusterClient.from_url(url, startup_nodes=startup, retry=_retry(), **options)
    return cast(redis.Redis, cluster)


def _check_answer(url: str) -> None:
    """Raise an error if a server is silent or not Redis; the client would retry for minutes.

    A server that accepts no connection is left to the client.
    """
    options = {**CLIENT_OPTIONS, **FIRST_CALL_TIMEOUTS}
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options) as client:
        try:
            client.ping()
        except redis.RedisError as error:
            if not isinstance(error, REDIS_ANSWERS):
                _name_server(REDIS_SERVER, urlsplit(url).scheme, _address(url, 6_379))


def _name_server(kind: str, scheme: str, *addresses: tuple[str, int]) -> None:
    """Raise an error if servers answer, but none is of the kind that the URL names."""
    has_tls = scheme == "rediss"
    servers = [server for address in addresses if (server := identify_server(*address))]
    if not servers or ServerKind(kind, has_tls) in servers:
        return
    server = servers[0]
    if server.kind == CLOSING_SERVER and has_tls:
        return  # the client's own error says more
    if server.has_tls and not has_tls and server.kind in (kind, CLOSING_SERVER):
        raise redis.ConnectionError(WITH_TLS)
    raise redis.ConnectionError(WITHOUT_TLS if server == ServerKind(kind) else f"it is {server}")


def _server_mode(client: redis.Redis) -> str:
    """Return a server's mode: ``cluster``, ``sentinel`` or ``standalone``.

    Every user may run HELLO; a proxy or a Redis before version 6 may not understand it.
    """
    try:
        hello: Any = client.execute_command("HELLO")  # type: ignore[no-untyped-call]
    except redis.ResponseError:
        return "standalone"
    pairs = hello if isinstance(hello, Mapping) else dict(zip(hello[::2], hello[1::2], strict=True))
    return str(pairs.get(b"mode", b"standalone").decode())


def _connect_by_sentinel(parts: SplitResult, host_urls: list[str]) -> redis.Redis:
    """Return a client of the master that Sentinels name, also after a failover.

    ``?sentinel_username=`` and ``?sentinel_password=`` log in to the Sentinels.
    """
    name, _, database = parts.path.strip("/").partition("/")
    if not name:
        raise ValueError(
            "the name of the master is missing: expected redis+sentinel://HOST:PORT/NAME"
        )
    url_options: dict[str, Any] = parse_url(host_urls[0])  # type: ignore[no-untyped-call]
    options = {"db": int(database or 0), **CLIENT_OPTIONS, **url_options}
    for part_of_address in ("host", "port", "connection_class"):
        options.pop(part_of_address, None)
    access = {key: options.pop(f"sentinel_{key}", None) for key in ("username", "password")}
    if parts.scheme.startswith("rediss"):
        options["ssl"] = True
    shared = {k: v for k, v in options.items() if k.startswith(("socket_", "ssl"))}
    shared |= FIRST_CALL_TIMEOUTS
    addresses = [_address(url, SENTINEL_PORT) for url in host_urls]
    once, scheme = Retry(NoBackoff(), 0), urlsplit(host_urls[0]).scheme
    sentinel: Any = Sentinels(addresses, sentinel_kwargs={**shared, **access, "retry": once})  # type: ignore[no-untyped-call]
    kind = REDIS_SENTINEL
    try:
        host, port = sentinel.discover_master(name)
        kind, addresses = REDIS_SERVER, [(host, port)]
        with redis.Redis(host=host, port=port, retry=once, **shared) as master:
            master.ping()
    except (redis.RedisError, AttributeError):  # the client tries again, and logs in
        _name_server(kind, scheme, *addresses)
    client: redis.Redis = sentinel.master_for(name, retry=_retry(), **options)
    client.ping()
    return client


def _address(url: str, port: int) -> tuple[str, int]:
    parts = urlsplit(url)
    host = parts.path if parts.scheme == "unix" else parts.hostname or "localhost"
    return host, parts.port or port
