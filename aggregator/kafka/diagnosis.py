"""Explains why a Kafka broker refuses a client."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError

from producers.kafka.kafka_errors import REFUSAL_CODES, describe_kafka_error

PROBE_SECONDS = 3.0
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
    """Return the problem of a server's certificate, given OpenSSL's reason, and the remedy.

    >>> certificate("certificate has expired", "ssl.ca.location")
    'shows a certificate which has expired: renew it (certificate has expired)'
    """
    for sign, meaning in CERTIFICATE_PROBLEMS.items():
        if sign in reason:
            return f"shows a certificate {meaning.format(ca=ca)} ({reason})"
    return f"shows a certificate that cannot be verified ({reason}): check it, and {ca}"


def diagnose_kafka(
    properties: Mapping[str, Any], errors: Iterable[KafkaError], *, probe: bool = True
) -> str:
    """Return why no broker accepts this client, and the remedy; "" if none was reached.

    librdkafka does not say what is wrong with a certificate; a handshake does.

    Parameters
    ----------
    properties : mapping
        librdkafka's.
    errors : iterable of KafkaError
        The client's errors so far.
    probe : bool
        Whether to check if the broker speaks TLS, where none is configured.
    """
    servers = str(properties.get("bootstrap.servers", "")).split(",")
    protocol = str(properties.get("security.protocol", "PLAINTEXT")).upper()
    for error in errors:
        if error.code() == KafkaError._SSL and "certificate verify failed" in error.str():
            ca = properties.get("ssl.ca.location")
            reason = _handshake(servers[0], None if ca in (None, "probe") else str(ca))
            if reason:
                return certificate(reason, "[kafka] ssl.ca.location")
        if error.code() in REFUSAL_CODES:
            return f"refuses: {describe_kafka_error(error)}"
    if probe and not protocol.endswith("SSL") and _handshake(servers[0], None, verify=False) == "":
        return f"speaks TLS, and security.protocol is {protocol}: expected SASL_SSL or SSL"
    return ""


def _handshake(server: str, ca: str | None, *, verify: bool = True) -> str | None:
    """Return the problem of a server's certificate; "": none; None: the server speaks no TLS."""
    host, _, port = server.rpartition(":")
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError, ValueError):
        if ca:
            context = ssl.create_default_context(cafile=ca)
        address = (host.strip("[] "), int(port))
        with socket.create_connection(address, timeout=PROBE_SECONDS) as plain:
            try:
                context.wrap_socket(plain, server_hostname=address[0]).close()
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            else:
                return ""
    return None
