"""Routes of the status and of the stream of live events."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import anyio
import redis
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.errors import StateUnreadable
from aggregator.reading import status
from aggregator.reading.status import ServiceStatus
from aggregator.web.http.middleware import ABORT_KEY
from aggregator.web.http.problem_responses import RETRY_SECONDS, redis_failure
from aggregator.web.live_followers import Follower
from aggregator.web.operations import Content, Operation, Service, as_json
from aggregator.web.query_parameters import EventsParameters, parse
from producers.gateway.problems import Problem
from producers.gateway.rate_limits import client_of

HEARTBEAT_SECONDS = 15
LEAVE_SECONDS = 1


@Operation(
    path="/v1/status",
    summary="Outcomes and rates of all metrics, and how far every partition is counted.",
    answers={200: Content("The status, also while Redis does not answer.", ServiceStatus)},
    problems=(),
)
async def show_status(service: Service, request: Request) -> Response:
    """Answer with the status."""
    try:
        overview = await service.probes.run(request, service.reader.store.overview)
        current_status = await service.probes.run(request, service.status, overview)
    except (redis.RedisError, StateUnreadable) as error:
        return as_json(status.unreachable(redis_failure(error), service.reader.metrics))
    return as_json(current_status, headers={"Cache-Control": "no-store"})


@Operation(
    path="/v1/events",
    summary="Server-sent events: estimates as they change, the status, and new policies.",
    query=EventsParameters,
    headers={"Last-Event-ID": "Id of the last event seen; newer events follow."},
    answers={
        200: Content(
            "A stream. `event: estimate` has an Answer (the running total, whenever it changed, at "
            "most once a second and metric), `event: status` a ServiceStatus, `event: policy` a "
            "PolicyChange. An event replaces the earlier ones of its kind and metric.",
            media=("text/event-stream",),
        )
    },
)
async def events(service: Service, request: Request) -> Response:
    """Answer with a stream of events."""
    query = parse(request, EventsParameters)
    metrics = frozenset(service.reader.metric(name).name for name in query.metric)
    limits, client = service.settings.serve, client_of(request.scope)
    if service.hub.count_streams(client) >= limits.max_streams_per_client:
        raise Problem(
            429,
            f"{client} already follows {limits.max_streams_per_client} streams",
            "close one of them, or raise [serve] max_streams_per_client; behind a proxy, name it "
            "in [serve] trusted_proxies, so that its clients are counted separately",
            retry_after=RETRY_SECONDS,
        )
    if len(service.hub) >= limits.max_streams:
        raise Problem(
            503,
            f"{limits.max_streams} clients already follow the events",
            "try again later, or raise [serve] max_streams",
            retry_after=RETRY_SECONDS,
        )
    top = query.top or limits.top_categories
    last_id = request.headers.get("last-event-id") or query.last_event_id or ""
    return EventStream(functools.partial(service.hub.follow, metrics or None, top, last_id))


class EventStream(Response):
    """The response that follows the hub until the client leaves or is cut off.

    `follow`: begins to follow, given how to cut the client off, and the client.
    """

    def __init__(self, follow: Callable[..., AbstractContextManager[Follower]]) -> None:
        super().__init__()
        self._follow = follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events of the hub until the client leaves."""
        with anyio.CancelScope() as stream:
            # an abort also drops the connection's buffer, if the server supports it
            cut = scope.get(ABORT_KEY) or stream.cancel
            with self._follow(cut, client_of(scope)) as follower:
                leaving = anyio.Event()

                async def end() -> None:
                    await leaving.wait()
                    follower.end()

                response = EventSourceResponse(
                    follower.frames(),
                    ping=HEARTBEAT_SECONDS,
                    sep="\n",
                    data_sender_callable=end,
                    shutdown_event=leaving,
                    shutdown_grace_period=LEAVE_SECONDS,
                )
                await response(scope, receive, send)


class Abortable:
    """The outermost middleware, which can abort a slow client's connection.

    ASGI has no message for that; uvicorn's `receive` is a method of an object with the transport.
    With another server the stream ends, but its buffer stays until the client disconnects.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add to the scope a function that aborts the connection."""
        transport: Any = getattr(getattr(receive, "__self__", None), "transport", None)
        abort: Callable[[], None] | None = getattr(transport, "abort", None)
        if abort is not None:
            scope[ABORT_KEY] = abort
        await self.app(scope, receive, send)


EVENT_OPERATIONS = (show_status, events)
