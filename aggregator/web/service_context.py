"""The shared context of operations: reader, settings, and pools of threads."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from starlette.requests import Request

from aggregator.config.live_metrics import current
from aggregator.config.setting_checks import parse_groupings, publish_since_ms
from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import Ends, KafkaLog
from aggregator.monitoring.answer_samples import SliceExport
from aggregator.monitoring.collector import Exporter
from aggregator.reading.reader import MetricReader
from aggregator.reading.status import Rates, ServiceStatus, silence_ms, status
from aggregator.storage.eviction import EvictionWatch
from aggregator.storage.progress import TopicProgress
from aggregator.web.event_hub import Hub
from aggregator.web.http.pools import Pool
from aggregator.web.http.traffic import Traffic
from estimators import Metric

if TYPE_CHECKING:
    from aggregator.publishing.publisher import Publisher
    from producers.gateway import Gateway


@runtime_checkable
class Closable(Protocol):
    """An object that is closed with the server."""

    def close(self) -> None:
        """Close the object, and end its threads."""


S = TypeVar("S")


@dataclasses.dataclass(eq=False)
class Service:
    """The reader, the settings and the shared objects that the handlers of all operations use.

    Attributes
    ----------
    log_ends : Ends, optional
        Returns the ends of the log; by default the publisher's, or else it asks the settings'
        Kafka.
    gateway : Gateway, optional
        Accepts posts; None if this server accepts none.
    publisher : Publisher, optional
        Publishes events; None if this server publishes none.
    collectors : sequence of Collector
        Collectors that export the counts of other parts of this server.
    silent_ms : int
        After this time without a commit, the status says that no worker counts.
    """

    reader: MetricReader
    settings: Settings
    log_ends: Ends | None = None
    gateway: Gateway | None = None
    publisher: Publisher | None = None
    collectors: Sequence[Collector] = ()

    def __post_init__(self) -> None:
        of_publisher = None if self.publisher is None else self.publisher.ends
        self.ends = self.log_ends or of_publisher or KafkaLog(self.settings)
        self.silent_ms = silence_ms(self.settings)
        self.traffic, self.rates = Traffic(), Rates()
        self._lock, self._shared = threading.Lock(), dict[type[object], object]()
        self._hashed: tuple[Mapping[str, Metric], str] = {}, ""

    @property
    def needs_redis(self) -> bool:
        """Whether this server needs Redis: it publishes, or it accepts no reports."""
        return self.settings.publish.enabled or self.gateway is None

    def status(self, overview: TopicProgress) -> ServiceStatus:
        """Return the status of the service."""
        new_status = status(overview, self.reader.metrics, self.rates, self.ends(), self.silent_ms)
        missing, definitions_hash = self.reader.sums.missing_panes(), self.definitions_hash()
        return msgspec.structs.replace(
            new_status, missing=missing, definitions_hash=definitions_hash
        )

    def definitions_hash(self) -> str:
        """Return a hash of all definitions."""
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
        reader_options = self.reader, top, since_ms, self.ends, self.silent_ms, slices
        registry.register(Exporter(*reader_options, redis_optional=not self.needs_redis))
        for collector in (self.traffic, *self.collectors):
            registry.register(collector)
        return registry

    @functools.cached_property
    def eviction(self) -> EvictionWatch:
        """Watches whether Redis may evict counts."""
        return EvictionWatch(self.reader.store.client)

    def shared(self, kind: type[S], build: Callable[[], S]) -> S:
        """Return a feature's shared object, built on first use and closed with the server."""
        with self._lock:
            if kind not in self._shared:
                self._shared[kind] = build()
            shared = self._shared[kind]
        assert isinstance(shared, kind)  # noqa: S101
        return shared

    def close(self) -> None:
        """Close the shared objects of features."""
        for shared in self._shared.values():
            if isinstance(shared, Closable):
                shared.close()

    def metric_name(self, request: Request) -> str:
        """Return the name of the metric in a request's path.

        Raises UnknownMetric if it is not defined.
        """
        return self.reader.metric(request.path_params["name"]).name

    @functools.cached_property
    def hub(self) -> Hub:
        """The hub of live events."""
        return Hub(self.reader, self.status)

    @functools.cached_property
    def lookups(self) -> Pool:
        """The pool for cheap reads: readiness, and the definitions and rounds that devices fetch.

        Many devices behind a proxy that is not trusted count as one client.
        """
        return Pool(threads=4, share=2, waiting=150)

    @functools.cached_property
    def estimates(self) -> Pool:
        """The pool for single estimates."""
        return Pool(threads=4, share=2)

    @functools.cached_property
    def surveys(self) -> Pool:
        """The pool for questions that need many estimates, and seconds of processor time."""
        return Pool(threads=2, share=1)

    @functools.cached_property
    def probes(self) -> Pool:
        """The pool for the status, Prometheus and the documents of the interface."""
        return Pool(threads=4, share=2)
