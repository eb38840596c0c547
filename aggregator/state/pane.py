"""A pane: a statistic over one stretch of event time, open in memory."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from aggregator.state.decoded_batches import DecodedBatches
from aggregator.state.rows import pick
from estimators import Metric
from estimators.estimate import Counts

Uses = dict[bytes, int]
"""How many reports of each key were counted, by :func:`aggregator.state.admission.digest`."""


@dataclasses.dataclass(eq=False)
class Pane:
    """A statistic over one stretch of event time, open in memory.

    Attributes
    ----------
    first_offset : int
        Offset of the message that opened it.
    seen : set of bytes
        Ids of the batches counted in it: until the pane closes a second copy is recognised; after
        that it is late.
    unsaved : list of bytes
        The ids that the store does not know yet.
    used : dict of bytes to int
        Where the metric has a limit: how many reports of each key were counted in it.
    unsaved_keys : set of bytes
        Those of which the store has another number.
    changed, closed : bool
        Since the last commit.
    """

    metric: Metric
    first_offset: int
    statistic: Counts
    seen: set[bytes] = dataclasses.field(default_factory=set)
    unsaved: list[bytes] = dataclasses.field(default_factory=list)
    used: Uses = dataclasses.field(default_factory=dict)
    unsaved_keys: set[bytes] = dataclasses.field(default_factory=set)
    changed: bool = True
    closed: bool = False
    levels: list[bytes] = dataclasses.field(default_factory=list)
    values: list[bytes] = dataclasses.field(default_factory=list)

    def add(self, batches: DecodedBatches, which: NDArray[np.intp], uses: Uses) -> None:
        """Put admitted batches aside for :meth:`settle`; `seen` has their ids already.

        Parameters
        ----------
        batches : DecodedBatches
            Admitted and others.
        which : ndarray of intp
            Those of this pane that are admitted.
        uses : Uses
            The new numbers of reports of their keys.
        """
        self.unsaved += pick(batches.ids, which)
        for levels, values in batches.columns(which):
            self.levels.append(levels)
            self.values.append(values)
        self.used.update(uses)
        self.unsaved_keys.update(uses)

    def settle(self) -> int:
        """Add the batches put aside to the statistic, all at once; return their reports."""
        if not self.levels:
            return 0
        levels = np.frombuffer(_joined(self.levels), dtype=np.uint8)
        reports = self.metric.randomizer.decode(_joined(self.values))
        self.metric.accumulate_checked(self.statistic, levels, reports)
        self.levels.clear()
        self.values.clear()
        self.changed = True
        return len(levels)


def _joined(parts: list[bytes]) -> bytes:
    """Return the parts as one, a single one as it is."""
    return parts[0] if len(parts) == 1 else b"".join(parts)
