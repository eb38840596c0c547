"""Connects to Redis: one server, a Redis Cluster, or the master that Sentinels name."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import ClusterError, RedisClusterException
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from aggregator.errors import SettingsError, StoreUnreachable
from aggregator.secrets import NUMBER_PARAMETERS, OPEN_PARAMETERS, SECRET_PARAMETERS, masked
from aggregator.storage.failures import (
    AWAY,
    SPEAKS_HTTP,
    WITH_TLS,
    WITHOUT_TLS,
    classify,
    explain_redis_error,
)

SENTINEL = "+sentinel"
RETRIES = 2
"""Of a call that found no connection: short interruptions pass unnoticed, outages soon show.

The client also retries each attempt to connect, so the waits add up to 2.4 s at most.
"""
OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": 5,
    "socket_timeout": 20,  # a server that hangs is one that is away
    "health_check_interval": 30,
}
FIRST_SECONDS = 1.5
"""The first call at a start waits so long, and so do two looks at what is wrong with no answer."""
SILENT = f"it takes connections, and says nothing for {FIRST_SECONDS:g} s"
SENTINEL_PORT = 26_379
PARAMETERS = NUMBER_PARAMETERS | OPEN_PARAMETERS | SECRET_PARAMETERS | {"retry_on_timeout"}
PLACE = re.compile(r"(\[[^\[\]]+\]|[^\[\]: ]*)(:[1-9]\d*)?")
"""A host, maybe with a port."""
EXPECTED = (
    "redis:// or rediss:// (TLS), then USER:PASSWORD@HOST:PORT/0 with the number of a database, "
    "special characters percent-encoded (no #), and redis-py's parameters (ssl_ca_certs=..., with "
    "rediss:// only); or unix:///PATH; or, for Sentinels, redis+sentinel:// or rediss+sentinel://, "
    "then HOST:PORT,HOST:PORT/NAME/0"
)


LAYOUT_LOST = (RedisClusterException, LookupError)
"""What the client fails with, beside errors of Redis, when it finds too little of a Cluster."""


class ClusterClient(RedisCluster):
    """A client of a Redis Cluster whose failures are all of :class:`redis.RedisError`."""

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, on the node that has its key."""
        try:
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]
        except (*LAYOUT_LOST, AttributeError) as error:
            raise ClusterError(f"a part of the Redis Cluster is away: {error}") from error

    def node_of(self, key: Any) -> redis.Redis:
        """Return a client of the node that has a key.

        Raises
        ------
        ClusterError
            If no node is known that has it.
        """
        try:
            return self.get_redis_connection(self.get_node_from_key(key))  # type: ignore[no-untyped-call]
        except (*LAYOUT_LOST, AttributeError) as error:
            raise ClusterError(f"a part of the Redis Cluster is away: {error}") from error

    def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> Any:
        """Return a node; one that joined after the last look, and is named by an ASK, is new."""
        found = super().get_node(host, port, node_name)  # type: ignore[no-untyped-call]
        if found is None and node_name:
            host, _, port = str(node_name).rpartition(":")
            found = ClusterNode(host, int(port), "primary")  # type: ignore[no-untyped-call]
        return found


class Sentinels(Sentinel):
    """Sentinels. Where none answers, the error says what went wrong with them."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return a master's address; the Sentinel that knew it is asked first the next time."""
        sentinels: list[Any] = self.sentinels
        failures: list[Exception] = []
        for sentinel in sentinels:
            try:
                master = sentinel.sentinel_masters().get(service_name)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                failures.append(error)
                continue
            if master and self.check_master_state(master, service_name):  # type: ignore[no-untyped-call]
                self.sentinels = [sentinel, *(one for one in sentinels if one is not sentinel)]
                return master["ip"], master["port"]
        if len(failures) == len(sentinels):
            raise min(failures, key=lambda failure: classify(failure) is AWAY)
        raise MasterNotFoundError(f"none that answers knows a master {service_name!r} that is up")


def connect(url: str) -> redis.Redis:
    """Return a client for a Redis URL.

    Parameters
    ----------
    url : str
        ``redis://``, ``rediss://`` (TLS) or ``unix://``. A server says itself whether it belongs to
        a Redis Cluster. Several nodes of a cluster may be named, ``redis://one:6379,two:6379``: the
        first that answers names the others. ``redis+sentinel://one:26379,two:26379/NAME/0`` (or
        ``rediss+sentinel://``) gets the master of that name from Sentinels.

    Raises
    ------
    StoreUnreachable
        If nothing answers there, or not as it should.
    SettingsError
        If it is no such URL.
    """
    failure: Exception = ValueError("no address")
    try:
        places, urls = _read(url)
        if places.scheme.endswith(SENTINEL):
            return _by_sentinel(places, urls)
        for one in urls:
            try:
                return _by_server(one, urls)
            except redis.ConnectionError as error:
                failure = error
    except (_UnreadableError, TypeError):  # the client's message may have a part of the password
        raise SettingsError("redis.url", masked("redis.url", url), EXPECTED, "redis") from None
    except (redis.RedisError, RedisClusterException, ValueError, OSError) as error:
        failure = error
    shown = str(masked("redis.url", url))
    raise StoreUnreachable(_in_words(shown, failure)) from None


def _in_words(url: str, failure: Exception) -> str:
    """Return why there is no connection, and what to do."""
    yours = "--redis, DITHER_REDIS_URL or [redis] url in dither.toml"
    if classify(failure) is AWAY:
        return (
            f"no Redis answers at {url} ({failure}): start one (`redis-server --appendonly yes`), "
            f"or name yours with {yours}"
        )
    if isinstance(failure, ValueError):
        return f"{url}: {failure}; it comes from {yours}"
    return f"{url}: {explain_redis_error(failure)}"


class _UnreadableError(Exception):
    """A URL that is none."""


def _read(url: str) -> tuple[SplitResult, list[str]]:
    """Return a URL's parts, and a URL for each of its hosts; the client can read them."""
    try:
        places = urlsplit(url)
        user, _, hosts = places.netloc.rpartition("@")
        if "@" in places.path + places.query or "#" in url:  # then what is a password?
            raise _UnreadableError
        if places.scheme == "unix" and (hosts or not places.path.strip("/")):
            raise _UnreadableError  # the client takes a relative path for one from the root
        given = [unquote(pair.partition("=")[0]) for pair in places.query.split("&") if pair]
        if not PARAMETERS.issuperset(given) or len({*given}) < len(given):
            raise _UnreadableError
        urls = [_of(places, user, host) for host in hosts.split(",")] if hosts else [url]
        for one in urls:
            parse_url(one)  # type: ignore[no-untyped-call]
            if not PLACE.fullmatch(urlsplit(one).netloc.rpartition("@")[2]):
                raise _UnreadableError  # the client takes its own port for one that is none
        path = places.path.strip("/")
        if places.scheme.endswith(SENTINEL):
            path = path.partition("/")[2]
        if places.scheme != "unix" and path:
            int(path)  # the client takes database 0 for anything else
    except ValueError:
        raise _UnreadableError from None
    return places, urls


def _of(places: SplitResult, user: str, host: str) -> str:
    """Return the URL of one host of several."""
    scheme = places.scheme.removesuffix(SENTINEL)
    path = "" if places.scheme.endswith(SENTINEL) else places.path
    netloc = f"{user}@{host}" if user else host
    return places._replace(scheme=scheme, netloc=netloc, path=path).geturl()


def _retry() -> Retry:
    return Retry(ExponentialWithJitterBackoff(base=0.1, cap=1), RETRIES)


def _by_server(url: str, nodes: list[str]) -> redis.Redis:
    with contextlib.ExitStack() as closing:
        _check_answer(url)
        client = redis.Redis.from_url(url, retry=_retry(), **OPTIONS)
        closing.callback(client.close)
        client.ping()
        if _mode(client) != "cluster":
            if len(nodes) > 1:
                raise ValueError(
                    "several addresses: expected nodes of a Redis Cluster, or one server"
                )
            closing.pop_all()
            return client
    startup = [ClusterNode(*_address(node, 6_379)) for node in nodes]  # type: ignore[no-untyped-call]
    options = {**OPTIONS, "reinitialize_steps": 1, "require_full_coverage": False}
    cluster = ClusterClient.from_url(url, startup_nodes=startup, retry=_retry(), **options)
    return cast(redis.Redis, cluster)


def _check_answer(url: str) -> None:
    """Raise an error if a server says nothing, or not what Redis says; the client asks for minutes.

    A server that takes no connection is left to the client, which tries again.
    """
    options = {
        **OPTIONS,
        **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), FIRST_SECONDS),
    }
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options) as client:
        try:
            client.ping()
        except redis.RedisError as error:
            scheme = urlsplit(url).scheme
            if classify(error) is not AWAY:
                return
            if scheme != "unix":
                _name_protocol(scheme, _address(url, 6_379))
            if isinstance(error, redis.TimeoutError):
                raise redis.ConnectionError(f"{SILENT}: {error}") from None


def _name_protocol(scheme: str, address: tuple[str, int]) -> None:
    """Raise an error if a server that does not answer as Redis speaks another protocol."""
    with contextlib.suppress(OSError):
        if scheme == "redis":
            ssl.get_server_certificate(address, timeout=FIRST_SECONDS)
            raise redis.ConnectionError(WITH_TLS)
    with contextlib.suppress(OSError):
        with socket.create_connection(address, FIRST_SECONDS) as plain:
            plain.settimeout(FIRST_SECONDS)
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n" if scheme == "redis" else b"PING\r\n")
            answer = plain.recv(5)
        if answer.startswith(b"HTTP/"):
            raise redis.ConnectionError(SPEAKS_HTTP)
        if scheme == "rediss" and answer[:1] in (b"+", b"-"):
            raise redis.ConnectionError(WITHOUT_TLS)


def _mode(client: redis.Redis) -> str:
    """Return how a server runs: ``cluster``, ``sentinel`` or ``standalone``.

    Every user may say HELLO; a proxy, or a Redis before version 6, may not understand it.
    """
    try:
        hello: Any = client.execute_command("HELLO")  # type: ignore[no-untyped-call]
    except redis.ResponseError:
        return "standalone"
    pairs = hello if isinstance(hello, Mapping) else dict(zip(hello[::2], hello[1::2], strict=True))
    return str(pairs.get(b"mode", b"standalone").decode())


def _by_sentinel(places: SplitResult, urls: list[str]) -> redis.Redis:
    """Return a client of the master that Sentinels name; it follows when the master changes.

    ``?sentinel_username=`` and ``?sentinel_password=`` are for Sentinels that require a login.
    """
    name, _, database = places.path.strip("/").partition("/")
    if not name:
        raise ValueError("no name of a master: expected redis+sentinel://HOST:PORT/NAME")
    options = {"db": int(database or 0), **OPTIONS, **_options(urls[0])}
    access = {key: options.pop(f"sentinel_{key}", None) for key in ("username", "password")}
    if places.scheme.startswith("rediss"):
        options["ssl"] = True
    shared = {k: v for k, v in options.items() if k.startswith(("socket_", "ssl"))}
    shared |= dict.fromkeys(("socket_timeout", "socket_connect_timeout"), FIRST_SECONDS)
    addresses = [_address(url, SENTINEL_PORT) for url in urls]
    once = Retry(NoBackoff(), 0)
    sentinel: Any = Sentinels(addresses, sentinel_kwargs={**shared, **access, "retry": once})  # type: ignore[no-untyped-call]
    try:
        host, port = sentinel.discover_master(name)
        with redis.Redis(host=host, port=port, retry=once, **shared) as master:
            master.ping()
    except redis.TimeoutError as error:
        raise redis.ConnectionError(f"{SILENT}: {error}") from None
    except redis.RedisError:
        pass  # the client tries again, and logs in
    client: redis.Redis = sentinel.master_for(name, retry=_retry(), **options)
    client.ping()
    return client


def _options(url: str) -> dict[str, Any]:
    """Return what a URL says besides the address."""
    found: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return {k: v for k, v in found.items() if k not in ("host", "port", "connection_class")}


def _address(url: str, port: int) -> tuple[str, int]:
    found = urlsplit(url)
    return found.hostname or "localhost", found.port or port
