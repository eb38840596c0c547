"""TLS of the HTTP server: a certificate and its key, reloaded on SIGHUP."""

from __future__ import annotations

import os
import ssl
from typing import NoReturn

import structlog

from aggregator.config.live_metrics import add_hangup_handler
from aggregator.config.settings import Settings
from aggregator.errors import DitherError, SettingsError

log = structlog.get_logger("dither.serve")


def certificate_files(settings: Settings) -> tuple[str, str] | None:
    """Return the files of the certificate and its key; None without TLS.

    Raises SettingsError if a file cannot be read, DitherError if it is no certificate or no key.
    """
    serve = settings.serve
    file_settings = {"serve.tls_certificate": serve.tls_certificate, "serve.tls_key": serve.tls_key}
    if not any(file_settings.values()):
        return None
    for key, file in file_settings.items():
        if not os.access(file, os.R_OK):
            source = settings.sources.get(key, "default")
            raise SettingsError(key, file, "a PEM file that this user can read", source)
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), serve.tls_certificate, serve.tls_key)
    return serve.tls_certificate, serve.tls_key


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate (with its chain) and its key, for the handshakes from now on.

    `context`: the context of the server; `certificate`, `key`: files in PEM. Raises DitherError if
    a file cannot be used.
    """
    try:
        context.load_cert_chain(certificate, key, password=_refuse_passphrase)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror
        raise DitherError(
            f"[serve] tls_certificate = {certificate!r} with tls_key = {key!r} cannot be used "
            f"({reason}): expected PEM files, the certificate with its chain, and the key of this "
            "certificate"
        ) from None


def forbid_resumption(context: ssl.SSLContext) -> None:
    """Give clients no session tickets, because a resumed session would link a device's posts."""
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def reload_on_hangup(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Reload a certificate and its key on SIGHUP; files that cannot be used change nothing.

    `context`, `certificate`, `key`: as for :func:`load_certificate`.
    """

    def reload() -> None:
        try:
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
            load_certificate(context, certificate, key)
        except DitherError as error:
            log.error("certificate not reloaded", error=str(error))  # noqa: TRY400
        else:
            log.info("certificate reloaded", file=certificate)

    add_hangup_handler(reload)


def _refuse_passphrase() -> NoReturn:
    raise DitherError(
        "[serve] tls_key is encrypted: expected a key without a passphrase, in a file that only "
        "this user can read"
    )
