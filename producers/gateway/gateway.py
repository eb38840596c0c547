"""The gateway's routes: a post is acknowledged when Kafka has its reports."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Self, TypeVar, TypeVarTuple

from confluent_kafka import KafkaError, KafkaException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from estimators import Metric
from producers.gateway.bodies import ANY_TIME, MEDIA_TYPES, PostedBatch, Times, read_batch
from producers.gateway.crowds import CROWDS_PATH, Crowds
from producers.gateway.post_answers import (
    acknowledgement,
    answer_each,
    not_acknowledged,
    read_each,
    split,
    too_large_for_kafka,
)
from producers.gateway.problems import POST_AGAIN, SAME_BATCH, Problem, unavailable
from producers.gateway.rate_limits import Client, Clients, client_of
from producers.gateway.receiving import Head, Hold, Memory, Receiver, read_head, too_large
from producers.gateway.sender import Outcome, Sender

logger = logging.getLogger("producers")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

POST_PATH = "/v1/reports"
BATCHES_PATH = "/v1/reports/batches"
RATE_LIMIT = "100/second"
RATE_LIMIT_BYTES = "1000000/second"
RATE_LIMIT_REPORTS = "100000/second"
MAX_BODY = 240_000
"""The most bytes of a body: its batch fits into a Kafka message of the default size."""
MAX_IN_FLIGHT = 64 * 2**20
POST_OVERHEAD = 4096
"""Bytes that a post takes besides its body: request, task, future, librdkafka's message."""
ACKNOWLEDGE_TIMEOUT = 10.0
CHECKED_AT_ONCE = 8192
"""Up to this many bytes, a body is checked in the event loop; a larger body in a thread."""
LOOK_SECONDS = 4.0
"""How long a check of readiness waits for Kafka's answer at most."""

TRUE_VALUES_IN_CLEAR = "true values of a metric with trusted collection over HTTP without TLS"
USE_TLS = (
    "these values may have been intercepted. Post to an https:// address (serve.tls_certificate, "
    "or a proxy with TLS that serve.trusted_proxies names); gateway.trusted_without_tls = true "
    "accepts them without TLS, for clients on the same machine"
)


class Endpoint:
    """The endpoint of a route: an ASGI application that makes no Starlette object for a request.

    Parameters
    ----------
    post : callable
        Answers a request; it may raise Problem.
    """

    def __init__(self, post: Callable[[Scope, Receive], Awaitable[Response]]) -> None:
        self._post = post

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            response = await self._post(scope, receive)
        except Problem as problem:
            response = problem.response(scope["path"])
        await response(scope, receive, send)


class Gateway:
    """Accepts reports over HTTP, and sends them to Kafka.

    A post is answered 202 only after Kafka has acknowledged its batch (acks=all, idempotent). Every
    other answer is a problem (RFC 9457) that says what to do.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics by name.
    config : mapping
        librdkafka's properties.
    topic : str
        The reports topic.
    rate_limit, rate_limit_bytes, rate_limit_reports : str
        Limits for one client, on posts, bytes and reports, as in ``"100/second"``; "" for none.
    max_body : int
        The largest post, in bytes.
    max_in_flight : int
        The most bytes of all posts that Kafka has not acknowledged, plus 4 KiB for each; beyond it,
        posts are answered 503.
    acknowledge_timeout : float
        After this many seconds, a post that Kafka has not acknowledged is answered 504.
    trusted_without_tls : bool
        Whether true values (metrics with ``trust = "central"``) may come over plain HTTP.
    crowd_keys : str
        A file with private keys that open the crowds which a relay posts; see
        :func:`producers.gateway.crowds.read_keys`. Without it no crowd is accepted.
    times : Times
        Which event times are accepted.
    prepare : callable, optional
        Called in a thread before anything is sent, and again if it raises: it creates the topic.
    schema_id : int, optional
        As for :class:`producers.Reporter`: batches go to Kafka in the frame of a schema registry.
    """

    post_path = POST_PATH
    media_types: tuple[str, ...] = MEDIA_TYPES
    _checking: ThreadPoolExecutor
    _receiver: Receiver

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
        crowd_keys: str = "",
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
        self.metrics, self.max_body = metrics, max_body
        self._memory, self._times = Memory(max_in_flight), times
        self._trusted_without_tls = trusted_without_tls
        self._clients = Clients(rate_limit, rate_limit_bytes, rate_limit_reports)
        self._sender = Sender(config, topic, acknowledge_timeout, prepare, schema_id)
        self.crowds = Crowds(
            metrics,
            crowd_keys,
            times,
            self._check_kafka,
            lambda batch: self._sent_batch(batch, lambda: None),  # not in the memory for posts
        )

    @property
    def routes(self) -> list[Route]:
        """The routes to mount."""
        return [
            Route(POST_PATH, Endpoint(self.post), methods=["POST"], name="reports"),
            Route(BATCHES_PATH, Endpoint(self.post_batches), methods=["POST"], name="batches"),
            Route(CROWDS_PATH, Endpoint(self.crowds.post), methods=["POST"], name="crowds"),
        ]

    async def check_kafka(self) -> str:
        """Query Kafka, and return why posts cannot be accepted now; "" if they can."""
        is_there = await asyncio.to_thread(self._sender.presence.check, LOOK_SECONDS)
        return self._sender.obstacle or ("" if is_there else "Kafka has not answered yet")

    @property
    def stalled(self) -> str:
        """Why the last posts were not acknowledged although Kafka answers; "" if they were."""
        if not self._sender.is_stalled:
            return ""
        return (
            f"Kafka has acknowledged no post since one timed out after {self._sender.timeout:g} s, "
            f"although a broker may answer: topic {self._sender.topic!r} may have fewer "
            "replicas in sync than min.insync.replicas, or no leader"
        )

    async def __aenter__(self) -> Self:
        """Start connecting in the running event loop; Kafka need not be reachable."""
        self._checking = ThreadPoolExecutor(1, thread_name_prefix="dither-check")
        self._receiver = Receiver(self.max_body, self._checking)
        self._sender.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait until the posts under way are answered, or the timeout has passed; then close."""
        await self._sender.close()
        self._checking.shutdown(wait=False)

    async def post(self, scope: Scope, receive: Receive) -> Response:
        """Answer a post of one batch; raise Problem unless Kafka acknowledges it."""
        head, client, hold = self._admitted(scope)
        with hold:
            body = await self._receive_body(receive, head, hold, client)
            batch = await self._in_turn(len(body), self._batch_reader(head.media_type, scope), body)
            self._clients.count("reports", client, batch.reports)
        if (problem := await self._sent_batch(batch, hold.release)) is not None:
            raise problem
        return Response(acknowledgement(batch), HTTPStatus.ACCEPTED, media_type="application/json")

    async def post_batches(self, scope: Scope, receive: Receive) -> Response:
        """Answer a post of several batches, each of which is sent and acknowledged separately.

        Raises Problem if none of the batches was sent to Kafka.
        """
        head, client, hold = self._admitted(scope)
        with hold:
            body = await self._receive_body(receive, head, hold, client)
            hold.reserve(len(body))  # the batches are copies
            bodies = split(head.media_type, body)
            self._clients.count("posts", client, len(bodies) - 1, charged=1)
            hold.reserve((len(bodies) - 1) * POST_OVERHEAD)
            reader = self._batch_reader(head.media_type, scope)
            batches = await self._in_turn(len(body), read_each, bodies, reader)
            sent = [batch for batch in batches if isinstance(batch, PostedBatch)]
            self._clients.count("reports", client, sum(batch.reports for batch in sent))
        left = len(sent)
        if not left:
            hold.release()

        def release() -> None:
            nonlocal left
            left -= 1
            if not left:
                hold.release()

        return answer_each(
            batches, await asyncio.gather(*(self._sent_batch(b, release) for b in batches))
        )

    def _sent_batch(
        self, batch: PostedBatch | Problem, release: Callable[[], None]
    ) -> asyncio.Future[Problem | None]:
        """Send a batch; the result is None, or why Kafka has not acknowledged it.

        A failure concerns only this batch; every other batch of its post gets its own answer.
        """
        answered: asyncio.Future[Problem | None] = asyncio.get_running_loop().create_future()
        if isinstance(batch, Problem):
            answered.set_result(batch)
            return answered
        try:
            self._send(batch, functools.partial(set_answer, answered), release)
        except Exception as error:
            release()
            if isinstance(error, Problem):
                answered.set_result(error)
            else:
                logger.exception("the gateway could not send a batch")
                problem = "the gateway failed at this batch; its log says why"
                answered.set_result(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, problem, SAME_BATCH))
        return answered

    def post_whole(
        self,
        head: Head,
        body: bytes,
        client: Client,
        answer: Callable[[bytes, Problem | None], None],
        *,
        is_secret: bool,
    ) -> None:
        """Send a small post whose body has arrived completely: the fast path.

        It does what :meth:`post` does, without creating a task for the post. `head`: the post's
        head, which must name no encoding; `body`: at most `CHECKED_AT_ONCE` bytes; `client`: the
        client that posts; `answer`: called once, later, with the body of the answer, and None if
        Kafka has acknowledged the batch, or else the problem; `is_secret`: whether the post came
        over TLS. Raises Problem if the batch was not sent; then `answer` is not called.
        """
        hold = self._admit(head, client)
        with hold:
            hold.reserve(len(body))
            batch = self._read(head.media_type, body, is_secret=is_secret)
            self._clients.count("reports", client, batch.reports)
            self._send(batch, functools.partial(answer, acknowledgement(batch)), hold.release)

    def _admitted(self, scope: Scope) -> tuple[Head, Client, Hold]:
        """Admit a post; return its head, its client and the memory reserved for it."""
        head, client = read_head(scope["headers"], MEDIA_TYPES), client_of(scope)
        return head, client, self._admit(head, client)

    def _admit(self, head: Head, client: Client) -> Hold:
        if head.length > self.max_body:
            raise too_large(f"{head.length} bytes", self.max_body)
        self._clients.admit(client, head.length)
        self._check_kafka()
        hold = Hold(self._memory)
        hold.reserve(POST_OVERHEAD)
        return hold

    def _check_kafka(self) -> None:
        if obstacle := self._sender.obstacle:
            raise unavailable(obstacle, POST_AGAIN)

    def _batch_reader(self, media_type: str, scope: Scope) -> Callable[[bytes], PostedBatch]:
        return functools.partial(self._read, media_type, is_secret=scope["scheme"] == "https")

    async def _in_turn(self, size: int, read: Callable[[*Ts], T], *values: *Ts) -> T:
        """Check a body; use a thread if it is large, so that other posts are answered meanwhile."""
        if size <= CHECKED_AT_ONCE:
            return read(*values)
        return await asyncio.get_running_loop().run_in_executor(self._checking, read, *values)

    def _read(self, media_type: str, body: bytes, *, is_secret: bool) -> PostedBatch:
        """Return the batch in a body; raise Problem for true values that came without TLS."""
        batch = read_batch(media_type, body, self.metrics, self._times)
        if batch.metric.sends_true_values and not (is_secret or self._trusted_without_tls):
            raise Problem(HTTPStatus.FORBIDDEN, TRUE_VALUES_IN_CLEAR, USE_TLS)
        return batch

    async def _receive_body(
        self, receive: Receive, head: Head, hold: Hold, client: Client
    ) -> bytes:
        """Receive a body, and return it expanded; count its bytes if no length was announced."""

        def arrived(size: int) -> None:
            if not head.length:
                self._clients.count("bytes", client, size)

        return await self._receiver.receive(receive, head.encoding, hold, arrived)

    def _send(
        self,
        batch: PostedBatch,
        answer: Callable[[Problem | None], None],
        release: Callable[[], None],
    ) -> None:
        """Send a batch; call `answer` with the outcome, and `release` when its memory is free."""

        def answered(outcome: Outcome) -> None:
            timeout = self._sender.timeout
            answer(None if outcome is None else not_acknowledged(batch, outcome, timeout))

        self._check_kafka()  # it may have left while the body came
        try:
            self._sender.send(batch, answered, release)
        except BufferError:
            raise self._memory.full() from None
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise too_large_for_kafka() from None
            if error.args[0].fatal():
                self._sender.replace_failed()
            problem = f"Kafka's client refused the batch: {error.args[0].str()}"
            raise unavailable(problem, SAME_BATCH) from None


def set_answer(answered: asyncio.Future[Problem | None], problem: Problem | None) -> None:
    """Say what became of a post, unless its task was cancelled."""
    if not answered.done():
        answered.set_result(problem)
