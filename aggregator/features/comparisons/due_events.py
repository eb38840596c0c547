"""Runs defined comparisons over final panes, and makes the events of their decisions."""

from __future__ import annotations

from aggregator.feature import EventType
from aggregator.features.comparisons.definitions import comparisons_of
from aggregator.features.comparisons.run import ComparisonDecided, ComparisonRun
from aggregator.publishing.due_events import Publication, RunWatch

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


def find_due_events(publication: Publication) -> RunWatch:
    """Return the watch of all comparisons, each resumed from its state in Redis."""
    reader = publication.reader
    definitions = comparisons_of(reader.metrics).values()
    runs = [ComparisonRun.resumed(reader, definition) for definition in definitions]
    return RunWatch(publication, DECISION_EVENT, runs)
