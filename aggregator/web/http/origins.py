"""Middleware for requests that come by proxies, or from pages of other sites."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from aggregator.config.setting_checks import parse_networks
from aggregator.config.settings import Serve

PREFLIGHT_SECONDS = 600


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
