"""Spans of the service's work and of its requests, sent by OTLP."""

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
from aggregator.tracing import Attributes, Span, Tracer

SERVER_ERROR_STATUS = 500
TRACE_CONTEXT_HEADERS = ("traceparent", "tracestate")
STOP_SECONDS = 3.0
"""The time for sending the last spans; an unreachable collector delays the exit no longer."""


class RecordedSpan(Span):
    """A span of OpenTelemetry, which is sent when it ends."""

    def __init__(self, span: OpenTelemetrySpan) -> None:
        self._span = span
        self.context = set_span_in_context(span, Context())

    def put(self, attributes: Attributes) -> None:
        """Add attributes to the span."""
        self._span.set_attributes(attributes)

    def note(self, event: str) -> None:
        """Add an event with the present time to the span."""
        self._span.add_event(event)

    def end(self, error: BaseException | None = None) -> None:
        """End the span; record only the class of an error, because its text may be confidential."""
        if error is not None:
            self._span.set_attribute("error.type", type(error).__qualname__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Tracing(Tracer):
    """Sends spans in a thread; OpenTelemetry's environment variables apply (OTEL_TRACES_SAMPLER).

    Parameters
    ----------
    instance : str
        The name of this process.
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
        """Begin a span of the service's own work: a child of `parent`, or the root of a trace."""
        context = parent.context if isinstance(parent, RecordedSpan) else Context()
        return RecordedSpan(
            self._tracer.start_span(name, context, attributes=attributes, start_time=start_ns)
        )

    def begin_request(self, method: str, headers: Mapping[str, str]) -> OpenTelemetrySpan:
        """Begin the span of a request: a child of the client's span, if its headers name one.

        Parameters
        ----------
        method : str
            A known HTTP method.
        headers : mapping of str to str
            The request's headers, with names in lower case.
        """
        carrier = {name: headers[name] for name in TRACE_CONTEXT_HEADERS if name in headers}
        context = self._propagator.extract(carrier)
        attributes = {"http.request.method": method}
        return self._tracer.start_span(method, context, SpanKind.SERVER, attributes)

    def end_request(
        self, span: OpenTelemetrySpan, method: str, route: str, status: int | None
    ) -> None:
        """End the span of a request.

        `span`: the span; `method`: the request's method; `route`: the template of the route; empty
        for an unknown path; `status`: the HTTP status; None if there was no answer.
        """
        if route:
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
        if status is not None:
            span.set_attribute("http.response.status_code", status)
        if status is None or status >= SERVER_ERROR_STATUS:
            span.set_status(StatusCode.ERROR)
        span.end()

    def stop(self) -> None:
        """Send the finished spans, but stop after at most `STOP_SECONDS`."""
        shutdown = threading.Thread(target=self._provider.shutdown, name="otlp spans", daemon=True)
        shutdown.start()
        shutdown.join(STOP_SECONDS)
