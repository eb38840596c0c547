"""Finds the events that are due: panes that became final, running totals that changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

import structlog

from aggregator.errors import StateUnreadable
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication
from aggregator.publishing.events import Event
from aggregator.publishing.pane_searches import PaneSearches, PaneSearchFailedError
from aggregator.publishing.unpublished_panes import Unpublished
from aggregator.reading.grouping import Groupings, queries
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.windows import Sums, Window
from aggregator.state.watermark import NO_TIME
from aggregator.storage.progress import TopicProgress
from estimators.metrics.categories import CodedVocabulary
from estimators.metrics.trusted import TrustedMetric
from estimators.weights import DEFAULT_POLICY

log = structlog.get_logger("dither.publisher")


class PaneFinalizer:
    """Finds the events that are due, of metrics with local privacy.

    Parameters
    ----------
    publication : Publication
    top : int
        So many categories, coordinates or strings are published, the largest.
    groupings : mapping
        By which attributes of devices final events have slices, by metric.
    unsearched : collection of str
        Metrics that discover strings, and whose final events have no list of them.
    """

    def __init__(
        self,
        publication: Publication,
        top: int,
        groupings: Groupings | None = None,
        unsearched: Collection[str] = (),
    ) -> None:
        reader, since_ms = publication.reader, publication.since_ms
        self.reader, self.published = reader, publication.published
        self._source, self._top, self._groupings = publication.source, top, groupings or {}
        self._metrics = {
            n: m for n, m in reader.metrics.items() if not isinstance(m, TrustedMetric)
        }
        searched = {
            name: metric
            for name, metric in self._metrics.items()
            if isinstance(metric.domain, CodedVocabulary) and name not in unsearched
        }
        others = {n: m for n, m in self._metrics.items() if n not in searched}
        self._unpublished = Unpublished(reader, self.published, others, since_ms)
        self._searched = {
            name: Unpublished(reader, self.published, {name: metric}, since_ms)
            for name, metric in searched.items()
        }
        self._searches = PaneSearches()
        self._noted: Mapping[str, int] | None = None
        self._versions: dict[str, str] = {}

    def close(self) -> None:
        """End the search that is under way."""
        self._searches.close()

    def final_events(self, overview: TopicProgress, partitions: int) -> Iterator[Event]:
        """Yield the events of panes that are final and have none yet, but for those with strings.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.

        Raises
        ------
        StateUnreadable
            Where panes or slices cannot be read: after the events of the other metrics.
        """
        for window, slices in self._finals(self._unpublished, overview, partitions):
            yield events.final(window, self._top, self._source, slices)

    def searched_events(self, overview: TopicProgress, partitions: int) -> Iterator[Event]:
        """Yield the events of panes with the strings that were found in them, of one each metric.

        It does not wait for a search: a pane whose search is under way has its event in a later
        turn, and the panes of its metric after that. A pane whose search failed waits until that is
        due again; other panes do not wait for it.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.

        Raises
        ------
        StateUnreadable
            Where panes or slices cannot be read: after the events of the other metrics.
        """
        unreadable: StateUnreadable | None = None
        searches = self._searches
        for name, unpublished in list(self._searched.items()):
            if searches.is_under_way:
                break
            others = {n: one for n, one in self._searched.items() if n != name}
            postponed = searches.postponed(name)
            finals = self._finals(unpublished, overview, partitions, postponed)
            try:
                for window, slices in finals:
                    strings = searches.take(window)
                    if strings is None:  # whoever looks again begins with it
                        self._searched = {name: unpublished, **others}
                    else:
                        self._searched = {**others, name: unpublished}
                        yield events.final(window, self._top, self._source, slices, strings)
                    break
                else:
                    searches.keep(name, postponed)
            except PaneSearchFailedError:
                self._searched = {**others, name: unpublished}
            except StateUnreadable as error:
                unreadable = error
        self._note_failed()
        if unreadable is not None:
            raise unreadable

    def _note_failed(self) -> None:
        """Have readers see which metrics wait for a search that failed, if that has changed."""
        failed = {name: self._searches.failed[name] for name in sorted(self._searched)}
        if failed != self._noted:
            self.published.note_failed_searches(failed)
            self._noted = failed

    def _finals(
        self,
        unpublished: Unpublished,
        overview: TopicProgress,
        partitions: int,
        postponed: Collection[int] = (),
    ) -> Iterator[tuple[Window, list[Slices]]]:
        """Yield the panes that are due, with slices of the stretches that they end."""
        unreadable: dict[str, StateUnreadable] = {}
        for metric, start, statistic in unpublished.sums(overview, partitions, postponed):
            window = Window(
                metric=metric,
                start_ms=start,
                end_ms=start + metric.pane_ms,
                status="final",
                content=Sums(statistic),
                policy=overview.policies.get(metric.name, DEFAULT_POLICY),
                changed_ms=overview.policy_changed_ms(metric.name),
            )
            if metric.name in unreadable:
                continue
            try:
                slices = self._slices(overview, window)
            except StateUnreadable as error:
                unreadable[metric.name] = error
                continue
            if slices is None:
                log.info("state changed while it was read", metric=metric.name)
                return
            yield window, slices
        for why in unreadable.values():
            raise why

    def _slices(self, overview: TopicProgress, pane: Window) -> list[Slices] | None:
        """Return the slices of the stretch that ends with a pane; None if they changed meanwhile.

        No slices with any other pane: its stretch is not final yet, or was published already.
        """
        slicing, end_ms = pane.metric.slicing, pane.end_ms
        if slicing is None or end_ms is None or end_ms % slicing.pane_ms:
            return []
        edges = {"start": (end_ms - slicing.pane_ms) / 1000, "end": end_ms / 1000}
        found = []
        for query in queries(self._groupings, pane.metric, **edges):
            stretch = self.reader.describe(overview, pane.metric.name, query)
            window = self.reader.read(
                dataclasses.replace(stretch, status="final", arrived_ms=NO_TIME)
            )
            if window.status != "final":
                return None
            found.append(self.reader.answer_slices(window, query))
        return found

    def provisional_events(self, overview: TopicProgress) -> list[Event]:
        """Return the events of running totals that have changed."""
        totals = (self.reader.describe(overview, name) for name in self._metrics)
        changed = [
            total
            for total in totals
            if total.arrived_ms != NO_TIME
            and total.version != self._versions.get(total.metric.name)
        ]
        found = []
        for total, read in zip(changed, self.reader.read_totals(changed), strict=True):
            name = total.metric.name
            window = self.reader.read(total) if read is None else read
            event = events.provisional(window, self._top, self._source)
            if event.id != self.published.provisional(name):
                found.append(event)
            self._versions[name] = total.version
        return found
