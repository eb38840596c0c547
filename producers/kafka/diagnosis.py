"""Explains why a Kafka broker refuses a client, or which other server answers instead."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import KafkaError

from producers.delivery.server_probe import (
    CLOSING_SERVER,
    KAFKA_BROKER,
    SILENT_SERVER,
    ServerKind,
    identify_server,
)
from producers.kafka.kafka_errors import REFUSAL_CODES, describe_kafka_error

PROBE_SECONDS = 3.0
POSSIBLE_BROKERS = ("", KAFKA_BROKER, CLOSING_SERVER, SILENT_SERVER)
"""What :func:`diagnose_kafka` returns if a broker may be there, now or later."""
CERTIFICATE_PROBLEMS = {
    "unable to get local issuer": "which is not signed by an authority of {ca}",
    "self-signed": "which is not signed by an authority of {ca}",
    "self signed": "which is not signed by an authority of {ca}",
    "expired": "which has expired: renew it",
    "not yet valid": "which is not valid yet: compare the clocks",
    "mismatch": "which is for another host: connect by a name in the certificate, or add this "
    "name to it",
}


def certificate(reason: str, ca: str) -> str:
    """Return what is wrong with a server's certificate, and the remedy.

    `reason`: OpenSSL's error; `ca`: the setting that names the authorities.

    >>> certificate("certificate has expired", "ssl.ca.location")
    'shows a certificate which has expired: renew it (certificate has expired)'
    """
    for sign, meaning in CERTIFICATE_PROBLEMS.items():
        if sign in reason:
            return f"shows a certificate {meaning.format(ca=ca)} ({reason})"
    return f"shows a certificate that cannot be verified ({reason}): check it, and {ca}"


def diagnose_kafka(properties: Mapping[str, Any], errors: Sequence[KafkaError]) -> str:
    """Return why no broker accepts this client, and what to do, if that can be found out.

    Otherwise returns `KAFKA_BROKER` if a broker answers, `CLOSING_SERVER` or `SILENT_SERVER` if a
    server only accepts connections, and "" if no server does. librdkafka does not say what is wrong
    with a certificate, or which other server answers.

    Parameters
    ----------
    properties : mapping
        librdkafka's properties.
    errors : sequence of KafkaError
        The client's errors so far.
    """
    servers = str(properties.get("bootstrap.servers", "")).split(",")
    for error in errors:
        if error.code() == KafkaError._SSL and "certificate verify failed" in error.str():
            ca = properties.get("ssl.ca.location")
            reason = _certificate_problem(servers[0], None if ca in (None, "probe") else str(ca))
            if reason:
                return certificate(reason, "[kafka] ssl.ca.location")
    why = _name_servers(servers, str(properties.get("security.protocol", "PLAINTEXT")).upper())
    if why not in ("", KAFKA_BROKER, CLOSING_SERVER):
        return why
    refusals = (error for error in errors if error.code() in REFUSAL_CODES)
    return next((f"refuses: {describe_kafka_error(error)}" for error in refusals), why)


def _name_servers(addresses: Sequence[str], protocol: str) -> str:
    """Return the kind of the servers that answer, or a description if they are no brokers."""
    has_tls = protocol.endswith("SSL")
    hosts = [_host_and_port(address) for address in addresses]
    try:
        with ThreadPoolExecutor() as pool:
            servers = [*pool.map(lambda host: identify_server(*host), hosts)]
    except RuntimeError:  # the interpreter ends, and starts no more threads
        servers = [identify_server(*host) for host in hosts]
    if ServerKind(KAFKA_BROKER, has_tls) in servers:
        return KAFKA_BROKER
    if not {ServerKind(CLOSING_SERVER, has_tls), ServerKind(CLOSING_SERVER)}.isdisjoint(servers):
        return CLOSING_SERVER
    for address, server in zip(addresses, servers, strict=True):
        if server is not None and server.kind == KAFKA_BROKER:
            speaks, kinds = ("TLS", "SSL") if server.has_tls else ("no TLS", "PLAINTEXT")
            expected = f"expected SASL_{kinds} or {kinds}"
            return f"speaks {speaks}, and security.protocol is {protocol}: {expected}"
        if server is not None and server.kind != SILENT_SERVER:
            return (
                f"is no broker: {address} is {server}. Name a broker's HOST:PORT (9092 by default) "
                "in bootstrap.servers (of a command: --kafka)"
            )
    return SILENT_SERVER if any(servers) else ""


def _host_and_port(address: str) -> tuple[str, int]:
    parts = urlsplit(f"//{address.strip().rpartition('://')[2]}")
    return parts.hostname or "localhost", parts.port or 9_092


def _certificate_problem(server: str, ca: str | None) -> str:
    """Return what is wrong with a server's certificate; "" if nothing is, or without TLS."""
    import ssl  # not above: OpenSSL takes 7 MB

    with contextlib.suppress(OSError, ValueError):
        context = ssl.create_default_context(cafile=ca)
        address = _host_and_port(server)
        with socket.create_connection(address, timeout=PROBE_SECONDS) as plain:
            try:
                context.wrap_socket(plain, server_hostname=address[0]).close()
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""
