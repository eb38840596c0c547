"""Finds unpublished events: of panes that became final, and of running totals that changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import structlog

from aggregator.errors import StateUnreadable
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication, UnpublishedPanes
from aggregator.publishing.events import Event
from aggregator.publishing.pane_searches import PaneSearches, PaneSearchFailedError
from aggregator.reading.grouping import Groupings, queries
from aggregator.reading.plans import LocalPlan
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.window import Window
from aggregator.state.watermark import NO_TIME
from aggregator.storage.progress import TopicProgress
from estimators import Estimate
from estimators.metrics.categories import CodedVocabulary
from estimators.metrics.trusted import TrustedMetric

log = structlog.get_logger("dither.publisher")


class PaneFinalizer:
    """Finds the due events of metrics with local privacy.

    Parameters
    ----------
    top : int
        Maximum number of published categories, coordinates or strings: those with the largest
        estimates.
    groupings : mapping
        The attributes of devices by which final events have slices, by metric.
    unsearched : collection of str
        Metrics that discover strings, but publish no list of them.

    Attributes
    ----------
    unreadable_total : StateUnreadable or None
        Why the last :meth:`provisional_events` left out running totals; None if it left out none.
    """

    def __init__(
        self,
        publication: Publication,
        top: int,
        groupings: Groupings | None = None,
        unsearched: Collection[str] = (),
    ) -> None:
        reader = self.reader = publication.reader
        self.published, self._source = publication.published, publication.source
        self._top, self._groupings = top, groupings or {}
        metrics = reader.metrics.items()
        self._metrics = {n: m for n, m in metrics if not isinstance(m, TrustedMetric)}
        searched = {
            name: metric
            for name, metric in self._metrics.items()
            if isinstance(metric.domain, CodedVocabulary) and name not in unsearched
        }
        listed = {n: m for n, m in self._metrics.items() if n not in searched}
        self._unpublished = UnpublishedPanes(publication, listed)
        self._searched = {
            name: UnpublishedPanes(publication, {name: metric}, max_panes=1)
            for name, metric in searched.items()
        }
        self._searches = PaneSearches()
        self._noted: Mapping[str, int] | None = None
        self._versions: dict[str, str] = {}
        self.unreadable_total: StateUnreadable | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the last turn has left panes for the next."""
        return self._unpublished.is_behind

    def close(self) -> None:
        """Cancel the running search."""
        self._searches.close()

    def final_events(self, overview: TopicProgress, partitions: int) -> Iterator[Event]:
        """Yield the due events of final panes, for the metrics that need no search for strings.

        Raises StateUnreadable if panes or slices are unreadable, but only after the events of the
        other metrics.
        """
        for window, estimate, slices in self._due_panes(self._unpublished, overview, partitions):
            yield events.final_event(window, estimate, self._top, self._source, slices)

    def searched_events(self, overview: TopicProgress, partitions: int) -> Iterator[Event]:
        """Yield the events of panes with their discovered strings, at most one pane per metric.

        This does not wait for a search: a pane that is being searched gets its event in a later
        turn, before the later panes of its metric. A pane whose search failed delays no other pane.
        Raises StateUnreadable if panes or slices are unreadable, but only after the events of the
        other metrics.
        """
        unreadable: StateUnreadable | None = None
        searches = self._searches
        for name, unpublished in [*self._searched.items()]:
            if searches.is_under_way:
                break
            postponed = searches.postponed(name)
            try:
                pane = next(self._due_panes(unpublished, overview, partitions, postponed), None)
                if pane is None:
                    searches.drop_vanished_panes(name, postponed)
                elif (strings := searches.result_or_start(pane[0])) is None:
                    break  # the next turn begins with this metric
                else:
                    window, estimate, slices = pane
                    yield events.final_event(
                        window, estimate, self._top, self._source, slices, strings
                    )
            except PaneSearchFailedError:
                pass
            except StateUnreadable as error:
                unreadable = error
            self._searched[name] = self._searched.pop(name)  # the last in the next turn
        self._note_failed()
        if unreadable is not None:
            raise unreadable

    def _note_failed(self) -> None:
        """Store the number of failed searches by metric, if it changed."""
        failed = {name: self._searches.failed[name] for name in sorted(self._searched)}
        if failed != self._noted:
            self.published.note_failed_searches(failed)
            self._noted = failed

    def _due_panes(
        self,
        unpublished: UnpublishedPanes,
        overview: TopicProgress,
        partitions: int,
        postponed: Collection[int] = (),
    ) -> Iterator[tuple[Window, Estimate, list[Slices]]]:
        """Yield the due panes, each with its estimate and the slices that became final with it."""
        unreadable: StateUnreadable | None = None
        for windows in unpublished.windows(overview, partitions, postponed):
            for window, estimate in zip(windows, LocalPlan.answers(windows), strict=True):
                try:
                    slices = self._slices(overview, window)
                except StateUnreadable as error:
                    unreadable = error
                    break
                if slices is None:
                    log.info("state changed while it was read", metric=windows[0].metric.name)
                    return
                yield window, estimate, slices
        if unreadable is not None:
            raise unreadable

    def _slices(self, overview: TopicProgress, pane: Window) -> list[Slices] | None:
        """Return the slices of the slice pane that ends with a pane; None if it changed meanwhile.

        If no slice pane ends with the pane, the list is empty.
        """
        slicing, end_ms = pane.metric.slicing, pane.end_ms
        if slicing is None or end_ms is None or end_ms % slicing.pane_ms:
            return []
        edges = {"start": (end_ms - slicing.pane_ms) / 1000, "end": end_ms / 1000}
        groupings = []
        for query in queries(self._groupings, pane.metric, **edges):
            window = self.reader.read_final(overview, pane.metric.name, query)
            if window.status != "final":
                return None
            groupings += LocalPlan.answer_slices([window], query)
        return groupings

    def provisional_events(self, overview: TopicProgress) -> list[Event]:
        """Return the events of changed running totals, without those that are unreadable."""
        due_events, self.unreadable_total = list[Event](), None
        changed = list[Window]()
        for name in self._metrics:
            try:
                total = self.reader.describe(overview, name)
            except StateUnreadable as error:
                self.unreadable_total = error
                continue
            if total.arrived_ms != NO_TIME and total.version != self._versions.get(name):
                changed.append(total)
        try:
            published_ids = self.published.provisional_ids([total.metric.name for total in changed])
        except StateUnreadable as error:
            self.unreadable_total = error
            return []
        totals_read = zip(changed, self.reader.read_totals(changed), published_ids, strict=True)
        for total, read, published_id in totals_read:
            try:
                window = self.reader.read(total) if read is None else read
            except StateUnreadable as error:
                self.unreadable_total = error
                continue
            estimate = self.reader.cached_answer(window)
            event = events.provisional_event(window, estimate, self._top, self._source)
            if event.id != published_id:
                due_events.append(event)
            self._versions[total.metric.name] = total.version
        return due_events
