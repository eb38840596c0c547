"""`POST /v1/sealed`: takes sealed reports, stores them on disk, and closes crowds."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import NamedTuple, Self

from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope

from estimators import Metric
from producers.gateway.gateway import POST_OVERHEAD, Endpoint, set_answer
from producers.gateway.problems import POST_AGAIN, Problem, bad_request, unavailable
from producers.gateway.rate_limits import Client, Clients, client_of
from producers.gateway.receiving import Head, Hold, Memory, Receiver, read_head
from producers.relay.crowd_folder import CrowdTerms, OpenCrowd
from producers.relay.forwarding import SEALED_TYPE, Forwarder
from producers.sealing import CrowdLabel, decode_post, key_hash, sealed_size

logger = logging.getLogger("producers")

SEALED_PATH = "/v1/sealed"
MAX_BODY = 2**17
"""The most bytes of a post: a label and one report, each with its length in two bytes."""
MAX_IN_FLIGHT = 2**26
GROUP_SECONDS = 0.002
"""Posts that arrive within this time share a write to the disk."""
TICK_SECONDS = 1.0
"""The time between two checks for crowds that must close."""
STUCK_SECONDS = 60.0
"""After this time without such a check, the process must be restarted."""
FREE_BYTES = 2**26
"""How many bytes must be free on the disk, besides those needed to shuffle the largest crowd."""
DISK_FAILS = "the relay's disk takes no reports now"
ACCEPTED_BODY = b'{"status":"accepted"}'
DROP_REMEDY = "drop the report, and count it as dropped: it must not be randomized or sealed again"
Answer = Callable[[bytes, Problem | None], None]


class _Post(NamedTuple):
    """A post that waits for the disk."""

    crowd: OpenCrowd
    sealed: bytes
    hold: Hold
    answer: Answer


class CrowdRelay:
    """Takes sealed reports, and keeps them until their crowd closes.

    A post is answered 202 once its report is durable. Methods run in the event loop, unless their
    docstrings say otherwise; one thread writes.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics by name.
    public_key : bytes
        The service's key; reports that are sealed for another key are refused.
    forwarder : Forwarder
        Shuffles and posts the crowds of its folder; started and stopped with the relay.
    rate_limit, rate_limit_bytes : str
        Limits on the posts and the bytes of one client, for all labels together; empty for no
        limit.
    future_ms : int
        How many milliseconds ahead of `clock` a pane may begin.
    clock : callable
        Returns seconds since the epoch.

    Attributes
    ----------
    obstacle : str
        Why no post is accepted now; empty if posts are accepted.
    """

    post_path, max_body = SEALED_PATH, MAX_BODY
    media_types: tuple[str, ...] = (SEALED_TYPE,)
    _loop: asyncio.AbstractEventLoop
    _tick: asyncio.TimerHandle
    _receiver: Receiver

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        public_key: bytes,
        forwarder: Forwarder,
        *,
        rate_limit: str = "",
        rate_limit_bytes: str = "",
        future_ms: int = 600_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.metrics, self.public_key, self.forwarder = metrics, public_key, forwarder
        self._key_hash, self._folder = key_hash(public_key), forwarder.folder
        self._clients = Clients(rate_limit, rate_limit_bytes)
        self._future_ms, self._clock = future_ms, clock
        self._memory = Memory(MAX_IN_FLIGHT, "the disk")
        self._open = {crowd.terms.label: crowd for crowd in self._folder.open_crowds()}
        self._waiting: deque[_Post] = deque()
        self._is_write_due = False
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="dither-disk")
        self._looked_at = time.monotonic()
        self.obstacle = ""

    @property
    def routes(self) -> list[Route]:
        """The route to mount."""
        return [Route(SEALED_PATH, Endpoint(self.post), methods=["POST"], name="sealed")]

    @property
    def waiting(self) -> Counter[str]:
        """The reports of open crowds by metric, retries included."""
        waiting: Counter[str] = Counter()
        for label, crowd in list(self._open.items()):
            waiting[label.metric] += crowd.reports
        return waiting

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._receiver = Receiver(MAX_BODY, self._disk)
        self.forwarder.start()
        self._close_due_crowds()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Write the reports that have arrived, and stop; the next run continues with the files."""
        self._tick.cancel()
        await self._loop.run_in_executor(self._disk, self._write_reports)
        await asyncio.to_thread(self._disk.shutdown)
        await asyncio.to_thread(self.forwarder.stop)
        self._folder.close()

    @property
    def trouble(self) -> str:
        """The reason to restart the process; empty if there is none."""
        seconds = time.monotonic() - self._looked_at
        return f"nothing has run for {seconds:.0f} seconds" if seconds > STUCK_SECONDS else ""

    # -- Posts ----------------------------------------------------------------------------------

    async def post(self, scope: Scope, receive: Receive) -> Response:
        """Answer a post; raise Problem unless its report is durable."""
        answered: asyncio.Future[Problem | None] = self._loop.create_future()
        hold = Hold(self._memory)
        try:
            head = read_head(scope["headers"], self.media_types)
            body = await self._receiver.receive(receive, "", hold, lambda _: None)
        finally:
            hold.release()

        def answer(_: bytes, problem: Problem | None) -> None:
            set_answer(answered, problem)

        self.post_whole(head, body, client_of(scope), answer, is_secret=False)
        if (refusal := await answered) is not None:
            raise refusal
        return Response(ACCEPTED_BODY, HTTPStatus.ACCEPTED, media_type="application/json")

    def post_whole(
        self, head: Head, body: bytes, client: Client, answer: Answer, *, is_secret: bool
    ) -> None:
        """Keep a post whose body has arrived.

        Parameters
        ----------
        head, body, client, answer, is_secret
            As for :meth:`producers.gateway.Gateway.post_whole`.

        Raises
        ------
        Problem
            If the post is refused; then `answer` is not called.
        """
        if head.encoding:
            raise Problem(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Encoding {head.encoding!r}: expected none",
                "send the sealed report as it is: it cannot be compressed",
                headers={"Accept-Encoding": "identity"},
            )
        if self.obstacle:
            raise unavailable(self.obstacle, POST_AGAIN)
        hold = Hold(self._memory)
        with hold:
            hold.reserve(POST_OVERHEAD + len(body))
            try:  # posts are not counted while the relay can take none: devices then retry often
                self._clients.admit(client, head.length)
            except Problem as refusal:
                refusal.remedy = f"{POST_AGAIN}; the relay's operator sets gateway.rate_limit"
                raise
            try:
                label, sealed = decode_post(body)
                crowd = self._crowd(label, len(sealed))
            except ValueError as error:
                raise bad_request(f"not a sealed report: {error}", DROP_REMEDY) from None
        self._waiting.append(_Post(crowd, sealed, hold, answer))
        if not self._is_write_due:
            self._is_write_due = True
            self._loop.call_later(GROUP_SECONDS, self._disk.submit, self._write_reports)

    def _crowd(self, label: CrowdLabel, report_bytes: int) -> OpenCrowd:
        """Return the crowd that takes a report; raise ValueError if the report has another size."""
        crowd = self._open.get(label)
        terms = self._terms(label) if crowd is None else crowd.terms
        is_ending = self._folder.is_closed(label) if crowd is None else crowd.is_ending
        if is_ending or terms.closes_ms <= self.now_ms():  # or the clock was set back
            pane = f"the pane that begins at {label.pane_start_ms} ms"
            problem = f"the crowd of metric {label.metric!r} and {pane} has closed"
            raise Problem(HTTPStatus.GONE, problem, DROP_REMEDY)
        if crowd is None:
            crowd = self._open[label] = OpenCrowd(self._folder, terms)
        if report_bytes != (size := crowd.terms.report_bytes):
            raise ValueError(f"{report_bytes} bytes: expected {size} for {label.metric!r}")
        return crowd

    def _terms(self, label: CrowdLabel) -> CrowdTerms:
        """Return the terms of a new crowd; raise Problem if the label is not in force."""
        metric = self.metrics.get(label.metric)
        if metric is None or metric.crowd is None:
            raise _not_in_force(f"metric {label.metric!r} has no crowd at this relay")
        for name, expected in (("key_hash", self._key_hash), ("fingerprint", metric.fingerprint)):
            if (value := getattr(label, name)) != expected:
                raise _not_in_force(f"{name} {value.hex()}: expected {expected.hex()}")
        latest_ms = self.now_ms() + self._future_ms
        if label.pane_start_ms % metric.pane_ms or label.pane_start_ms > latest_ms:
            raise _not_in_force(
                f"a pane of {metric.name!r} that begins at {label.pane_start_ms} ms: expected a "
                f"multiple of {metric.pane_ms} ms, up to now"
            )
        end_ms = label.pane_start_ms + metric.pane_ms
        return CrowdTerms(
            label,
            sealed_size(metric.randomizer.width),
            metric.crowd.minimum,
            end_ms + metric.crowd.wait_ms,
            end_ms + metric.lateness_ms,
        )

    # -- The disk -------------------------------------------------------------------------------

    def _write_reports(self) -> None:
        """Make all waiting reports durable; runs in the thread that writes."""
        self._is_write_due = False  # posts that arrive from now on request another write
        posts_by_crowd: dict[int, list[_Post]] = {}
        while self._waiting:
            post = self._waiting.popleft()
            posts_by_crowd.setdefault(id(post.crowd), []).append(post)
        for posts in posts_by_crowd.values():
            problem = None
            try:
                posts[0].crowd.append([post.sealed for post in posts])
            except Exception as error:
                logger.error("reports could not be written: %s", error)  # noqa: TRY400
                self.obstacle = DISK_FAILS  # until the next look
                problem = unavailable(DISK_FAILS, POST_AGAIN)
            self._loop.call_soon_threadsafe(self._answer_posts, posts, problem)

    def _answer_posts(self, posts: list[_Post], problem: Problem | None) -> None:
        for post in posts:
            post.hold.release()
            try:
                post.answer(ACCEPTED_BODY, problem)
            except Exception:  # the other posts must get their answers
                logger.exception("a post could not be answered")
        if problem is None:
            self._folder.reports[posts[0].crowd.terms.label.metric, "taken"] += len(posts)

    def _close_due_crowds(self) -> None:
        """Close the crowds whose time has come, and schedule the next check."""
        self._looked_at = time.monotonic()
        for label, crowd in list(self._open.items()):
            if crowd.terms.closes_ms <= self.now_ms() or self._folder.is_closed(label):
                crowd.is_ending = True
        self._disk.submit(self._end_intake)
        self._tick = self._loop.call_later(TICK_SECONDS, self._close_due_crowds)

    def _end_intake(self) -> None:
        """Move the crowds that are closing out of open/; runs in the thread that writes."""
        ending = [crowd.terms for crowd in list(self._open.values()) if crowd.is_ending]
        self._write_reports()  # the reports that came before
        try:
            for terms in ending:
                self._folder.end_intake(terms)
                del self._open[terms.label]
            is_full = self._folder.free_bytes() < FREE_BYTES
        except OSError as error:
            logger.error("crowds could not be closed: %s", error)  # noqa: TRY400
            self.obstacle = DISK_FAILS
        else:
            self.obstacle = "the relay's disk is full" if is_full else ""

    def now_ms(self) -> int:
        """Return the time in ms since the epoch."""
        return int(self._clock() * 1000)


def default_rate_limit(metrics: Iterable[Metric]) -> str:
    """Return the rate limit of one address: a twentieth of `minimum` while a crowd is open.

    Two periods may overlap with an open crowd. So if one metric has a crowd, a single address
    cannot fabricate more than a tenth of the smallest crowd. But the limit always allows a post in
    each pane. `metrics`: at least one of them has a crowd.

    Examples
    --------
    >>> from estimators import define
    >>> late = define(name="late", kind="mean", mechanism="randomized_response", range=(0, 1),
    ...               levels=[3], pane="1d", lateness="1d",
    ...               crowd={"minimum": 10_000, "wait": "12h"})
    >>> default_rate_limit([late])
    '500 per 36 hours'
    >>> default_rate_limit([define(name="now", kind="mean", mechanism="randomized_response",
    ...                            range=(0, 1), levels=[3], pane="1m", lateness="2h",
    ...                            crowd={"minimum": 1_000, "wait": "1h"})])
    '61 per 61 minutes'
    """
    crowds = [(m.crowd.minimum, m.pane_ms, m.pane_ms + m.crowd.wait_ms) for m in metrics if m.crowd]
    period_ms = max(open_ms for _, _, open_ms in crowds)
    posts = sum(
        max(minimum / 20 * period_ms / open_ms, period_ms / pane_ms)
        for minimum, pane_ms, open_ms in crowds
    )
    seconds = math.ceil(period_ms / 1000)
    sizes = {"hours": 3_600, "minutes": 60, "seconds": 1}
    unit = next(unit for unit, size in sizes.items() if seconds % size == 0)
    return f"{math.ceil(posts)} per {seconds // sizes[unit]} {unit}"


def _not_in_force(detail: str) -> Problem:
    return Problem(HTTPStatus.CONFLICT, detail, DROP_REMEDY)
