"""The spans of the service's work; `monitoring.otlp` records them if configured.

A span has names of topics and metrics, counts and times. It has no value, no string of a report, no
device and no text of an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

Attributes = Mapping[str, str | int | float]


class Span:
    """A span that is not recorded; the base class of recorded spans."""

    def put(self, attributes: Attributes) -> None:
        """Add attributes."""

    def note(self, event: str) -> None:
        """Add an event with the present time."""

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

        Parameters
        ----------
        name : str
        attributes : mapping, optional
        parent : Span, optional
            A span of this tracer; without it a new trace begins.
        start_ns : int, optional
            The start, in nanoseconds since the epoch; now by default.
        """
        return NO_SPAN

    @contextlib.contextmanager
    def span(self, name: str, attributes: Attributes | None = None) -> Iterator[Span]:
        """Return a context in which a span is open; the parameters are those of :meth:`begin`."""
        with ending(self.begin(name, attributes)) as open_span:
            yield open_span

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
