"""`dither serve`: the dashboard, the API and Prometheus metrics over HTTP."""

from __future__ import annotations

import signal
import sys

import click

from aggregator.config.live_metrics import add_hangup_handler
from aggregator.config.setting_checks import MAX_PORT
from aggregator.config.settings import Settings
from aggregator.counting.supervisor import Supervisor
from aggregator.errors import SettingsError
from aggregator.lazy_log import LazyLog
from aggregator.terminal import options

log = LazyLog("dither.serve")
FAILED_TO_START = 3
"""The exit code if the server could not start; uvicorn has the same."""


@click.command()
@click.option("--host", help="Address to listen on [default: 127.0.0.1].")
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Number of processes that share the port [default: 1].",
)
@click.option("--worker", type=click.IntRange(0), hidden=True, help="Number of this process.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port [default: 8080]; 0: any free port."
)
@options.logging_options
@options.settings_options
def serve(
    settings: Settings, host: str | None, port: int | None, workers: int | None, worker: int | None
) -> None:
    """Serve the dashboard, the HTTP API and Prometheus metrics, and accept reports.

    / is the dashboard; /openapi.json describes the API. Any number of servers may run; one of them
    publishes events to the estimates topic. Access rights are set in [access] of dither.toml and
    with `dither tokens`. Changed metric definitions take effect within seconds.
    """
    settings.serve.host = host or settings.serve.host
    settings.serve.port = settings.serve.port if port is None else port
    settings.serve.workers = workers or settings.serve.workers
    if settings.serve.workers > 1 and worker is None:
        _supervise(settings)
    else:
        _serve(settings, worker)


def _supervise(settings: Settings) -> None:
    """Run several processes that share the port, and restart those that die."""
    from aggregator.local.ports import refuse_taken
    from aggregator.web.http.listening import certificate_files, shared_sockets

    serve = settings.serve
    first_port = serve.worker_port
    worker_ports = range(first_port, first_port + serve.workers if first_port else 0)
    if serve.port in worker_ports or MAX_PORT + 1 in worker_ports:
        expected = f"{serve.workers} ports up to {MAX_PORT}, without {serve.port}"
        raise SettingsError("serve.worker_port", first_port, expected, "serve")
    refuse_taken(serve.host, serve.port)
    for port in worker_ports:
        refuse_taken(serve.host, port, "serve.worker_port")
    options.live_metrics(settings)
    certificate_files(settings)
    # Held until the end: nobody else takes the port.
    shared = shared_sockets(serve.host, serve.port)
    sharing_options = ["--port", str(shared[0].getsockname()[1]), "--workers", str(serve.workers)]
    runner = Supervisor(
        serve.workers,
        [sys.executable, "-m", "aggregator", *sys.argv[1:], *sharing_options],
        worker_arguments=lambda number: ["--worker", str(number)],
    )
    add_hangup_handler(runner.reload_definitions)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: runner.stop())
    runner.run()
    for listening in shared:
        listening.close()


def _serve(settings: Settings, worker: int | None) -> None:
    """Serve in this process.

    `worker`: the process's number if several processes share the port; None if it serves alone.
    """
    from aggregator.local.ports import refuse_taken
    from aggregator.monitoring.tracing_setup import configured_tracing, server_instance
    from aggregator.publishing.publisher import Publisher
    from aggregator.reading.grouping import check_groupings
    from aggregator.reading.reader import MetricReader
    from aggregator.web import report_routes
    from aggregator.web.application import application
    from aggregator.web.http.listening import certificate_files, run_server, shared_sockets
    from estimators.metrics.crowd_epsilon import crowd_warnings

    log_level = click.get_current_context().params["log_level"]
    defined = options.live_metrics(settings)
    check_groupings(settings, defined)
    for warning in [] if worker else crowd_warnings(defined.values()):
        log.warning(warning)
    store = options.opened_store(settings)
    reader = MetricReader(store, defined)
    gateway = report_routes.gateway(settings, defined) if settings.serve.gateway else None
    certificate = certificate_files(settings)
    sockets = None
    if worker is None:
        refuse_taken(settings.serve.host, settings.serve.port)
    else:
        sockets = shared_sockets(settings.serve.host, settings.serve.port)
        if settings.serve.worker_port:
            sockets += shared_sockets(settings.serve.host, settings.serve.worker_port + worker)
    publishes = settings.publish.enabled and not worker
    tracing = configured_tracing(settings, server_instance(settings))
    publisher = Publisher(settings, reader, tracing) if publishes else None
    app = application(reader, settings, gateway=gateway, publisher=publisher, tracing=tracing)
    defined.watch()
    if not run_server(app, settings, certificate, log_level, sockets):
        sys.exit(FAILED_TO_START)
