"""An exporter for the OpenTelemetry SDK: instruments' measurements become randomized reports.

`mapping` chooses the reported values of an instrument, `points` makes one value of its data points,
and `exporter` reports it.
"""

try:
    import opentelemetry.sdk.metrics as _metrics  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "producers.otel needs opentelemetry-sdk, which is not installed: "
        "pip install 'dither[otel]' brings it",
        name=error.name,
    ) from error
