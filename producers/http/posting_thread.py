"""Posts the batches of a queue in a thread, with pauses after failures, until acknowledged.

Another such thread posts sealed reports to a relay.
"""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from producers.delivery.thread_log import log_from_thread
from producers.http import gateway_answers
from producers.http.definitions import GatewayDefinitions
from producers.http.gateway_client import GatewayClient, GatewayError
from producers.http.report_queue import QueuedBatch, ReportQueue
from producers.ledger.past_answers import DefinitionChanged

OTHERS_SECONDS = 1.0
"""The time between two checks whether another process still sends from the same file."""
ABORT_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failure in the background.

    Attributes
    ----------
    kind : str
        ``"delivery"``: a batch did not arrive, and is posted again. ``"refused"``: a batch can
        never be counted, and is lost. ``"definition"``: the gateway's definition cannot be used.
        ``"queue"``: the file failed.
    detail : str
        What was wrong, and what to do.
    status : int
        The HTTP status; 0 if there was no answer.
    metric : str
        The metric's name.
    reports : int
        The number of reports concerned.
    retry_in : float
        Seconds until the next attempt; 0 if the thread does not have to wait.
    """

    kind: Literal["delivery", "refused", "definition", "queue"]
    detail: str
    status: int = 0
    metric: str = ""
    reports: int = 0
    retry_in: float = 0.0


class Background:
    """A daemon thread that posts a queue's batches; each failure is passed to `on_failure`.

    If `sealed`, the thread posts the queue's sealed reports to a relay instead.
    """

    def __init__(
        self,
        queue: ReportQueue,
        client: GatewayClient,
        definitions: GatewayDefinitions,
        on_failure: Callable[[Failure], object],
        *,
        sealed: bool = False,
    ) -> None:
        self._queue, self._client, self._definitions = queue, client, definitions
        self._on_failure, self._sealed, self._warned_metrics = on_failure, sealed, set[str]()
        self.failures = 0
        self.changed: dict[str, DefinitionChanged] = {}
        self._served: set[Callable[[], float]] = set()
        self._checks: list[str] = []
        self._named: set[str] = set()
        self._in_a_row = self._stalls = 0
        self._later: dict[int, float] = {}
        self._is_stuck = False
        self._not_before = self._asked_until = 0.0
        self._state = threading.Condition()
        self._is_woken = self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="dither-http", daemon=True)
        self._thread.start()

    def check(self, name: str, *, now: bool) -> None:
        """Let the thread compare the gateway's definition of a name with the stored one.

        The thread does so soon if `now`, and also whenever a batch of the metric is refused.
        """
        with self._state:
            self._named.add(name)
            if now:
                self._checks.append(name)
        self.wake()

    def serve(self, call: Callable[[], float]) -> None:
        """Call a function in the thread; the function returns the seconds until its next call."""
        with self._state:
            self._served.add(call)
        self.wake()

    def stop_serving(self, call: Callable[[], float]) -> None:
        """Stop calling a function in the thread."""
        with self._state:
            self._served.discard(call)

    def wake(self) -> None:
        """Wake the thread, so that it looks at the queue soon."""
        with self._state:
            self._is_woken = True
            self._state.notify_all()

    def drain(self, metric: str | None, deadline: float, *, patient: bool) -> bool:
        """Wait until no batch waits, as all were acknowledged or refused; return whether none does.

        `metric`: the metric, or None for all; `deadline`: when to stop waiting, in monotonic
        seconds; `patient`: whether to keep waiting after the gateway has failed, or if only failed
        batches are left.
        """
        with self._state:
            stalls, self._is_stuck = self._stalls, False
            self._not_before = self._asked_until
            self._later.clear()
        self.wake()
        while self._queue.left(metric, sealed=self._sealed)[0]:
            now = time.monotonic()
            failed = self._stalls > stalls or self._is_stuck or self._asked_until > now
            if now >= deadline or (failed and not patient):
                return False
            with self._state:
                self._state.wait(min(0.1, deadline - now))
        return True

    def stop(self, deadline: float) -> None:
        """End the thread; abort a request that is under way at the deadline (monotonic seconds)."""
        with self._state:
            self._is_stopping = True
            self._state.notify_all()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._client.abort()
            self._thread.join(ABORT_SECONDS)

    # -- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                pause_seconds = self._step()
            except Exception as error:  # whatever it is: reports that wait are sent later
                pause_seconds = self._count_failure(Failure("queue", str(error) or repr(error)))
            with self._state:
                served = tuple(self._served)
            pause_seconds = min([pause_seconds, *map(_call_safely, served), threading.TIMEOUT_MAX])
            with self._state:
                if not (self._is_woken or self._is_stopping):
                    self._state.wait(pause_seconds)
                self._is_woken = False
        self._client.close()

    def _step(self) -> float:
        """Do what is due; return the seconds until something is due, infinity if nothing waits."""
        due = math.inf if self._sealed else self._queue.seal_due()
        if not (self._checks or self._has_batches()):
            return due
        if (pause_seconds := self._not_before - time.monotonic()) > 0:
            return min(pause_seconds, due)
        while self._checks and not self._is_stopping:
            name = self._checks.pop(0)
            if (pause_seconds := self._check_definition(name)) > 0:
                self._checks.insert(0, name)
                return pause_seconds
        if not self._has_batches():
            return due
        receiver = "relay" if self._sealed else "sender"
        with _sole_sender(self._queue.file.path, receiver) as is_alone:
            if not is_alone:
                return OTHERS_SECONDS
            pause_seconds = self._send()
        return due if pause_seconds <= 0 else min(pause_seconds, due)

    def _has_batches(self) -> bool:
        return self._queue.has_batches(sealed=self._sealed)

    def _send(self) -> float:
        """Post batches, the oldest first; return 0 when none is left, or the pause in seconds.

        If a single batch fails, it is posted again later, and the other batches continue. If two
        batches fail in a row, the gateway is assumed to fail, and all batches wait.
        """
        alone = 0
        while not self._is_stopping and self._has_batches():
            now = time.monotonic()
            with self._state:
                waiting = {number: due for number, due in self._later.items() if due > now}
            batch = self._queue.oldest(waiting, sealed=self._sealed)
            if batch is None:
                with self._state:
                    self._is_stuck = True
                    self._state.notify_all()
                return min(waiting.values(), default=OTHERS_SECONDS + now) - now
            pause_seconds, is_alone = self._post(batch)
            with self._state:
                self._later.pop(batch.number, None)
                if is_alone:
                    self._later[batch.number] = time.monotonic() + pause_seconds
                self._state.notify_all()
            if pause_seconds > 0 and not is_alone:
                return pause_seconds
            alone = alone + 1 if is_alone else 0
            if alone > 1:
                return self._pause_all(None)
        return 0.0

    def _post(self, batch: QueuedBatch) -> tuple[float, bool]:
        """Post a batch; return the pause in seconds, and whether only this batch has to wait."""
        failure = Failure("delivery", "", metric=batch.metric, reports=batch.reports)
        try:
            answer = self._client.post(batch.payload)
        except GatewayError as error:
            return self._count_failure(dataclasses.replace(failure, detail=str(error))), False
        outcome = gateway_answers.verdict(answer, batch.key)
        if outcome is gateway_answers.Verdict.ACCEPTED:
            self._queue.acknowledged(batch)
            self._in_a_row, self._asked_until = 0, 0.0
            return 0.0, False
        self._client.close()  # a second answer would be taken for that to the next post
        detail = f"{self._client.server} {self._client.url}: {gateway_answers.explain(answer)}"
        failure = dataclasses.replace(failure, detail=detail, status=answer.status)
        if outcome is gateway_answers.Verdict.AGAIN:
            retry_after = gateway_answers.asked_pause(answer.retry_after, time.time())
            return self._count_failure(failure, retry_after), False
        is_refusal = outcome is gateway_answers.Verdict.REFUSED
        if is_refusal and batch.metric in self._named and batch.metric not in self._checks:
            self._checks.append(batch.metric)
        own_words = bool(gateway_answers.problem_of(answer))
        errors = self._queue.failed(batch, refusal=is_refusal, own_words=own_words)
        if errors == 0:
            is_news = not self._sealed or batch.metric not in self._warned_metrics
            self._warned_metrics.add(batch.metric)
            self._tell(dataclasses.replace(failure, kind="refused"), is_news=is_news)
            return 0.0, False
        pause_seconds = gateway_answers.pause(errors, None, gateway_answers.LONGEST_PAUSE)
        self._tell(dataclasses.replace(failure, retry_in=pause_seconds), is_news=errors == 1)
        return pause_seconds, True

    def _check_definition(self, name: str) -> float:
        """Compare a definition with the gateway's; return the pause in seconds after it."""
        try:
            self._definitions.fetch(name)
        except DefinitionChanged as error:
            self.changed[name] = error
            return self._count_failure(Failure("definition", str(error), metric=name), waits=False)
        except GatewayError as error:  # no answer about definitions keeps batches waiting
            failure = Failure("definition", str(error), error.status, metric=name)
            return self._count_failure(failure, waits=not error.status)
        self.changed.pop(name, None)
        return 0.0

    def _count_failure(
        self, failure: Failure, retry_after: float | None = None, *, waits: bool = True
    ) -> float:
        """Count a failure, and tell the application; return the pause in seconds."""
        pause_seconds = self._pause_all(retry_after) if waits else 0.0
        is_news = failure.kind != "delivery" or self._in_a_row == 1
        self._tell(dataclasses.replace(failure, retry_in=pause_seconds), is_news=is_news)
        return pause_seconds

    def _pause_all(self, retry_after: float | None) -> float:
        """Let all batches wait; return for how many seconds."""
        self._in_a_row += 1
        pause_seconds = gateway_answers.pause(self._in_a_row, retry_after)
        with self._state:
            now = time.monotonic()
            self._not_before = now + pause_seconds
            self._asked_until = now + pause_seconds if retry_after is not None else 0.0
            self._stalls += 1
        return pause_seconds

    def _tell(self, failure: Failure, *, is_news: bool) -> None:
        """Count a failure, log it, and tell the application."""
        with self._state:
            self.failures += 1
            self._state.notify_all()
        level = logging.ERROR if failure.kind == "refused" else logging.WARNING
        log_from_thread(level if is_news else logging.DEBUG, "%s: %s", failure.kind, failure.detail)
        try:
            self._on_failure(failure)
        except Exception:
            log_from_thread(logging.ERROR, "on_failure raised an error", with_error=True)


def _call_safely(call: Callable[[], float]) -> float:
    """Call a function; return the seconds until its next call, even after an error."""
    try:
        return call()
    except Exception:
        log_from_thread(logging.ERROR, "what is scheduled raised an error", with_error=True)
        return gateway_answers.LONGEST_PAUSE


@contextmanager
def _sole_sender(path: Path | None, receiver: str = "sender") -> Iterator[bool]:
    """Yield whether this process may send from the file; if so, no other process may meanwhile."""
    if path is None:
        yield True
        return
    handle = os.open(f"{path}-{receiver}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _OPEN_HANDLES.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        try:
            yield True
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        _OPEN_HANDLES.discard(handle)
        os.close(handle)


_OPEN_HANDLES: set[int] = set()


def _let_go() -> None:
    """Close the locks in a forked process: they belong to the parent, which releases them."""
    while _OPEN_HANDLES:
        os.close(_OPEN_HANDLES.pop())


os.register_at_fork(after_in_child=_let_go)
