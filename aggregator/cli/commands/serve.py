"""`dither serve`: the dashboard, the API and Prometheus metrics over HTTP."""

from __future__ import annotations

import contextlib
import sys

import click

from aggregator.cli.commands.options import (
    live_metrics,
    logging_options,
    opened_store,
    settings_options,
)
from aggregator.config.settings import Settings

FAILED_TO_START = 3
"""The exit code, as uvicorn has it."""
LEAVE_SECONDS = 5
"""What is under way may end before the process does; streams are closed at once."""


@click.command()
@click.option("--host", help="Address to listen on [default: 127.0.0.1].")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port [default: 8080]; 0: any free port."
)
@logging_options
@settings_options
def serve(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve the dashboard, the HTTP API and Prometheus metrics, and accept reports.

    / is the dashboard, /openapi.json describes the API. Any number may run; one of them publishes
    events to the estimates topic. Access rights are set in [access] of dither.toml and with `dither
    tokens`. Changed metric definitions take effect within seconds.
    """
    import uvicorn

    from aggregator.local.ports import refuse_taken
    from aggregator.monitoring.instances import server_instance
    from aggregator.monitoring.tracing import configured_tracing
    from aggregator.publishing.publisher import Publisher
    from aggregator.reading.grouping import check_groupings
    from aggregator.reading.reader import Reader
    from aggregator.web import application, reports
    from aggregator.web.http import tls
    from aggregator.web.http.listening import Server
    from aggregator.web.http.small_posts import PostProtocol

    log_level = click.get_current_context().params["log_level"]
    defined = live_metrics(settings)
    check_groupings(settings, defined)
    store = opened_store(settings)
    reader = Reader(store, defined)
    gateway = reports.gateway(settings, defined) if settings.serve.gateway else None
    certificate = tls.files(settings)
    settings.serve.host = host or settings.serve.host
    settings.serve.port = settings.serve.port if port is None else port
    refuse_taken(settings.serve.host, settings.serve.port)
    tracing = configured_tracing(settings, server_instance(settings))
    publisher = Publisher(settings, reader, tracing) if settings.publish.enabled else None
    config = uvicorn.Config(
        application(reader, settings, gateway=gateway, publisher=publisher, tracing=tracing),
        host=settings.serve.host,
        port=settings.serve.port,
        log_level="error" if log_level == "error" else "warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # serve.trusted_proxies says whom the application believes
        http=PostProtocol,
        loop="uvloop",
        ws="none",
        timeout_graceful_shutdown=LEAVE_SECONDS,
        ssl_certfile=certificate and certificate[0],
        ssl_keyfile=certificate and certificate[1],
    )
    config.load()
    if certificate and config.ssl:
        tls.reload_on_hangup(config.ssl, *certificate)
    defined.watch()
    server = Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(FAILED_TO_START)
