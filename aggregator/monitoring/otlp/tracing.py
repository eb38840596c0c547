"""Spans of requests, sent by OTLP."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aggregator.config.settings import Settings
from aggregator.monitoring.otlp.sender import log_exporter_errors, resource_of

FAILED = 500
CONTEXT = ("traceparent", "tracestate")


class Tracing:
    """Sends spans in a thread.

    OTEL_TRACES_SAMPLER and the other environment variables of OpenTelemetry's SDK and exporter
    apply.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        log_exporter_errors()
        self._provider = TracerProvider(resource=resource_of(settings), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{settings.otlp.endpoint.rstrip('/')}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("dither")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, headers: Mapping[str, str]) -> Span:
        """Begin the span of a request, as a child of the client's if it names one.

        Parameters
        ----------
        method : str
            Of HTTP, one of few.
        headers : mapping of str to str
            With names in lower case.
        """
        carrier = {name: headers[name] for name in CONTEXT if name in headers}
        context = self._propagator.extract(carrier)
        attributes = {"http.request.method": method}
        return self._tracer.start_span(method, context, SpanKind.SERVER, attributes)

    def end(self, span: Span, method: str, route: str, status: int | None) -> None:
        """End the span of a request.

        Parameters
        ----------
        span : Span
        method : str
            Of HTTP.
        route : str
            As it is declared, without values; empty if there is none.
        status : int or None
            The answer's; None: there is none.
        """
        if route:
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
        if status is not None:
            span.set_attribute("http.response.status_code", status)
        if status is None or status >= FAILED:
            span.set_status(StatusCode.ERROR)
        span.end()

    def stop(self) -> None:
        """Send the spans that ended, and stop."""
        self._provider.shutdown()
