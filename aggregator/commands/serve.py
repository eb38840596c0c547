"""`dither serve`: estimates over HTTP."""

from __future__ import annotations

import click

from aggregator.commands.options import defined_metrics, settings_options
from aggregator.settings import Settings


@click.command()
@click.option("--host", help="Address to listen on [default: 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port [default: 8080]; 0: any free.")
@settings_options
def serve(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve estimates and bounds as Prometheus metrics.

    /metrics for Prometheus, /healthz and /readyz for an orchestrator. Reads Redis when asked, so
    any number may run.
    """
    import uvicorn

    from aggregator.reader import Reader
    from aggregator.store import Store, connect
    from aggregator.web import application
    from estimators.durations import milliseconds

    defined = defined_metrics(settings)
    store = Store(connect(settings.redis.url), settings.topics.reports)
    idle_ms = milliseconds(settings.aggregate.idle)
    reader = Reader(store, defined, idle_ms=idle_ms)
    uvicorn.run(
        application(reader, settings),
        host=host or settings.serve.host,
        port=settings.serve.port if port is None else port,
        log_level="warning",
        access_log=False,
    )
