"""`POST /v1/reports` and `/v1/reports/batches`: acknowledged when Kafka has the reports."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, ParamSpec, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from estimators import Metric
from producers.gateway.bodies import ANY_TIME, MEDIA_TYPES, PostedBatch, Times, read_batch
from producers.gateway.clients import Client, Clients, client_of
from producers.gateway.encodings import expand
from producers.gateway.heads import Head, read_head
from producers.gateway.problems import Problem, unavailable
from producers.gateway.sender import Outcome, Sender
from producers.gateway.several import answer_each, read_each, split

P = ParamSpec("P")
T = TypeVar("T")

PATH = "/v1/reports"
BATCHES_PATH = "/v1/reports/batches"
RATE_LIMIT = "100/second"
RATE_LIMIT_BYTES = "1000000/second"
RATE_LIMIT_REPORTS = "100000/second"
MAX_BODY = 240_000
"""Bytes; a batch of them fits into a message of the default size."""
MAX_IN_FLIGHT = 64 * 2**20
POST_OVERHEAD = 4096
"""Bytes that a post takes beside its body: request, task, future, librdkafka's message."""
ACKNOWLEDGE_TIMEOUT = 10.0
BODY_SECONDS = 10.0
CHECKED_AT_ONCE = 8192
"""Bytes of a body that are checked in the event loop; a larger one is checked in a thread."""
LOOK_SECONDS = 4.0
"""That a question about readiness waits for Kafka's answer at most."""

OVERHEARD = "true values of a metric with trusted collection over HTTP without TLS"
USE_TLS = (
    "these values may have been intercepted. Post to an https:// address (serve.tls_certificate, "
    "or a proxy with TLS that serve.trusted_proxies names); gateway.trusted_without_tls = true "
    "accepts them without TLS, for clients on the same machine"
)
POST_AGAIN = "post again after the time in Retry-After"
SAME_BATCH = "post the same batch again, with the same batch_id and time: it is counted once"


class Gateway:
    """Takes reports over HTTP and hands them to Kafka.

    A post is answered 202 only after Kafka has acknowledged its batch (acks=all, idempotent). Every
    other answer is a problem (RFC 9457) that says what to do.

    Parameters
    ----------
    metrics : mapping of str to Metric
    config : mapping
        librdkafka's properties.
    topic : str
    rate_limit, rate_limit_bytes, rate_limit_reports : str
        Limits for one client, on posts, bytes and reports, as in ``"100/second"``; empty: no limit.
    max_body : int
        The largest post, in bytes.
    max_in_flight : int
        Bytes of all posts that Kafka has not acknowledged yet, 4 KiB more for each; above it a post
        is answered 503.
    acknowledge_timeout : float
        Seconds until a post that Kafka has not acknowledged is answered 504.
    trusted_without_tls : bool
        Whether true values (metrics with ``trust = "central"``) may come over plain HTTP.
    times : Times
        The event times that it accepts.
    prepare : callable, optional
        Called in a thread until it does not raise, before anything is sent: to create the topic.
    schema_id : int, optional
        As of :class:`producers.Reporter`: batches go to Kafka in the frame of a schema registry.

    Attributes
    ----------
    in_flight : int
        Bytes of posts in progress, 4 KiB more for each.

    Raises
    ------
    ValueError
        If a parameter cannot be used.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1])
    >>> gateway = Gateway({"late": metric}, {"bootstrap.servers": "localhost:9092"}, "reports")
    >>> [route.path for route in gateway.routes]
    ['/v1/reports', '/v1/reports/batches']
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        config: Mapping[str, Any],
        topic: str,
        *,
        rate_limit: str = RATE_LIMIT,
        rate_limit_bytes: str = RATE_LIMIT_BYTES,
        rate_limit_reports: str = RATE_LIMIT_REPORTS,
        max_body: int = MAX_BODY,
        max_in_flight: int = MAX_IN_FLIGHT,
        acknowledge_timeout: float = ACKNOWLEDGE_TIMEOUT,
        trusted_without_tls: bool = False,
        times: Times = ANY_TIME,
        prepare: Callable[[], object] | None = None,
        schema_id: int | None = None,
    ) -> None:
        if not 0 < max_body <= max_in_flight - POST_OVERHEAD:
            raise ValueError(
                f"max_body = {max_body}: expected bytes, at least one and {POST_OVERHEAD} fewer "
                f"than max_in_flight = {max_in_flight}"
            )
        if not acknowledge_timeout > 0:
            raise ValueError(f"acknowledge_timeout = {acknowledge_timeout}: expected seconds")
        self.metrics, self.max_body, self.max_in_flight = metrics, max_body, max_in_flight
        self.in_flight, self._times = 0, times
        self._trusted_without_tls = trusted_without_tls
        self._clients = Clients(rate_limit, rate_limit_bytes, rate_limit_reports)
        self._sender = Sender(config, topic, acknowledge_timeout, prepare, schema_id)
        self._checking: ThreadPoolExecutor | None = None

    @property
    def routes(self) -> list[Route]:
        """The routes to mount."""
        return [
            Route(PATH, _Endpoint(self.post), methods=["POST"], name="reports"),
            Route(BATCHES_PATH, _Endpoint(self.post_batches), methods=["POST"], name="batches"),
        ]

    def start(self) -> None:
        """Start connecting in the running event loop; Kafka need not be reachable."""
        self._checking = ThreadPoolExecutor(1, thread_name_prefix="dither-check")
        self._sender.start()

    async def close(self) -> None:
        """Wait for what is under way, but not longer than the timeout."""
        await self._sender.close()
        if self._checking is not None:
            self._checking.shutdown(wait=False)

    async def check_kafka(self) -> str:
        """Ask Kafka, and return why posts cannot be taken now; empty if they can."""
        await asyncio.to_thread(self._sender.presence.check, LOOK_SECONDS)
        return self._sender.obstacle

    @property
    def stalled(self) -> str:
        """Why the last posts were not acknowledged though Kafka answers; empty if they were."""
        if not self._sender.is_stalled:
            return ""
        return (
            f"Kafka has acknowledged no post since one timed out after {self._sender.timeout:g} s, "
            f"although a broker may answer: topic {self._sender.topic!r} may have fewer "
            "replicas in sync than min.insync.replicas, or no leader"
        )

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def post(self, scope: Scope, receive: Receive) -> Response:
        """Answer a post of one batch.

        Raises
        ------
        Problem
            If Kafka has not acknowledged it.
        """
        head, client, hold = self._admitted(scope)
        try:
            body = await self._body(receive, head, hold, client)
            batch = await self._in_turn(len(body), self._reader(head.media_type, scope), body)
            self._clients.count("reports", client, batch.reports)
            answered: asyncio.Future[Problem | None] = asyncio.get_running_loop().create_future()
            self._send(batch, functools.partial(_set, answered), hold.release)
        except BaseException:
            hold.release()
            raise
        problem = await answered
        if problem is not None:
            raise problem
        return Response(acknowledgement(batch), HTTPStatus.ACCEPTED, media_type="application/json")

    async def post_batches(self, scope: Scope, receive: Receive) -> Response:
        """Answer a post of several batches: each is sent, and acknowledged, for itself.

        Raises
        ------
        Problem
            If none of them was sent to Kafka.
        """
        head, client, hold = self._admitted(scope)
        try:
            body = await self._body(receive, head, hold, client)
            bodies = split(head.media_type, body)
            hold.reserve((len(bodies) - 1) * POST_OVERHEAD)
            self._clients.charge("posts", client, len(bodies) - 1)
            read = functools.partial(read_each, bodies, self._reader(head.media_type, scope))
            found = await self._in_turn(len(body), read)
            batches = [batch for batch in found if isinstance(batch, PostedBatch)]
            self._clients.count("reports", client, sum(batch.reports for batch in batches))
        except BaseException:
            hold.release()
            raise
        waiting = len(batches)
        if not waiting:
            hold.release()

        def release() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                hold.release()

        return answer_each(found, await asyncio.gather(*(self._sent(b, release) for b in found)))

    async def _sent(
        self, batch: PostedBatch | Problem, release: Callable[[], None]
    ) -> Problem | None:
        """Send one of several batches; return why Kafka has not acknowledged it, or None."""
        if isinstance(batch, Problem):
            return batch
        answered: asyncio.Future[Problem | None] = asyncio.get_running_loop().create_future()
        try:
            self._send(batch, functools.partial(_set, answered), release)
        except Problem as problem:
            release()
            return problem
        return await answered

    def post_whole(
        self,
        head: Head,
        body: bytes,
        client: Client,
        answer: Callable[[PostedBatch, Problem | None], None],
        *,
        is_secret: bool,
    ) -> None:
        """Send a post whose body has arrived, and that is small: the short way of :meth:`post`.

        It does what :meth:`post` does, without a task for the post.

        Parameters
        ----------
        head : Head
            Without an encoding.
        body : bytes
            At most `CHECKED_AT_ONCE`.
        client : Client
        answer : callable
            Called later, once, with None when Kafka has acknowledged the batch, or with why not.
        is_secret : bool
            Whether it came over TLS.

        Raises
        ------
        Problem
            If it was not sent; then `answer` is not called.
        """
        self._check_length(head.length)
        self._clients.admit_client(client, head.length)
        if obstacle := self._sender.obstacle:
            raise unavailable(obstacle, POST_AGAIN)
        hold = _Hold(self)
        try:
            hold.reserve(POST_OVERHEAD + len(body))
            batch = self._read(head.media_type, body, is_secret=is_secret)
            self._clients.count("reports", client, batch.reports)
            self._send(batch, functools.partial(answer, batch), hold.release)
        except BaseException:
            hold.release()
            raise

    def _admitted(self, scope: Scope) -> tuple[Head, Client, _Hold]:
        """Return the head of a post that may send its body, its client, and its memory."""
        head = read_head(scope["headers"], MEDIA_TYPES)
        self._check_length(head.length)
        client = client_of(scope)
        self._clients.admit_client(client, head.length)
        if obstacle := self._sender.obstacle:
            raise unavailable(obstacle, POST_AGAIN)
        hold = _Hold(self)
        hold.reserve(POST_OVERHEAD)
        return head, client, hold

    def _check_length(self, length: int) -> None:
        if length > self.max_body:
            raise self._too_large(f"{length} bytes")

    def _reader(self, media_type: str, scope: Scope) -> Callable[[bytes], PostedBatch]:
        return functools.partial(self._read, media_type, is_secret=scope["scheme"] == "https")

    async def _in_turn(
        self, size: int, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Check a body; others are answered while a large one is checked."""
        if size <= CHECKED_AT_ONCE:
            return read(*args, **kwargs)
        call = functools.partial(read, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._checking, call)

    def _read(self, media_type: str, body: bytes, *, is_secret: bool) -> PostedBatch:
        """Return the batch for Kafka; refuse true values that came without TLS."""
        batch = read_batch(media_type, body, self.metrics, self._times)
        if batch.metric.sends_true_values and not (is_secret or self._trusted_without_tls):
            raise Problem(HTTPStatus.FORBIDDEN, OVERHEARD, USE_TLS)
        return batch

    async def _body(self, receive: Receive, head: Head, hold: _Hold, client: Client) -> bytes:
        """Return the whole body, counted as it comes, and expanded."""
        chunks, more = [], True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    chunks.append(self._chunk(message, hold))
                    if not head.length:
                        self._clients.count("bytes", client, len(chunks[-1]))
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Problem(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body was not complete after {BODY_SECONDS:g} seconds",
                "post it again",
                headers={"Connection": "close"},
            ) from None
        body = b"".join(chunks)
        if head.encoding:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(
                self._checking, expand, head.encoding, body, self.max_body
            )
            hold.reserve(len(body))
        return body

    def _chunk(self, message: Message, hold: _Hold) -> bytes:
        if message["type"] == "http.disconnect":
            raise Problem(
                HTTPStatus.BAD_REQUEST,
                "the client disconnected before its body was complete",
                "post it again",
            )
        chunk: bytes = message.get("body", b"")
        hold.reserve(len(chunk))
        if hold.bytes > self.max_body + POST_OVERHEAD:
            raise self._too_large("more")
        return chunk

    def _too_large(self, found: str) -> Problem:
        return Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a body of {found}: expected at most {self.max_body} bytes",
            "put the reports into several batches, each with an id of its own",
            headers={"Connection": "close"},
        )

    def _send(
        self,
        batch: PostedBatch,
        answer: Callable[[Problem | None], None],
        release: Callable[[], None],
    ) -> None:
        def answered(outcome: Outcome) -> None:
            timeout = self._sender.timeout
            answer(None if outcome is None else _not_acknowledged(batch, outcome, timeout))

        try:
            self._sender.send(batch, answered, release)
        except BufferError:
            raise self.busy() from None
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise _too_large_for_kafka() from None
            if error.args[0].fatal():
                self._sender.replace_failed()
            told = f"Kafka's client refused the batch: {error.args[0].str()}"
            raise unavailable(told, SAME_BATCH) from None

    def busy(self) -> Problem:
        """Return the answer to a post for which there is no memory."""
        told = f"{self.in_flight} bytes of reports wait for Kafka, which is slow or away"
        return unavailable(told, POST_AGAIN)


class _Hold:
    """The memory that one post occupies in the gateway."""

    __slots__ = ("bytes", "gateway")

    def __init__(self, gateway: Gateway) -> None:
        self.gateway, self.bytes = gateway, 0

    def reserve(self, more: int) -> None:
        if self.gateway.in_flight + more > self.gateway.max_in_flight:
            raise self.gateway.busy()
        self.gateway.in_flight += more
        self.bytes += more

    def release(self) -> None:
        self.gateway.in_flight -= self.bytes
        self.bytes = 0


class _Endpoint:
    """A route's endpoint: an ASGI application, without Starlette's objects for a request."""

    def __init__(self, post: Callable[[Scope, Receive], Awaitable[Response]]) -> None:
        self._post = post

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._post(scope, receive)
        except Problem as problem:
            response = problem.response(scope["path"])
        await response(scope, receive, send)


def acknowledgement(batch: PostedBatch) -> bytes:
    """Return the body of the answer to a post that Kafka has acknowledged."""
    return b'{"batch_id":"%b","reports":%d}' % (batch.key.hex().encode(), batch.reports)


def _set(answered: asyncio.Future[Problem | None], problem: Problem | None) -> None:
    if not answered.done():  # its task may have been cancelled
        answered.set_result(problem)


def _too_large_for_kafka() -> Problem:
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "Kafka takes no messages of this size",
        "put the reports into several batches, each with an id of its own",
    )


def _not_acknowledged(batch: PostedBatch, error: KafkaError, seconds: float) -> Problem:
    """Return the answer for a batch that may or may not be in Kafka."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return _too_large_for_kafka()
    name = batch.key.hex()
    status = HTTPStatus.GATEWAY_TIMEOUT
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        told = f"Kafka does not answer: it is unknown whether it has batch {name}"
    elif error.code() == KafkaError._MSG_TIMED_OUT:
        told = (
            f"Kafka has not acknowledged batch {name} within {seconds:g} seconds: it is unknown "
            "whether it has the batch"
        )
    else:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        told = f"Kafka has not acknowledged batch {name}: {error.str()}"
    return unavailable(told, SAME_BATCH, status)
