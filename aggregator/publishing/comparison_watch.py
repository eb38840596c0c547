"""Looks at living comparisons after each final pane, and makes the events of what they decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import structlog

from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.run_watch import RunWatch
from aggregator.reading.comparisons.run import ComparisonRun
from aggregator.reading.comparisons.stored import state_key
from aggregator.storage.progress import TopicProgress

log = structlog.get_logger("dither.publisher")


class ComparisonWatch(RunWatch[ComparisonRun]):
    """Runs the comparisons of a deployment."""

    def found(
        self, run: ComparisonRun, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[Event]]:
        """Yield the events of one pane after another."""
        for decided in run.advance(overview, closed):
            yield [events.decided(one, run.name, self._source) for one in decided]

    def key(self, run: ComparisonRun) -> str:
        """Return the key of its state in Redis."""
        return state_key(self._reader.store.topic, run.name)

    def committed(self, event: Event) -> None:
        """Log a decision that was published."""
        log.info("comparison decided", comparison=event.subject, id=event.id)
