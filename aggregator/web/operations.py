"""Operations of the HTTP interface, with their descriptions, and the service that handlers use."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.config.live_metrics import current
from aggregator.config.setting_checks import parse_groupings, publish_since_ms
from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import Ends, KafkaLog
from aggregator.monitoring.answer_samples import SliceExport
from aggregator.monitoring.collector import Exporter
from aggregator.reading.frames.frame import Frame
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

S = TypeVar("S")
Handler = Callable[["Service", Request], Awaitable[Response]]
JSON_TYPE = "application/json"
CSV_TYPE = "text/csv"


@runtime_checkable
class Closable(Protocol):
    """An object that is closed with the server."""

    def close(self) -> None:
        """Close the object, and end its threads."""


@dataclasses.dataclass(eq=False)
class Service:
    """The reader, the settings and the shared objects that the handlers of all operations use.

    Attributes
    ----------
    log_ends : Ends, optional
        Returns the ends of the log; by default it asks the settings' Kafka.
    gateway : Gateway, optional
        Accepts posts; None if this server accepts none.
    publisher : Publisher, optional
        Publishes events; None if this server publishes none.
    collectors : sequence of Collector
        Collectors that export the counts of other parts of this server.
    silent_ms : int
        After this time without a commit, the status says that no worker counts.
    eviction : EvictionWatch
        Watches whether Redis may evict counts.
    hub : Hub
        The hub of live events.
    """

    reader: MetricReader
    settings: Settings
    log_ends: Ends | None = None
    gateway: Gateway | None = None
    publisher: Publisher | None = None
    collectors: Sequence[Collector] = ()

    def __post_init__(self) -> None:
        self.ends = self.log_ends or KafkaLog(self.settings)
        self.silent_ms = silence_ms(self.settings)
        self.traffic, self.rates = Traffic(), Rates()
        self._lock, self._shared = threading.Lock(), dict[type[object], object]()
        self._hashed: tuple[Mapping[str, Metric], str] = {}, ""
        self.eviction = EvictionWatch(self.reader.store.client)
        self.hub = Hub(self.reader, self.status)
        # For cheap reads: readiness, and the definitions and rounds that devices fetch. Many
        # devices behind a proxy that is not trusted count as one client.
        self.lookups = Pool(threads=4, share=2, waiting=150)
        self.estimates = Pool(threads=4, share=2)  # for single estimates
        # For questions that need many estimates, and seconds of processor time.
        self.surveys = Pool(threads=2, share=1)
        # For the status, Prometheus and the documents of the interface.
        self.probes = Pool(threads=4, share=2)

    @property
    def needs_redis(self) -> bool:
        """Whether this server needs Redis: it publishes, or it accepts no reports."""
        return self.settings.publish.enabled or self.gateway is None

    def status(self, overview: TopicProgress) -> ServiceStatus:
        """Return the status of the service."""
        new_status = status(overview, self.reader.metrics, self.rates, self.ends(), self.silent_ms)
        missing, digest = self.reader.sums.missing_panes(), self.definitions_hash()
        return msgspec.structs.replace(new_status, missing=missing, definitions_hash=digest)

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


@dataclasses.dataclass(frozen=True)
class Content:
    """The possible contents of the body of a request or an answer.

    Attributes
    ----------
    schema, or_schema : struct, optional
        The structs that the JSON may be.
    is_table : bool
        Whether CSV is also available.
    plain : mapping
        The schema of a body that is not a struct.
    binary : tuple of str
        Binary media types.
    """

    described: str
    schema: Any = None
    media: tuple[str, ...] = (JSON_TYPE,)
    plain: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"type": "string"})
    binary: tuple[str, ...] = ()
    or_schema: Any = None
    is_table: bool = False

    @property
    def schemas(self) -> list[Any]:
        """The structs of the JSON."""
        return [schema for schema in (self.schema, self.or_schema) if schema is not None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """The operation of one method on one path.

    Attributes
    ----------
    scopes : tuple of str
        The scopes, each of which grants access; empty for a public operation.
    query : struct, optional
        The query parameters.
    headers : mapping of str to str
        Descriptions of the request's headers.
    body : Content, optional
        The body of the request.
    answers : mapping of int to Content
        The body of the answer with each status.
    conditional : bool
        Whether the answer may have the status 304.
    problems : tuple of int
        Statuses of problems, except those of access control.
    handler : callable, optional
        Called for requests; None if another package serves the route.
    """

    method: str = "GET"
    path: str
    summary: str
    scopes: tuple[str, ...] = ("read",)
    query: type[msgspec.Struct] | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: Content | None = None
    answers: Mapping[int, Content]
    conditional: bool = False
    problems: tuple[int, ...] = (400, 404, 429, 503)
    handler: Handler | None = None

    def __call__(self, handler: Handler) -> Operation:
        """Decorate a handler: return this operation with the handler."""
        return dataclasses.replace(self, handler=handler)

    def route(self, service: Service) -> Route:
        """Return the route that calls the handler with a service."""
        assert self.handler is not None  # noqa: S101
        return Route(self.path, functools.partial(self.handler, service), methods=[self.method])


def as_table(table: Frame, name: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a table as CSV.

    `table`: the table; `name`: the name of the file, without its suffix; `headers`, optional:
    further headers.
    """
    named = {"Content-Disposition": f'attachment; filename="{name}.csv"', **(headers or {})}
    return Response(table.to_csv(), headers=named, media_type=CSV_TYPE)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a struct or plain values as JSON.

    `value`: a struct, or plain values; `status`: the HTTP status; `headers`, optional: further
    headers.
    """
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON_TYPE)


def validators(*facts: Any) -> dict[str, str]:
    """Return headers with an entity tag made of the facts that determine an answer."""
    digest = hashlib.blake2b(repr((version("dither"), facts)).encode(), digest_size=12).hexdigest()
    return {"ETag": f'W/"{digest}"', "Cache-Control": "no-cache"}


def not_modified(request: Request, headers: Mapping[str, str]) -> Response | None:
    """Return a response with status 304 if the client already has the answer with these headers."""
    client_tags = request.headers.get("if-none-match", "")
    tags = {part.strip().removeprefix("W/") for part in client_tags.split(",")}
    is_current = "*" in tags or headers["ETag"].removeprefix("W/") in tags
    return Response(status_code=304, headers=headers) if is_current else None


def as_json_unless_known(request: Request, value: Any) -> Response:
    """Return a response with a value and its tag; with status 304 if the client has the value."""
    tag = validators(hashlib.blake2b(msgspec.json.encode(value)).hexdigest())
    return not_modified(request, tag) or as_json(value, headers=tag)
