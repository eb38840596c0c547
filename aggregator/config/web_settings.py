"""Checks of settings of HTTP access: host names, origins, proxies and rates."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from aggregator.secrets import REGISTRY_URL

ORIGIN_PATTERN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+")
HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\]")
ENDPOINT_URL = re.compile(r"https?://[^/?#@\s]+(/[^?#@\s]*)?(?<!/v1/metrics)(?<!/v1/traces)")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_origins(origins: list[str]) -> None:
    """Refuse invalid origins.

    Raises
    ------
    ValueError
        If one is invalid.
    """
    if not all(ORIGIN_PATTERN.fullmatch(origin) for origin in origins):
        raise ValueError(
            "origins as browsers send them, as in https://app.example or "
            "http://localhost:3000: in lower case and without a path; or * for all"
        )


def check_hosts(hosts: list[str]) -> None:
    """Refuse invalid names of hosts.

    Raises
    ------
    ValueError
        If one is invalid.
    """
    if not all(HOST_NAME.fullmatch(host) for host in hosts):
        raise ValueError(
            "host names without scheme and port, as in dither.example, 127.0.0.1 or [::1]; "
            "*.example for all below example, or * for all"
        )


def parse_networks(proxies: list[str]) -> list[Network]:
    """Return the networks of trusted proxies.

    Raises
    ------
    ValueError
        If one is neither an address nor a network, or contains all addresses.

    Examples
    --------
    >>> [str(network) for network in parse_networks(["127.0.0.1", "10.1.0.0/16", "::1"])]
    ['127.0.0.1/32', '10.1.0.0/16', '::1/128']
    """
    try:
        parsed = [ipaddress.ip_network(proxy) for proxy in proxies]
    except ValueError:
        parsed = None
    if parsed is None or any(not network.prefixlen for network in parsed):
        raise ValueError(
            "addresses or networks of the proxies, as in 127.0.0.1 or 10.0.3.0/24, never all: a "
            "client that is trusted as a proxy can claim any address"
        )
    return parsed


def check_endpoint(endpoint: str) -> None:
    """Refuse an invalid address of a collector.

    Raises
    ------
    ValueError
        If it is invalid.
    """
    if endpoint and not ENDPOINT_URL.fullmatch(endpoint):
        raise ValueError(
            "a collector's address without user, query and the path of a signal, as in "
            "http://localhost:4318; headers belong in OTEL_EXPORTER_OTLP_HEADERS"
        )


def check_registry(url: str) -> None:
    """Refuse an invalid address of a schema registry.

    Raises
    ------
    ValueError
        If it is invalid.
    """
    if url and not REGISTRY_URL.fullmatch(url):
        raise ValueError(
            "http:// or https://, a host and perhaps a path, as in http://localhost:8081; user and "
            "password belong in schemas.user and schemas.password"
        )


def _check_schema_id(schema_id: int) -> None:
    if not 0 <= schema_id < 1 << 31:
        raise ValueError("the number that `dither schemas` prints for the reports topic, or 0")


def _check_rate(rate: str) -> None:
    from producers.gateway.clients import rate_limit  # which other commands need not load

    try:
        rate_limit(rate)
    except ValueError:
        raise ValueError("a rate such as 100/second or 5000 per hour, or nothing") from None


SETTING_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "serve.cors_origins": check_origins,
    "serve.hosts": check_hosts,
    "serve.trusted_proxies": parse_networks,
    "otlp.endpoint": check_endpoint,
    "schemas.url": check_registry,
    "schemas.schema_id": _check_schema_id,
    "gateway.rate_limit": _check_rate,
    "gateway.rate_limit_bytes": _check_rate,
    "gateway.rate_limit_reports": _check_rate,
}
"""Checks by setting, which raise a ValueError."""
