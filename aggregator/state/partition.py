"""The state of one partition: a function of its log, from the first report to the next offset.

Nothing in this module reads a clock or the network. The same messages in the same order give the
same state, however they were polled; `dither verify` relies on this.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from aggregator.state.admission import ANY_AGE, TimeLimits, admit
from aggregator.state.batch_layout import Integers
from aggregator.state.decoder import DecodedBatches, Decoder, Message, Rejection
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import SLICES, PaneKey, counted_keys, rollups, slices_key, width_ms
from aggregator.state.slice_tables import by_chunk, empty_chunk
from aggregator.state.watermark import Watermark
from estimators import Metric
from estimators.estimate import Counts


class Partition:
    """The sums of one partition up to its next offset.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics by name.
    future_ms, past_ms : int
        How far an event time may be ahead of, and behind, Kafka's timestamp.

    Attributes
    ----------
    next_offset : int
        The first offset that is not counted.
    unsaved : int
        The number of reports, counted or refused, since the last commit.
    arrivals : array of int
        Kafka's timestamps of the messages since the last commit, in ms.
    panes : dict of PaneKey to Pane
        The open panes, and those that closed since the last commit.
    changed : dict of PaneKey to Pane
        The panes that the next commit will write.
    """

    def __init__(
        self, metrics: Mapping[str, Metric], future_ms: int, past_ms: int = ANY_AGE
    ) -> None:
        self.metrics, self.next_offset = metrics, 0
        self._limits = TimeLimits(future_ms, past_ms)
        self.unsaved = 0
        self.arrivals = array("q")
        self.panes: dict[PaneKey, Pane] = {}
        self.watermarks: defaultdict[str, Watermark] = defaultdict(Watermark)
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.changed: dict[PaneKey, Pane] = {}
        self._ends: dict[str, int] = {}
        self._committed_bytes = 0
        self._decoder = Decoder(metrics)
        self._keys = {name: counted_keys(metric) for name, metric in metrics.items()}

    def restore(self, key: PaneKey, pane: Pane) -> None:
        """Add an open pane that was committed before, maybe by the previous owner."""
        self.panes[key], pane.committed_bytes = pane, 0
        self._note_end(key, pane)
        self._note_committed(pane)

    def drop_panes(self) -> None:
        """Drop all panes after counting has ended."""
        self.panes, self.changed = {}, {}
        self._committed_bytes = 0

    def count(self, messages: Iterable[Message]) -> list[Rejection]:
        """Count messages in the log's order, except counted offsets; return the rejections."""
        fresh = self._uncounted(list(messages))
        if not fresh:
            return []
        arrived = np.fromiter([message.timestamp()[1] for message in fresh], np.int64, len(fresh))
        self.arrivals.frombytes(arrived.tobytes())
        batches_by_question, rejections = self._decoder.decode(fresh, arrived)
        for (name, number), batches in batches_by_question.items():
            question = self._question_key(name, number)
            rejections += self._add_batches(self.metrics[name], question, batches)
        for rejection in rejections:
            self.counts[f"{rejection.reason}:{rejection.metric}"] += rejection.reports
            self.unsaved += rejection.reports
        self.next_offset = fresh[-1].offset() + 1
        self._close_due_panes({self._question_key(*question) for question in batches_by_question})
        shown = [rejection for rejection in rejections if rejection.reason != "duplicate"]
        return sorted(shown, key=lambda rejection: rejection.message.offset())

    @property
    def changed_bytes(self) -> int:
        """The bytes of the statistics that the next commit will write."""
        return sum(pane.statistic.nbytes for pane in self.changed.values())

    @property
    def changed_keys(self) -> int:
        """The number of message keys that the next commit will write."""
        return sum(len(pane.unsaved_keys) for pane in self.changed.values())

    @property
    def open_bytes(self) -> int:
        """The approximate memory of all open panes, in bytes."""
        changed = self.changed.values()
        return self._committed_bytes + sum(pane.nbytes - pane.committed_bytes for pane in changed)

    def advance_to(self, offset: int) -> None:
        """Skip offsets without a message: transaction markers and aborted messages.

        Only the next offset changes, so that the state is the same without the call.
        """
        self.next_offset = max(self.next_offset, offset)

    def close_until(self, question: str, end: int) -> None:
        """Close the panes of a metric or round that end by `end`, as its watermark would."""
        mark = self.watermarks[question]
        mark.closed = max(mark.closed, end)
        self._close_due_panes([question])

    def _question_key(self, metric: str, number: int) -> str:
        """Return the key under which a metric, or a round of a metric, is counted."""
        return self._keys[metric][number - 1 if number else 0]

    def _uncounted(self, messages: list[Message]) -> list[Message]:
        """Return the messages that were not counted before, each offset once, in order."""
        offsets = np.fromiter([message.offset() for message in messages], np.int64, len(messages))
        if not offsets.size or (offsets[0] >= self.next_offset and (np.diff(offsets) > 0).all()):
            return messages
        fresh, following = [], self.next_offset
        for message, offset in zip(messages, offsets.tolist(), strict=True):
            if offset >= following:
                fresh.append(message)
                following = offset + 1
        return fresh

    def _add_batches(self, metric: Metric, name: str, batches: DecodedBatches) -> list[Rejection]:
        """Add a metric's batches to the panes of the key `name`; return the refused ones."""
        admission = admit(metric, batches, self._limits, self.watermarks[name], self.panes, name)
        for begin, rows in admission.by_pane(admission.admitted):
            key = PaneKey("pane", name, begin)
            pane = self.panes.get(key)
            if pane is None:
                first = batches.message(rows[0]).offset()
                pane = self.panes[key] = Pane(metric, first, metric.zero())
                self._note_end(key, pane)
            counted, slice_sums = pane.add(batches, rows, admission.uses.get(begin, {}))
            if slice_sums is not None:
                self._add_to_slices(key, *slice_sums)
            self.changed[key] = pane
            self.counts[f"accepted:{metric.name}"] += counted
            self.unsaved += counted
        return admission.rejections()

    def _add_to_slices(self, key: PaneKey, codes: Integers, rows: Counts) -> None:
        """Add the statistics of a pane's slices to the slice tables that the pane belongs to.

        `codes` has shape (n,), `rows` shape (n, cells).
        """
        metric = self.panes[key].metric
        start = key.start - key.start % width_ms(SLICES, metric)
        for chunk, chunk_positions, chunk_rows in by_chunk(metric, codes, rows):
            table = self._changed_pane(PaneKey(SLICES, slices_key(metric, chunk), start), metric)
            table.statistic[chunk_positions] += chunk_rows

    def _changed_pane(self, key: PaneKey, metric: Metric) -> Pane:
        """Return a coarse pane or slice table, marked as changed; create it if it is missing."""
        if key not in self.panes:
            empty = metric.zero() if key.chunk is None else empty_chunk(metric)
            self.panes[key] = Pane(metric, 0, empty)
            self._note_end(key, self.panes[key])
        self.changed[key] = self.panes[key]
        return self.panes[key]

    def _note_end(self, key: PaneKey, pane: Pane) -> None:
        """Update the earliest end of a question's panes for a new pane."""
        end = key.start + width_ms(key.grain, pane.metric)
        self._ends[key.question] = min(end, self._ends.get(key.question, end))

    def _close_due_panes(self, questions: Collection[str]) -> None:
        """Close the panes that the watermark has passed, and add them to the coarse panes.

        There may be a hundred thousand panes, so they are visited only if a watermark of these
        questions has passed the earliest end of its panes.
        """
        if all(
            self._ends.get(question, ANY_AGE) > self.watermarks[question].closed
            for question in questions
        ):
            return
        for key, pane in list(self.panes.items()):
            if key.grain in ("pane", SLICES) and self._is_over(key, pane):
                self._close_pane(key, pane)
                for coarser in rollups(pane.metric, key):
                    self._changed_pane(coarser, pane.metric).statistic += pane.statistic
        for key, pane in self.panes.items():
            if self._is_over(key, pane):
                self._close_pane(key, pane)
        self._ends = {}
        for key, pane in self.panes.items():
            if not pane.closed:
                self._note_end(key, pane)

    def _close_pane(self, key: PaneKey, pane: Pane) -> None:
        pane.closed = True
        self.changed[key] = pane

    def _is_over(self, key: PaneKey, pane: Pane) -> bool:
        """Return whether an open pane is due to be closed."""
        end = key.start + width_ms(key.grain, pane.metric)
        return not pane.closed and end <= self.watermarks[key.question].closed

    def mark_committed(self) -> dict[PaneKey, Pane]:
        """Mark the state as committed; evict and return the closed panes."""
        self.unsaved = 0
        self.arrivals = array("q")
        closed = {key: pane for key, pane in self.changed.items() if pane.closed}
        for key in closed:
            del self.panes[key]
        for pane in self.changed.values():
            pane.unsaved.clear()
            pane.unsaved_keys.clear()
            self._note_committed(pane)
        self.changed.clear()
        return closed

    def _note_committed(self, pane: Pane) -> None:
        """Add a pane's growth since its last commit to the memory of all committed panes."""
        previous_bytes, pane.committed_bytes = pane.committed_bytes, pane.nbytes
        self._committed_bytes += pane.committed_bytes - previous_bytes
