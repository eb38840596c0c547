"""Exported metrics and traces, sent to an OpenTelemetry collector by OTLP over HTTP.

`translation` makes OTLP metrics of Prometheus' families, `sender` sends them again and again, and
`tracing` sends spans of requests.
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
