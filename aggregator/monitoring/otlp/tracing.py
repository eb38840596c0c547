"""Spans of the service's work and of requests, sent by OTLP."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as OpenTelemetrySpan
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aggregator.config.settings import Settings
from aggregator.monitoring.otlp.sender import log_exporter_errors, resource_of
from aggregator.tracing.spans import Attributes, Span, Tracer

FAILED = 500
CONTEXT = ("traceparent", "tracestate")
STOP_SECONDS = 3.0
"""For the last spans: a collector that does not answer must not hold up a process that ends."""


class RecordedSpan(Span):
    """A span that is sent when it ends.

    Parameters
    ----------
    span : OpenTelemetrySpan
    """

    def __init__(self, span: OpenTelemetrySpan) -> None:
        self._span = span
        self.context = set_span_in_context(span, Context())

    def put(self, attributes: Attributes) -> None:
        """Add attributes."""
        self._span.set_attributes(attributes)

    def note(self, event: str) -> None:
        """Add an event, at this moment."""
        self._span.add_event(event)

    def end(self, error: BaseException | None = None) -> None:
        """End it, with the class of an error: its text may say what must not be sent."""
        if error is not None:
            self._span.set_attribute("error.type", type(error).__qualname__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Tracing(Tracer):
    """Sends spans in a thread.

    OTEL_TRACES_SAMPLER and the other environment variables of OpenTelemetry's SDK and exporter
    apply.

    Parameters
    ----------
    settings : Settings
    instance : str
        What tells this process from others of the service.
    """

    def __init__(self, settings: Settings, instance: str) -> None:
        log_exporter_errors()
        self._provider = TracerProvider(resource=resource_of(instance), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{settings.otlp.endpoint.rstrip('/')}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("dither")
        self._propagator = TraceContextTextMapPropagator()

    def begin(
        self,
        name: str,
        attributes: Attributes | None = None,
        parent: Span | None = None,
        start_ns: int | None = None,
    ) -> RecordedSpan:
        """Begin a span of the service's own work, as a child of another or as a trace's first."""
        context = parent.context if isinstance(parent, RecordedSpan) else Context()
        return RecordedSpan(
            self._tracer.start_span(name, context, attributes=attributes, start_time=start_ns)
        )

    def begin_request(self, method: str, headers: Mapping[str, str]) -> OpenTelemetrySpan:
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

    def end_request(
        self, span: OpenTelemetrySpan, method: str, route: str, status: int | None
    ) -> None:
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
        """Send the spans that ended, and stop; what takes longer than a moment is given up."""
        last = threading.Thread(target=self._provider.shutdown, name="otlp spans", daemon=True)
        last.start()
        last.join(STOP_SECONDS)
