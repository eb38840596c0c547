"""An OTLP receiver over HTTP, which decodes with OpenTelemetry's own generated code."""

import contextlib
import gzip
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.running.served_application import served_plainly

SUFFIXES = {"s": "_seconds", "By": "_bytes"}
KINDS: dict[str, tuple[Any, Any]] = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}

Series = tuple[str, frozenset[tuple[str, str]]]


class Receiver:
    """What was posted, by path, in the form of OTLP's JSON; answers have `status`."""

    def __init__(self) -> None:
        self.url, self.status = "", 200
        self.received: dict[str, list[dict[str, Any]]] = {path: [] for path in KINDS}

    def metrics(self, place: int = -1) -> list[dict[str, Any]]:
        """Return the metrics of the export at index `place`, by default of the last one."""
        (resource,) = self.received["/v1/metrics"][place]["resourceMetrics"]
        (scope,) = resource["scopeMetrics"]
        found: list[dict[str, Any]] = scope["metrics"]
        return found

    def spans(self) -> list[dict[str, Any]]:
        """Return all spans."""
        return [
            span
            for export in self.received["/v1/traces"]
            for resource in export["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


def attributes_of(item: dict[str, Any]) -> dict[str, str]:
    """Return the attributes of a point, a span or a resource, as texts."""
    return {
        one["key"]: str(next(iter(one["value"].values()))) for one in item.get("attributes", [])
    }


def in_prometheus(metrics: list[dict[str, Any]]) -> dict[Series, float]:
    """Return the samples into which Prometheus converts OTLP metrics, by its specification."""
    found: dict[Series, float] = {}
    for metric in metrics:
        name = metric["name"].replace(".", "_") + SUFFIXES.get(metric.get("unit", ""), "")
        for point in metric.get("gauge", {}).get("dataPoints", []):
            found[name, frozenset(attributes_of(point).items())] = float(point["asDouble"])
        for point in metric.get("sum", {}).get("dataPoints", []):
            found[f"{name}_total", frozenset(attributes_of(point).items())] = float(point["asInt"])
        for point in metric.get("histogram", {}).get("dataPoints", []):
            labels, below = frozenset(attributes_of(point).items()), 0
            bounds = [str(float(bound)) for bound in point["explicitBounds"]]
            for bound, count in zip([*bounds, "+Inf"], point["bucketCounts"], strict=True):
                below += int(count)
                found[f"{name}_bucket", labels | {("le", bound)}] = below
            found[f"{name}_count", labels] = float(point.get("count", 0))
            found[f"{name}_sum", labels] = float(point["sum"])
    return found


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver that takes OTLP in protobuf, and in JSON from a collector."""
    receiver = Receiver()

    async def take(request: Request) -> Response:
        body, path = await request.body(), request.url.path
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        asked, answer = KINDS[path]
        if request.headers["Content-Type"] == "application/json":
            message = json_format.Parse(body, asked(), ignore_unknown_fields=True)
        else:
            message = asked.FromString(body)
        if receiver.status == 200:
            receiver.received[path].append(json_format.MessageToDict(message))
        told = answer().SerializeToString()
        return Response(told, receiver.status, media_type="application/x-protobuf")

    app = Starlette(routes=[Route(path, take, methods=["POST"]) for path in KINDS])
    with served_plainly(app) as receiver.url:
        yield receiver
