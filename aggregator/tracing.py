"""The spans of the service's work; `monitoring.otlp` records them if configured.

A span contains names of topics and metrics, counts and times. It contains no value, no string of a
report, no device and no text of an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

MAX_STEPS = 128
"""The most children of a span; attributes of the commit have the sums of all steps."""
MESSAGE_COUNT = "messaging.batch.message_count"
PARTITION_ID = "messaging.destination.partition.id"
REPORT_COUNT, REFUSED_COUNT = "dither.reports", "dither.refused_messages"
BYTES_WRITTEN = "dither.bytes_written"

Attributes = Mapping[str, str | int | float]


class Span:
    """A span that is not recorded; the base class of recorded spans."""

    def put(self, attributes: Attributes) -> None:
        """Add attributes to the span."""

    def note(self, event: str) -> None:
        """Add an event with the present time to the span."""

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with the class of an error, if any; a span that is not ended is dropped."""


NO_SPAN = Span()


class Tracer:
    """Begins spans; this class records none."""

    def begin(
        self,
        name: str,
        attributes: Attributes | None = None,
        parent: Span | None = None,
        start_ns: int | None = None,
    ) -> Span:
        """Begin a span.

        `name`: the name of the span; `attributes`, optional: its attributes; `parent`, optional: a
        span of this tracer; without it a new trace begins; `start_ns`: the start, in nanoseconds
        since the epoch; now by default.
        """
        return NO_SPAN

    def span(self, name: str, attributes: Attributes | None = None) -> AbstractContextManager[Span]:
        """Return a context in which a span is open; the parameters are those of :meth:`begin`."""
        return ending(self.begin(name, attributes))

    def stop(self) -> None:
        """Send the ended spans, and stop."""


@contextlib.contextmanager
def ending(span: Span) -> Iterator[Span]:
    """Return a context after which a span ends, with the error that was raised, if any."""
    try:
        yield span
    except BaseException as error:
        span.end(error)
        raise
    span.end()


class CommitTrace:
    """Makes the span `commit`, from the first fetch after a commit to the end of the next commit.

    Its children are `fetch` and `count` for each poll with messages, `check`, and `store` for each
    partition with reports. A worker without messages has no spans, unless a commit fails.
    """

    def __init__(self, tracer: Tracer, topic: str) -> None:
        self._tracer, self._about = tracer, {"messaging.destination.name": topic}
        self._reset()

    def _reset(self) -> None:
        self._root: Span | None = None
        self._steps = 0
        self._sums = dict.fromkeys((MESSAGE_COUNT, REPORT_COUNT, REFUSED_COUNT, BYTES_WRITTEN), 0)

    def begin(self, step: str) -> Span:
        """Begin a step; its span is recorded only if it is ended."""
        if self._root is None:
            self._root = self._tracer.begin("commit", self._about)
        if self._steps >= MAX_STEPS:
            return NO_SPAN
        return self._tracer.begin(step, None, self._root)

    def add(self, step: Span, sums: Mapping[str, int]) -> None:
        """Add numbers of a step to its attributes, and to the sums of the commit."""
        for key, value in sums.items():
            self._sums[key] += value
        step.put(sums)

    def end_fetch(self, fetch: Span, messages: int) -> None:
        """End the span of a fetch that returned messages."""
        self._steps += 1
        self.add(fetch, {MESSAGE_COUNT: messages})
        fetch.end()

    @contextlib.contextmanager
    def step(self, name: str, has_work: bool, partition: int | None = None) -> Iterator[Span]:
        """Return a context with the span of a step; without work nothing is recorded.

        `name`: the name of the span; `has_work`: whether the step has work; `partition`: the
        partition, if the step is about one.
        """
        if not has_work:
            yield NO_SPAN
            return
        span = self.begin(name)
        self._steps += 1
        if partition is not None:
            span.put({PARTITION_ID: str(partition)})
        with ending(span):
            yield span

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Return a context after which the commit's span ends, if it has steps or failed."""
        try:
            yield
        except BaseException as error:
            self._finish(error)
            raise
        if self._steps:
            self._finish(None)
        self._reset()

    def _finish(self, error: BaseException | None) -> None:
        root = self._root or self._tracer.begin("commit", self._about)
        root.put(self._sums)
        root.end(error)
        self._reset()
