"""Sends the exported metrics to a collector at intervals."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version

import redis
import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.monitoring import metric_definitions
from aggregator.monitoring.families import Families
from aggregator.monitoring.otlp.translation import Translation
from aggregator.storage.failures import explain_redis_error
from estimators.durations import milliseconds

REPEAT_SECONDS = 60.0
"""The time between equal log lines."""
STOP_SECONDS = 1.0
"""The time for a running export to end; its daemon thread does not keep the process alive."""
EXPORTER_LOGGER = "opentelemetry.exporter.otlp"

log = structlog.get_logger("dither.otlp")


class ThrottledExporterLog(logging.Handler):
    """Logs each error of OpenTelemetry's exporters at most once a minute."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._logged_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Log an error, unless it was logged within the last minute."""
        now = time.monotonic()
        if now - self._logged_at.get(str(record.msg), -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._logged_at[str(record.msg)] = now
            log.warning("the collector did not take it", error=record.getMessage())


def log_exporter_errors() -> None:
    """Send the errors of OpenTelemetry's exporters to the service's log."""
    exporters = logging.getLogger(EXPORTER_LOGGER)
    exporters.propagate = False
    if not exporters.handlers:
        exporters.addHandler(ThrottledExporterLog())


def resource_of(instance: str) -> Resource:
    """Return the service's identity; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override it."""
    attributes = {
        "service.name": "dither",
        "service.version": version("dither"),
        "service.instance.id": instance,
    }
    return Resource(attributes).merge(OTELResourceDetector().detect())


class OtlpSender(Collector):
    """Sends metrics by OTLP in a thread, every `otlp.interval`, and counts the outcomes.

    Headers, certificates, compression and timeout come from OpenTelemetry's environment variables
    (``OTEL_EXPORTER_OTLP_HEADERS`` and others).

    Parameters
    ----------
    instance : str
        The name of this process.
    collect : callable
        Returns the families of a scrape.
    """

    def __init__(
        self, settings: Settings, instance: str, collect: Callable[[], Iterable[Family]]
    ) -> None:
        self._collect = collect
        self._interval = milliseconds(settings.otlp.interval) / 1000
        self._translation = Translation(resource_of(instance))
        self._exporter = OTLPMetricExporter(f"{settings.otlp.endpoint.rstrip('/')}/v1/metrics")
        self._results = Counter[str]()
        self._reason = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Start sending."""
        log_exporter_errors()
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and abandon a running export."""
        self._stopped.set()
        self._exporter.shutdown()
        self._thread.join(STOP_SECONDS)

    def collect(self) -> Iterable[Family]:
        """Return the number of exports by outcome."""
        families = Families()
        for result in ("delivered", "refused", "unreadable"):
            families.put(metric_definitions.OTLP_EXPORTS, self._results[result], result)
        return families.filled()

    def send(self) -> str:
        """Read the metrics, and send them to the collector.

        Returns
        -------
        str
            ``"delivered"``; ``"refused"`` by the collector; ``"unreadable"`` if nothing was sent
            because the metrics could not be read.
        """
        try:
            metrics = self._translation.translate(self._collect(), time.time_ns())
        except (redis.RedisError, DitherError) as error:
            is_redis = isinstance(error, redis.RedisError)
            reason, result = explain_redis_error(error) if is_redis else str(error), "unreadable"
            if reason != self._reason:
                log.warning("metrics are not sent: they cannot be read", reason=reason)
            self._reason = reason
        else:
            self._reason = ""
            is_delivered = self._exporter.export(metrics) is MetricExportResult.SUCCESS
            result = "delivered" if is_delivered else "refused"
        self._results[result] += 1
        return result

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self.send()
            except Exception:  # a defect in one export must not end the thread
                self._results["unreadable"] += 1
                log.exception("metrics are not sent")
