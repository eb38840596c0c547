"""Runs defined comparisons over final panes, and makes the events of their decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import structlog

from aggregator.feature import EventType
from aggregator.features.comparisons.definitions import comparisons_of
from aggregator.features.comparisons.run import ComparisonDecided, ComparisonRun
from aggregator.publishing.due_events import Publication, RunWatch
from aggregator.publishing.events import Event
from aggregator.storage.progress import TopicProgress

DECISION_EVENT = EventType(
    "dither.comparison.decided",
    ComparisonDecided,
    ids_key_name="decisions",
    message="comparisonDecided",
    summary="The arms of a comparison are proved to be different: once for each id.",
    key="The comparison and the hash of its definition, and the category or coordinate where there "
    "are several, as in new_checkout@0000001f/red.",
)
EVENT_TYPES = (DECISION_EVENT,)
log = structlog.get_logger("dither.publisher")


class ComparisonWatch(RunWatch[ComparisonRun]):
    """Runs the comparisons of a deployment."""

    def events(
        self, run: ComparisonRun, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[Event]]:
        """Yield the events of a comparison, pane by pane."""
        source = self.publication.source
        for decisions in run.advance(overview, closed):
            yield [decision_event(decision, run.name, source) for decision in decisions]

    def note_published(self, event: Event) -> None:
        """Log a published decision."""
        log.info("comparison decided", comparison=event.subject, id=event.id)


def decision_event(decision: ComparisonDecided, identity: str, source: str) -> Event:
    """Return the event of a decision about a comparison, or about a category or coordinate of it.

    `decision`: the data of the event; `identity`: the name of the comparison's run; `source`: the
    CloudEvents attribute `source`.
    """
    category = decision.category
    key = identity if category is msgspec.UNSET else f"{identity}/{category}"
    encoded = msgspec.json.encode(decision)
    return Event(key, DECISION_EVENT.name, source, decision.comparison, decision.at, key, encoded)


def find_due_events(publication: Publication) -> ComparisonWatch:
    """Return the watch of all comparisons, each resumed from its state in Redis."""
    reader = publication.reader
    definitions = comparisons_of(reader.metrics).values()
    runs = [ComparisonRun.resumed(reader, definition) for definition in definitions]
    return ComparisonWatch(publication, runs)
