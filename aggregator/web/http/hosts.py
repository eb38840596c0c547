"""The hosts, proxies and origins from which the server accepts requests.

Unexpected host names are refused as a defence against DNS rebinding. A page of ``evil.example``
waits until this name resolves to a private address, and can then read the answers from that
address. Its requests still have ``Host: evil.example``, never an IP address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from aggregator.config.setting_checks import parse_networks
from aggregator.config.settings import Serve
from producers.gateway.problems import Problem

PROBE_PATHS = ("/healthz", "/readyz")
"""Paths without private data, which load balancers request with any host name."""
MAX_SHOWN_HOST = 100
HOST_AND_PORT = re.compile(r"(\[[^\[\]]+\]|[^\[\]:@/\s]+)(?::\d*)?")
WITHOUT_DOT = r"[^.]+"
PREFLIGHT_SECONDS = 600


class ExpectedHosts:
    """Middleware: refuses requests for unexpected hosts.

    Parameters
    ----------
    app : ASGI application
        The ASGI application behind this middleware.
    serve : Serve
        The settings: `hosts` has the accepted names; by default they follow from `host` and the
        certificate.
    """

    def __init__(self, app: ASGIApp, serve: Serve) -> None:
        self.app, self.expected = app, expected(serve)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in PROBE_PATHS:
            host = Headers(scope=scope).get("host", "")
            if not is_expected(host, self.expected):
                problem = Problem(
                    421,
                    f"the request is for host {host[:MAX_SHOWN_HOST]!r}, which is not one of this "
                    "server's names",
                    "add the name to hosts in [serve] of dither.toml, or to DITHER_SERVE_HOSTS, if "
                    "it belongs to this server or its proxy; IP addresses are always accepted",
                )
                await problem.response(scope["path"])(scope, receive, send)
                return
        await self.app(scope, receive, send)


def expected(serve: Serve) -> re.Pattern[str]:
    """Return a pattern of the accepted host names; IP addresses are accepted anyway.

    With a certificate all names are accepted: browsers refuse names that the certificate lacks. On
    the loopback interface only the names of this interface are accepted. Elsewhere names without a
    dot, such as those of containers, are accepted, too, because nobody outside can register such a
    name.

    Examples
    --------
    >>> names = expected(Serve(hosts=["dither.example", "*.lab.example"]))
    >>> [bool(names.fullmatch(host)) for host in ("localhost", "dither.example", "a.lab.example")]
    [True, True, True]
    >>> bool(expected(Serve()).fullmatch("evil.example"))
    False
    """
    local = ["localhost", "*.localhost"]
    if serve.hosts:
        names = [*local, *serve.hosts]
    elif serve.tls_certificate:
        names = ["*"]
    elif is_loopback(serve.host):
        names = local
    else:
        return _pattern([*local, serve.host, socket.gethostname()], WITHOUT_DOT)
    return _pattern(names)


def _pattern(names: Sequence[str], *others: str) -> re.Pattern[str]:
    written = [re.escape(name.rstrip(".")).replace(r"\*", ".+") for name in names]
    return re.compile("|".join([*written, *others]), re.IGNORECASE)


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_expected(header: str, names: re.Pattern[str]) -> bool:
    """Return whether the header Host has an IP address or an accepted name.

    Examples
    --------
    >>> names = expected(Serve(hosts=["dither.example"]))
    >>> [is_expected(host, names) for host in ("dither.example:80", "10.0.0.7:80", "[::1]:80")]
    [True, True, True]
    >>> [is_expected(host, names) for host in ("", "evil.example", "dither.example:80@evil")]
    [False, False, False]
    """
    match = HOST_AND_PORT.fullmatch(header)
    if match is None:
        return False
    host = match[1]
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return names.fullmatch(host.rstrip(".")) is not None
    return True


def proxy_middleware(serve: Serve) -> list[Middleware]:
    """Return middleware that accepts a client's address and scheme from trusted proxies."""
    trusted_networks = parse_networks(serve.trusted_proxies)
    if not trusted_networks:
        return []
    mapped = [  # as a dual-stack socket reports an IPv4 address
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in trusted_networks
        if network.version == 4
    ]
    trusted_hosts = [*(str(network) for network in trusted_networks), *mapped]
    return [Middleware(ProxyHeadersMiddleware, trusted_hosts=trusted_hosts)]


def cors_middleware(serve: Serve) -> list[Middleware]:
    """Return middleware that lets pages of the allowed origins read answers."""
    if not serve.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=serve.cors_origins,
            allow_methods=["DELETE", "GET", "POST", "PUT"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match", "Last-Event-ID"],
            expose_headers=["ETag", "Retry-After", "WWW-Authenticate"],
            max_age=PREFLIGHT_SECONDS,
        )
    ]
