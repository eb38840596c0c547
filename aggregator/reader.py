"""Reading: sum the panes of a window over all partitions, then estimate."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from aggregator.errors import UnknownMetric
from aggregator.keys import PaneKey, metric_key
from aggregator.partition import NEVER, Watermark
from aggregator.store import UNSET, Store, connect
from aggregator.windows import spans
from estimators import Estimate, Metric
from estimators.errors import nearest
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY

Time = float | datetime.datetime | None
DEFAULT_TOPIC = "dither.reports"
DEFAULT_IDLE_MS = 60_000


@dataclasses.dataclass(frozen=True)
class Window:
    """The statistic of a metric over a stretch of event time.

    Attributes
    ----------
    start_ms, end_ms : int or None
        Where it really begins and ends: on panes' edges. None: unbounded.
    status : str
        ``not_ready`` (nothing was ever counted), ``provisional`` (more can come) or ``final``.
    arrived_ms : int
        When the last counted report of the metric reached Kafka; -1 for never.
    """

    metric: Metric
    statistic: Counts
    start_ms: int | None
    end_ms: int | None
    status: str
    arrived_ms: int
    policy: str = DEFAULT_POLICY

    @property
    def bound(self) -> str:
        """The bound that ``"auto"`` means here.

        ``"fixed"`` for a closed window; ``"anytime"`` for whatever may be looked at while it grows.
        """
        return "fixed" if self.status == "final" else "anytime"


class Reader:
    """Answers questions about metrics from the sums in Redis.

    Parameters
    ----------
    store : str or Store
        A Redis URL, or a store that is open already.
    metrics : mapping of str to Metric
    topic : str
        The reports topic; used with a URL.
    idle_ms : int
        A partition without a report of the metric for this long, and with nothing left to count as
        of its last commit, does not hold back a window that ended before that commit.

    Raises
    ------
    StoreUnreachable
        If no Redis answers at the URL.
    """

    def __init__(
        self,
        store: str | Store,
        metrics: Mapping[str, Metric],
        topic: str = DEFAULT_TOPIC,
        idle_ms: int = DEFAULT_IDLE_MS,
    ) -> None:
        self.store = Store(connect(store), topic) if isinstance(store, str) else store
        self.metrics, self.idle_ms = metrics, idle_ms

    def metric(self, name: str) -> Metric:
        """Return a metric by name.

        Raises
        ------
        UnknownMetric
            Naming the nearest known one.
        """
        if name not in self.metrics:
            raise UnknownMetric(name, nearest(name, self.metrics))
        return self.metrics[name]

    def estimate(
        self,
        name: str,
        start: Time = None,
        end: Time = None,
        beta: float = 0.05,
        weights: str | None = None,
        bound: str = "auto",
        target: str = "population",
        *,
        categories: Sequence[str | int] | None = None,
        simultaneous: bool = True,
    ) -> Estimate:
        """Estimate a metric over a window of event time.

        Parameters
        ----------
        name : str
        start, end : float (seconds since the epoch), datetime or None
            The window [start, end), widened to whole panes; None: unbounded.
        weights : str, optional
            The policy that is in force for the metric (``dither weights``), by default.
        bound : str
            ``"auto"``: fixed for a window that is final, anytime for what may still grow.
        beta, target, categories, simultaneous
            See :meth:`estimators.Metric.estimate`.

        Returns
        -------
        Estimate
            With a status: ``not_ready``, ``too_few_reports``, ``provisional`` or ``final``.
        """
        return self.answer(
            self.window(name, start, end),
            beta,
            weights,
            bound,
            target,
            categories=categories,
            simultaneous=simultaneous,
        )

    @staticmethod
    def answer(
        window: Window,
        beta: float = 0.05,
        weights: str | None = None,
        bound: str = "auto",
        target: str = "population",
        *,
        categories: Sequence[str | int] | None = None,
        simultaneous: bool = True,
    ) -> Estimate:
        """Estimate from a window that was read before."""
        metric = window.metric
        policy = window.policy if weights is None else weights
        known = window.bound if bound == "auto" else bound
        estimate = metric.estimate(
            window.statistic,
            beta,
            policy,
            known,
            target,
            categories=categories,
            simultaneous=simultaneous,
        )
        too_few = estimate.reports < metric.minimum_reports and window.status != "not_ready"
        return dataclasses.replace(estimate, status="too_few_reports" if too_few else window.status)

    def window(self, name: str, start: Time = None, end: Time = None) -> Window:
        """Sum a metric's panes over all partitions.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        """
        metric = self.metric(name)
        start_ms, end_ms = _edges(metric, start, end)
        key = metric_key(metric.name, metric.revision)
        statistic = metric.zero()
        watermarks: dict[int, Watermark] = {}
        for partition in self.store.partitions():
            watermark = self.store.watermarks(partition).get(key)
            if watermark is None:
                continue
            watermarks[partition] = watermark
            for found in self._statistics(partition, metric, key, watermark, start_ms, end_ms):
                statistic += np.frombuffer(found, dtype="<i8")
        arrived = max((mark.arrived for mark in watermarks.values()), default=NEVER)
        status = self._status(metric, watermarks, end_ms)
        policy = self.store.policies().get(name, DEFAULT_POLICY)
        return Window(metric, statistic, start_ms, end_ms, status, arrived, policy)

    def event_time(self, name: str) -> int | None:
        """Return the latest event time counted of a metric, in ms since the epoch."""
        metric = self.metric(name)
        key = metric_key(metric.name, metric.revision)
        marks = (self.store.watermarks(partition).get(key) for partition in self.store.partitions())
        return max((mark.time for mark in marks if mark is not None), default=None)

    def settled(self) -> dict[str, int]:
        """Return, by metric, the event time in ms before which every window is final.

        Metrics of which nothing was counted are left out.
        """
        owners = {number: self.store.owner(number) for number in self.store.partitions()}
        marks = {number: self.store.watermarks(number) for number in owners}
        found = {}
        for name, metric in self.metrics.items():
            key = metric_key(name, metric.revision)
            if any(key in known for known in marks.values()):
                found[name] = (
                    min(
                        self._reached(owner, marks[number].get(key, Watermark()))
                        for number, owner in owners.items()
                    )
                    - metric.lateness_ms
                )
        return found

    def _statistics(
        self,
        partition: int,
        metric: Metric,
        key: str,
        watermark: Watermark,
        start_ms: int | None,
        end_ms: int | None,
    ) -> Iterable[bytes]:
        if start_ms is None and end_ms is None:
            return self.store.running(partition, key)
        keys = [
            PaneKey(span.grain, key, begin)
            for span in spans(metric, watermark.time, start_ms, end_ms)
            for begin in self.store.panes(partition, span.grain, key, span.start, span.end)
        ]
        return [found for found in self.store.statistics(partition, keys) if found is not None]

    def _status(self, metric: Metric, watermarks: Mapping[int, Watermark], end: int | None) -> str:
        if not watermarks:
            return "not_ready"
        if end is None:
            return "provisional"
        settled = end + metric.lateness_ms
        for partition in self.store.partitions():
            watermark = watermarks.get(partition, Watermark())
            if watermark.time < settled:
                owner = self.store.owner(partition)
                if self._reached(owner, watermark) < settled:
                    return "provisional"
        return "final"

    def _reached(self, owner: Mapping[str, str], watermark: Watermark) -> int:
        """Return the event time in ms that a partition has left behind.

        That of its last commit, if it had nothing left to count then, well after its last report.
        """
        updated = int(owner.get("updated", NEVER))
        has_all = int(owner.get("next", UNSET)) >= int(owner.get("high", 0))
        is_idle = has_all and updated >= watermark.arrived + self.idle_ms
        return max(watermark.time, updated) if is_idle else watermark.time


def _edges(metric: Metric, start: Time, end: Time) -> tuple[int | None, int | None]:
    """Widen a window to whole panes, in milliseconds."""
    first, last = _milliseconds(start), _milliseconds(end)
    if first is not None and last is not None and first >= last:
        raise ValueError(f"window from {start} to {end}: expected an end after its start")
    first = None if first is None else metric.pane_start(first)
    last = None if last is None else -metric.pane_start(-last)
    return first, last


def _milliseconds(moment: Time) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            raise ValueError(
                f"time {moment.isoformat()}: expected one with a time zone, as in +00:00"
            )
        moment = moment.timestamp()
    if not math.isfinite(moment):
        raise ValueError(f"time {moment}: expected seconds since the epoch, or a datetime")
    return round(moment * 1000)
