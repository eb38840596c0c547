"""Metrics and traces, sent to an OpenTelemetry collector by OTLP over HTTP.

`translation` turns Prometheus families into OTLP metrics, `sender` sends them at intervals, and
`tracing` sends spans.
"""

try:
    import opentelemetry.exporter.otlp.proto.http as _http  # noqa: F401
    import opentelemetry.sdk.metrics as _metrics  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "otlp.endpoint needs the OpenTelemetry SDK and its OTLP exporter, which are not installed: "
        "pip install 'dither[otel]' brings them",
        name="opentelemetry",
    ) from error
