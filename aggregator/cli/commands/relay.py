"""`dither relay`: shuffle the sealed reports of crowds, for another organisation."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.commands.serve import FAILED_TO_START
from aggregator.config.settings import load_settings
from aggregator.errors import DitherError
from aggregator.lazy_log import LazyLog
from aggregator.terminal.options import live_metrics, logging_options

if TYPE_CHECKING:
    from aggregator.config.settings import Settings

log = LazyLog("dither.relay")
NEEDED_OPTIONS = ("to", "token_file", "key", "folder")


@click.group(invoke_without_command=True)
@click.option("--listen", metavar="HOST:PORT", help="Where to listen [default: 127.0.0.1:8080].")
@click.option("--to", metavar="URL", help="Address of the service's `dither serve`.")
@click.option("--token-file", metavar="FILE", help="File with the service's token, of scope relay.")
@click.option("--metrics", metavar="FILE", help="Metric definitions [default: metrics.toml].")
@click.option("--key", metavar="HEX", help="The service's public key, as keygen printed it.")
@click.option("--folder", metavar="DIR", help="Folder for reports; no other relay may use it.")
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=False,
    help="Port of /healthz, /readyz and /metrics, for operators alone [default: none].",
)
@click.option("--config", metavar="FILE", help="Settings file [default: dither.toml].")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting of [serve], such as serve.tls_certificate=FILE; may be repeated.",
)
@logging_options
@click.pass_context
def relay(
    context: click.Context,
    /,
    listen: str | None,
    metrics: str | None,
    config: str | None,
    assignments: tuple[str, ...],
    **options: Any,
) -> None:
    """Take sealed reports from devices, shuffle each crowd, and post it to the service.

    A relay cannot open a report, and does not log or store who sent it. It needs neither Kafka nor
    Redis. Run it for another organisation: see docs/crowds.md.
    """
    if context.invoked_subcommand is not None:
        return
    for name in NEEDED_OPTIONS:
        if options[name] is None:
            raise click.UsageError(f"Missing option '--{name.replace('_', '-')}'.")
    flags: dict[str, str | None] = {"metrics": metrics}
    flags |= dict(assignment.partition("=")[::2] for assignment in assignments)
    if listen is not None:
        host, colon, flags["serve.port"] = listen.rpartition(":")
        if not (host and colon):
            raise click.UsageError(f"--listen {listen!r}: expected HOST:PORT, such as 0.0.0.0:8443")
        flags["serve.host"] = host.removeprefix("[").removesuffix("]")
    _run(load_settings(config, flags), **options)


def _run(
    settings: Settings, to: str, token_file: str, key: str, folder: str, health_port: int
) -> None:
    """Run the relay in this process."""
    from aggregator.health_port import answer_health
    from aggregator.local.ports import refuse_taken
    from aggregator.web.http.listening import certificate_files, run_server
    from aggregator.web.http.traffic import Traffic
    from aggregator.web.relay_application import relay_application, relay_pages
    from estimators.durations import milliseconds
    from estimators.metrics.crowd_epsilon import crowd_warnings
    from producers.relay.crowd_folder import CrowdFolder
    from producers.relay.forwarding import Forwarder, ServiceClient
    from producers.relay.intake import CrowdRelay, default_rate_limit
    from producers.sealing import read_public_key

    defined = live_metrics(settings)
    if not any(metric.crowd for metric in defined.values()):
        raise DitherError(
            f"{settings.metrics}: no metric has a crowd: expected `crowd = {{ minimum = ... }}` in "
            "one, since a relay takes no other reports"
        )
    for warning in crowd_warnings(defined.values()):
        log.warning(warning)
    rate_limit = settings.gateway.rate_limit
    if "gateway.rate_limit" not in settings.sources:
        rate_limit = default_rate_limit(defined.values())
    certificate, traffic = certificate_files(settings), Traffic()
    refuse_taken(settings.serve.host, settings.serve.port, "--listen")
    try:
        relay = CrowdRelay(
            defined,
            read_public_key(key),
            Forwarder(ServiceClient(to, Path(token_file)), CrowdFolder(Path(folder))),
            rate_limit=rate_limit,
            rate_limit_bytes=settings.gateway.rate_limit_bytes,
            future_ms=milliseconds(settings.aggregate.future),
        )
    except BlockingIOError:
        raise DitherError("--folder: another relay uses it: give each its own") from None
    except OSError as error:
        raise DitherError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise DitherError(str(error)) from None
    app = relay_application(relay, settings, traffic)
    defined.watch()
    log_level = click.get_current_context().params["log_level"]
    pages = relay_pages(relay, traffic)
    health = answer_health(health_port, lambda: relay.trouble, pages) if health_port else None
    with health or contextlib.nullcontext():
        has_started = run_server(app, settings, certificate, log_level)
    if not has_started:
        sys.exit(FAILED_TO_START)


@relay.command()
@click.argument("file")
def keygen(file: str) -> None:
    """Make the service's pair of keys: write the private key to FILE, and print the public key.

    `dither serve` opens crowds with the private key. Devices and the relay need the public key.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private_key = X25519PrivateKey.generate()
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise DitherError(
            f"{file}: {error.strerror}: expected a new file in a folder that this user can write"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as key_file:
        key_file.write(f"{private_key.private_bytes_raw().hex()}\n")
    click.echo(private_key.public_key().public_bytes_raw().hex())
