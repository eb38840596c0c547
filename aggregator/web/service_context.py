"""The context that operations share: reader, settings, and pools of threads."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from aggregator.config.live_metrics import current
from aggregator.config.setting_checks import parse_groupings, publish_since_ms
from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import Ends, KafkaLog
from aggregator.monitoring.collector import Exporter
from aggregator.monitoring.slice_samples import SliceExport
from aggregator.reading.reader import MetricReader
from aggregator.reading.series import SeriesReader
from aggregator.reading.status import Rates, ServiceStatus, silence_ms, status
from aggregator.storage.eviction import EvictionWatch
from aggregator.storage.progress import TopicProgress
from aggregator.web.event_hub import Hub
from aggregator.web.http.pools import Pool
from aggregator.web.http.traffic import Traffic
from estimators import Metric


class Closable(Protocol):
    """What is closed with the server."""

    def close(self) -> None:
        """End its threads."""


S = TypeVar("S", bound=Closable)


@dataclasses.dataclass(eq=False)
class Service:
    """The context of the operations.

    Attributes
    ----------
    reader : MetricReader
    settings : Settings
    asked : Ends, optional
        What to ask where the log ends; the settings' Kafka if left out.
    posts : callable, optional
        Returns why no posts can be taken now; empty if they can. None: this server takes none.
    stalled : callable, optional
        Returns why the last posts were not acknowledged though Kafka answers; empty if they were.
    unpublished : callable, optional
        Returns all that keeps this server from publishing. None: it does not publish.
    ends : Ends
        Where the log ends.
    silent_ms : int
        After so long without a commit, the status says that no worker counts.
    traffic : Traffic
        The answers of this server.
    rates : Rates
        Reports a second.
    historian : SeriesReader
        Series, and the points that are final.
    """

    reader: MetricReader
    settings: Settings
    log_ends: Ends | None = None
    posts: Callable[[], Awaitable[str]] | None = None
    stalled: Callable[[], str] | None = None
    unpublished: Callable[[], list[str]] | None = None

    def __post_init__(self) -> None:
        self.ends = self.log_ends or KafkaLog(self.settings)
        self.silent_ms = silence_ms(self.settings)
        self.traffic, self.rates = Traffic(), Rates()
        self.historian = SeriesReader(self.reader)
        self._lock, self._shared = threading.Lock(), dict[type[Closable], Closable]()
        self._hashed: tuple[Mapping[str, Metric], str] = {}, ""

    @property
    def needs_redis(self) -> bool:
        """Whether this server is of no use without Redis: it publishes, or takes no reports."""
        return self.settings.publish.enabled or self.posts is None

    def status(self, overview: TopicProgress) -> ServiceStatus:
        """Return what operations look at."""
        found = status(overview, self.reader.metrics, self.rates, self.ends(), self.silent_ms)
        missing, known = self.reader.sums.missing_panes(), self.definitions_hash()
        return msgspec.structs.replace(found, missing=missing, definitions_hash=known)

    def definitions_hash(self) -> str:
        """Return a hash of all definitions, which is another one after they were changed."""
        metrics = current(self.reader.metrics)
        if metrics is not self._hashed[0]:
            meanings = "".join(map(self.reader.definition_hash, metrics.values()))
            self._hashed = metrics, hashlib.sha256(meanings.encode()).hexdigest()
        return self._hashed[1]

    @functools.cached_property
    def exported(self) -> CollectorRegistry:
        """The exported Prometheus metrics."""
        registry = CollectorRegistry()
        since_ms = publish_since_ms(self.settings.publish.since)
        serve = self.settings.serve
        top, groupings = serve.top_categories, parse_groupings(serve.slices)
        slices = SliceExport(groupings, serve.top_slices, top)
        asked = self.reader, top, since_ms, self.ends, self.silent_ms, slices
        registry.register(Exporter(*asked, redis_optional=not self.needs_redis))
        registry.register(self.traffic)
        return registry

    @functools.cached_property
    def eviction(self) -> EvictionWatch:
        """Whether Redis may evict what was counted."""
        return EvictionWatch(self.reader.store.client)

    def shared(self, kind: type[S], build: Callable[[], S]) -> S:
        """Return what a feature's operations share: made once, and closed with the server.

        Parameters
        ----------
        kind : type
        build : callable
            Makes it when it is asked for first.
        """
        with self._lock:
            if kind not in self._shared:
                self._shared[kind] = build()
            shared = self._shared[kind]
        assert isinstance(shared, kind)  # noqa: S101
        return shared

    def close(self) -> None:
        """Close what the operations of features share."""
        for shared in self._shared.values():
            shared.close()

    def metric_name(self, request: Request) -> str:
        """Return the name of the metric in a request's path.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        """
        return self.reader.metric(request.path_params["name"]).name

    @functools.cached_property
    def hub(self) -> Hub:
        """Live events."""
        return Hub(self.reader, self.status)

    @functools.cached_property
    def lookups(self) -> Pool:
        """For what takes little: definitions and rounds, which devices fetch, and readiness.

        Many devices may be one client, behind a proxy that is not named.
        """
        return Pool(threads=4, share=2, waiting=150)

    @functools.cached_property
    def estimates(self) -> Pool:
        """For single estimates."""
        return Pool(threads=4, share=2)

    @functools.cached_property
    def surveys(self) -> Pool:
        """For questions that take many estimates: they may need a processor for seconds."""
        return Pool(threads=2, share=1)

    @functools.cached_property
    def probes(self) -> Pool:
        """For the status, Prometheus, and descriptions of the interface."""
        return Pool(threads=4, share=2)
