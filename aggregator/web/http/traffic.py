"""Counts the HTTP server's responses and their times to the first byte, and traces requests."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import Metric as Family
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.counting.measurements import Histogram
from aggregator.monitoring import metric_definitions
from aggregator.monitoring.families import Families
from aggregator.web.http.middleware import on_start

if TYPE_CHECKING:
    from aggregator.monitoring.otlp.tracing import Tracing

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
FAILED_STATUS = 500


class Traffic(Collector):
    """Counts the answers of this process by route template, method and class of status."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str, str]] = Counter()
        self.statuses: Counter[tuple[str, int]] = Counter()
        """Answers by route and status."""
        self._durations: dict[str, tuple[list[int], list[float]]] = {}
        """By route, the answers in each bucket and the sum of their seconds."""

    def collect(self) -> Iterable[Family]:
        """Return the counts and durations of answers."""
        families = Families()
        for labels, count in sorted(self._answers.items()):
            families.put(metric_definitions.HTTP_REQUESTS, count, *labels)
        for route, (counts, [seconds]) in sorted(self._durations.items()):
            histogram = Histogram(tuple(counts), seconds)
            families.histogram(metric_definitions.REQUEST_DURATION, histogram, route)
        return families.filled()

    def count_answer(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answer.

        `route`: the template of the path; `method`: the request's method; `status`: the HTTP status
        of the answer; `seconds`: the time from the request to the start of the answer.
        """
        method_label = method if method in KNOWN_METHODS else "other"
        self._answers[route, method_label, f"{status // 100}xx"] += 1
        self.statuses[route, status] += 1
        buckets = metric_definitions.REQUEST_DURATION.buckets
        if route not in self._durations:
            self._durations[route] = [0] * (len(buckets) + 1), [0.0]
        counts, total = self._durations[route]
        counts[bisect_left(buckets, seconds)] += 1
        total[0] += seconds


class CountTraffic:
    """ASGI middleware that counts every answer in `traffic`."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self.app, self.traffic = app, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count the answer when it begins, as a stream may never end."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, has_begun = time.perf_counter(), False

        def note(status: int) -> None:
            nonlocal has_begun
            if has_begun:
                return
            has_begun = True
            route = getattr(scope.get("route"), "path", "")
            self.traffic.count_answer(route, scope["method"], status, time.perf_counter() - began)

        try:
            await self.app(scope, receive, on_start(send, lambda message: note(message["status"])))
        except Exception:
            note(FAILED_STATUS)
            raise


class TraceRequests:
    """ASGI middleware: a span from each request to the start of its answer.

    A span has the method, the route's template and the status, but neither address nor parameters.

    Parameters
    ----------
    app : ASGI application
        The ASGI application behind this middleware.
    tracing : Tracing
        Begins and ends the spans.
    untraced : frozenset of str
        Paths without spans, such as those of devices, whose times are private.
    """

    def __init__(self, app: ASGIApp, tracing: Tracing, untraced: frozenset[str]) -> None:
        self.app, self._tracing, self._untraced = app, tracing, untraced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; its span ends when the answer begins, as a stream may never end."""
        if scope["type"] != "http" or scope["path"] in self._untraced:
            await self.app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "_OTHER"
        span, has_ended = self._tracing.begin_request(method, Headers(scope=scope)), False

        def end(status: int | None) -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True
                route = getattr(scope.get("route"), "path", "")
                self._tracing.end_request(span, method, route, status)

        try:
            await self.app(scope, receive, on_start(send, lambda message: end(message["status"])))
        finally:
            end(None)
