"""Reading: sum the panes of a window over all partitions, then estimate."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from aggregator.errors import PaneExpired, StateUnreadable, UnknownMetric
from aggregator.reading import releases
from aggregator.reading.coverage import Looks, chosen_among, covers
from aggregator.reading.releases import Release, Releases
from aggregator.reading.windows import (
    Frame,
    Time,
    Window,
    edges,
    event_time,
    last_edges,
    window_status,
)
from aggregator.state.pane_cover import Span, spans
from aggregator.state.pane_keys import PaneKey, counted_keys, metric_key, round_key
from aggregator.state.watermark import NEVER, Watermark
from aggregator.storage import parsing
from aggregator.storage.connection import connect
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import policies_key, rounds_key, tag
from aggregator.storage.store import Store
from estimators import Estimate, LocalMetric, Metric, SearchMetric, TrustedMetric
from estimators.errors import meant
from estimators.estimate import Counts
from estimators.extremes import Progress
from producers.device.rounds import Round

DEFAULT_TOPIC = "dither.reports"
ONE_LOOK = Looks()
EXPIRY_MS = 60_000
"""How long an answer from panes that expire is taken to be the same."""
TOGETHER, TOGETHER_BYTES = 100, 32_000_000
"""Running totals that are read together at most, and of what size."""


class Reader:
    """Answers questions about metrics from the sums in Redis.

    As a context manager, it closes its store's connections.

    Parameters
    ----------
    store : str or Store
        A Redis URL, or a store that is open already.
    metrics : mapping of str to Metric
    topic : str
        The reports topic; used with a URL.

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
    ) -> None:
        self.store = Store(connect(store), topic) if isinstance(store, str) else store
        self.metrics = metrics
        self._missing: dict[str, tuple[int, PaneKey, StateUnreadable]] = {}

    @functools.cached_property
    def releases(self) -> Releases:
        """The releases of metrics that are collected in trust."""
        return Releases(self.store)

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store's connections."""
        self.store.client.close()

    def metric(self, name: str) -> Metric:
        """Return a metric by name.

        Raises
        ------
        UnknownMetric
            Naming the nearest known one.
        """
        if name not in self.metrics:
            raise UnknownMetric(name, meant(name, self.metrics))
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
        window: str | None = None,
        categories: Sequence[str | int] | None = None,
        simultaneous: bool = True,
        windows: int = 1,
        weights_fixed: bool = False,
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
            ``"auto"``: fixed for a window that is final, anytime for what may still grow:
            two statements, each of which holds with 1 - beta.
        window : str, optional
            Instead of start and end: a duration such as ``"1h"``, the last hour of event time.
        beta, target, categories, simultaneous
            See :meth:`estimators.Metric.estimate`. Where weights or a target are named, beta is
            shared among all there are, unless they are fixed. The answer without a name is none of
            these: whoever compares with it names its policy, too.
        windows, weights_fixed
            See :class:`aggregator.reading.coverage.Looks`.

        Returns
        -------
        Estimate
            With a status: ``not_ready``, ``too_few_reports``, ``provisional``, ``final`` or
            ``expired``. Of a metric that is collected in trust, the latest release of a pane in the
            window.

        Raises
        ------
        ValueError
            If the window is empty, or a release was not drawn as it is asked for.
        """
        return self.answer(
            self.window(name, start, end, window),
            beta,
            weights,
            bound,
            target,
            categories=categories,
            simultaneous=simultaneous,
            looks=Looks(windows=windows, weights_fixed=weights_fixed),
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
        looks: Looks = ONE_LOOK,
    ) -> Estimate:
        """Estimate from a window that was read before.

        Of a metric that is asked in rounds the definition says all that can be asked: where the
        search stands, and what is certain with its beta.
        """
        metric = window.metric
        looks.check(window)
        if window.released is not None:
            asked = (beta, weights, bound, target, categories, simultaneous)
            found = releases.answered(metric, window.released, *asked)
            return dataclasses.replace(found, covers=covers(window, found, looks))
        if isinstance(metric, SearchMetric):
            progress = Progress() if window.asked is None else window.asked.progress
            found = metric.search.estimate(progress)
            undecided = window.status == "provisional" and not progress.decisions
            status = "too_few_reports" if undecided else window.status
            told = covers(window, found, looks)
            return dataclasses.replace(found, status=status, covers=told)
        if not 0 < beta < 1:
            raise ValueError(f"beta = {beta!r}: expected a probability between 0 and 1")
        policy = window.policy if weights is None else weights
        known = window.bound if bound == "auto" else bound
        among = chosen_among(window, weights, target, looks)
        estimate = LocalMetric.require(metric).estimate(
            window.statistic,
            beta / (among * looks.windows),
            policy,
            known,
            target,
            categories=categories,
            simultaneous=simultaneous,
            panes=window.panes,
        )
        if window.status == "expired":
            return estimate.unknown("expired")
        too_few = estimate.reports < metric.minimum_reports and window.status != "not_ready"
        looked_once = known == "fixed" and window.status != "final"
        return dataclasses.replace(
            estimate,
            beta=beta,
            status="too_few_reports" if too_few else window.status,
            covers=covers(window, estimate, looks, looked_once=looked_once),
            chosen_among=among,
            weights_fixed=looks.weights_fixed,
        )

    def window(
        self, name: str, start: Time = None, end: Time = None, window: str | None = None
    ) -> Window:
        """Sum a metric's panes over all partitions.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        """
        return self.look(self.frame(self.store.overview(), name, start, end, window))

    def look(self, frame: Frame) -> Window:
        """Return what may be known of a window: its sums, or the latest release in it."""
        metric, release = frame.metric, frame.release
        if not isinstance(metric, TrustedMetric):
            try:
                window = frame.filled(self.sum(frame))
            except PaneExpired:
                return dataclasses.replace(frame, status="expired").filled(metric.zero())
            if frame.status == "final" and not self.holds(frame):
                return dataclasses.replace(window, status="provisional")
            return window
        unread = frame.filled(metric.zero()[:0])
        if release is None:
            found = releases.none_yet(metric, frame.policy)
            return dataclasses.replace(unread, status=found.status, released=found)
        return self.of_release(metric, release)

    def holds(self, frame: Frame) -> bool:
        """Return whether what was read since a frame was made is of one history.

        If not, what was read may still have been counted anew: it is not final.
        """
        return self.store.goes_on(frame.overview)

    @staticmethod
    def of_release(metric: Metric, release: Release) -> Window:
        """Return the pane of a release as a window."""
        start, found = release.start_ms, release.estimate
        edges = (start, start + metric.pane_ms)
        return Window(metric, metric.zero()[:0], *edges, "final", NEVER, found.policy, found)

    def frame(
        self,
        overview: TopicProgress,
        name: str,
        start: Time = None,
        end: Time = None,
        window: str | None = None,
    ) -> Frame:
        """Say what is asked and how far it is counted, without reading a pane.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        StateUnreadable
            If it cannot be said how far a partition is counted.
        """
        found = self._frame(overview, name, start, end, window)
        changed = overview.changed_ms(name)
        version = found.version if changed is None else f"{found.version}-{changed}"
        return dataclasses.replace(
            found, slides=window is not None, changed_ms=changed, version=version
        )

    def _frame(
        self, overview: TopicProgress, name: str, start: Time, end: Time, window: str | None
    ) -> Frame:
        metric = self.metric(name)
        overview.check()
        if isinstance(metric, SearchMetric):
            if (start, end, window) != (None, None, None):
                raise ValueError(f"{name!r} is asked in rounds: expected no window of event time")
            return self._search(overview, metric)
        key = metric_key(metric.name, metric.revision)
        watermarks = {
            number: standing.watermarks[key]
            for number, standing in overview.partitions.items()
            if key in standing.watermarks
        }
        if window is None:
            first, last = edges(metric, start, end)
        elif start is None and end is None:
            newest = self.store.panes.latest(key, [*watermarks]) if watermarks else None
            first, last = last_edges(metric, window, newest)
        else:
            raise ValueError(f"window = {window!r} beside a start or an end: expected one of both")
        status = window_status(watermarks, overview.closed(key), last)
        policy = self.policy(overview, metric)
        if isinstance(metric, TrustedMetric):
            return self._frame_of_release(metric, first, last, policy, watermarks)
        counted = [
            (number, standing.owner.get("token"), standing.counts.get(f"accepted:{name}"))
            for number, standing in overview.partitions.items()
        ]
        expires = metric.retention_ms is not None and (first, last) != (None, None)
        until = int(1000 * time.time()) // EXPIRY_MS if expires else 0
        marks = sorted(watermarks.items())
        version = _version(key, first, last, status, policy, counted, marks, until)
        arrived = max((mark.arrived for mark in watermarks.values()), default=NEVER)
        return Frame(
            metric, first, last, status, arrived, policy, watermarks, version, overview=overview
        )

    def _frame_of_release(
        self,
        metric: Metric,
        first: int | None,
        last: int | None,
        policy: str,
        watermarks: dict[int, Watermark],
    ) -> Frame:
        """Return a window of a trusted metric: of its release alone, not of what is counted."""
        key = metric_key(metric.name, metric.revision)
        release = self.releases.latest(metric, key, first, last)
        facts = (key, first, last, release and release.start_ms, "" if release else policy)
        version = _version(*facts)
        arrived = max((mark.arrived for mark in watermarks.values()), default=NEVER)
        status = release.estimate.status if release else "not_ready"
        return Frame(metric, first, last, status, arrived, policy, watermarks, version, release)

    def _search(self, overview: TopicProgress, metric: Metric) -> Frame:
        """Return the frame of a metric that is asked in rounds: of the one that is open."""
        asked = self.asked(overview.rounds, metric)
        keys = counted_keys(metric)
        watermarks: dict[int, Watermark] = {}
        for number, standing in overview.partitions.items():
            marks = [standing.watermarks[key] for key in keys if key in standing.watermarks]
            if marks:
                latest = (max(m.latest for m in marks), max(m.arrived for m in marks))
                watermarks[number] = Watermark(*latest)
        status = "not_ready" if asked is None else "final" if asked.is_over else "provisional"
        counted = [
            (number, standing.owner.get("token"), standing.counts.get(f"accepted:{metric.name}"))
            for number, standing in overview.partitions.items()
        ]
        version = _version(metric.revision, asked, counted, sorted(watermarks.items()))
        arrived = max((mark.arrived for mark in watermarks.values()), default=NEVER)
        policy = metric.policies[0]
        return Frame(
            metric,
            None,
            None,
            status,
            arrived,
            policy,
            watermarks,
            version,
            asked=asked,
        )

    def asked(self, rounds: Mapping[str, bytes], metric: Metric) -> Round | None:
        """Return the round of a metric that is open; None before the first one.

        Parameters
        ----------
        rounds : mapping of str to bytes
            From the store.
        metric : Metric

        Raises
        ------
        StateUnreadable
            If what is stored is none.
        """
        key = metric_key(metric.name, metric.revision)
        if key not in rounds:
            return None
        place = f"{rounds_key(self.store.topic)}, field {key}"
        return parsing.asked(place, rounds[key], metric)

    def policy(self, overview: TopicProgress, metric: Metric) -> str:
        """Return the weights in force.

        Raises
        ------
        StateUnreadable
            If they are none that the metric can have.
        """
        policy = overview.policies.get(metric.name, metric.policies[0])
        if policy not in metric.policies:
            place = f"{policies_key(self.store.topic)}, field {metric.name}"
            raise StateUnreadable(place, repr(policy), f"one of {', '.join(metric.policies)}")
        return policy

    def sum(self, frame: Frame) -> Counts:
        """Read a window's panes and add them up, in a few round trips.

        Raises
        ------
        PaneExpired
            If some of them have expired: what is left is a part of the window.
        StateUnreadable
            If something that was counted is not there, and does not expire.
        ValueError
            If the metric is collected in trust: only its releases may be shown.
        """
        metric, key = frame.metric, metric_key(frame.metric.name, frame.metric.revision)
        if isinstance(metric, TrustedMetric):
            raise ValueError(f"metric {metric.name!r} is collected in trust: see its releases")
        statistic = metric.zero()
        if isinstance(metric, SearchMetric):
            if frame.asked is None or frame.asked.is_over:
                return statistic
            return self.sum_round(metric, frame.asked.number, [*frame.watermarks])
        if frame.start_ms is None and frame.end_ms is None:
            return _sum(metric, self.store.panes.running([*frame.watermarks], key))
        cut = [
            (number, span)
            for number, mark in frame.watermarks.items()
            for span in spans(metric, mark.closed, frame.start_ms, frame.end_ms)
        ]
        for found, pane in self.panes(metric, self.store.panes.find(key, cut)):
            if pane is None:
                raise PaneExpired(metric.name, found.start)
            statistic += pane
        return statistic

    def totals(self, frames: Iterable[Frame]) -> Iterator[Window | None]:
        """Yield the windows of frames that are running totals, many of them read together.

        None in place of any other, and of those that were read together where one cannot be read:
        :meth:`look` says of each by itself what there is.
        """
        together: list[Frame] = []
        size = 0
        for frame in frames:
            together.append(frame)
            size += frame.metric.zero().nbytes * len(frame.watermarks)
            if len(together) == TOGETHER or size > TOGETHER_BYTES:
                yield from self._totals(together)
                together, size = [], 0
        yield from self._totals(together)

    def _totals(self, frames: Sequence[Frame]) -> list[Window | None]:
        wanted = {
            metric_key(frame.metric.name, frame.metric.revision): frame
            for frame in frames
            if not isinstance(frame.metric, TrustedMetric)
            and not isinstance(frame.metric, SearchMetric)
            if frame.start_ms is None and frame.end_ms is None
        }
        found: dict[str, Window] = {}
        try:
            parts = self.store.panes.totals(
                [(key, [*one.watermarks]) for key, one in wanted.items()]
            )
            for frame, values in zip(wanted.values(), parts, strict=True):
                found[frame.metric.name] = frame.filled(_sum(frame.metric, values))
        except StateUnreadable:
            found = {}
        return [found.get(frame.metric.name) for frame in frames]

    def sum_round(self, metric: Metric, number: int, partitions: Sequence[int]) -> Counts:
        """Return the statistic of the answers to a round."""
        key = metric_key(metric.name, metric.revision)
        return _sum(metric, self.store.panes.running(partitions, round_key(key, number)))

    def reports(self, metric: Metric, key: str, partitions: Sequence[int]) -> int:
        """Return how many reports were ever counted under a key, whatever may be shown of them."""
        running = self.store.panes.running(partitions, key)
        return sum(
            int(metric.counts(parsing.statistic(place, value, metric)).sum())
            for place, value in running
        )

    def panes(
        self, metric: Metric, keys: Sequence[tuple[int, PaneKey]]
    ) -> Iterator[tuple[PaneKey, Counts | None]]:
        """Yield the statistics of panes that are indexed; None for one that has expired.

        Raises
        ------
        StateUnreadable
            If one is not there that does not expire: it was deleted, or evicted.
        """
        for (number, key), value in zip(keys, self.store.panes.statistics(keys), strict=True):
            place = f"{tag(self.store.topic, number)}:{key}"
            if value is not None:
                yield key, parsing.statistic(place, value, metric)
            elif metric.retention_ms is not None or self.store.panes.expires(number, key.metric):
                yield key, None
            else:
                error = StateUnreadable(place, "nothing", "a pane that was counted")
                self._missing[metric.name] = number, key, error
                raise error

    def missing(self) -> list[str]:
        """Return which panes were found missing, of each metric one, and still are, in words."""
        for name, (number, key, _) in [*self._missing.items()]:
            here = [(number, Span(key.grain, key.start, key.start + 1))]
            is_counted = bool(self.store.panes.find(key.metric, here))
            if not is_counted or self.store.panes.statistics([(number, key)]) != [None]:
                self._missing.pop(name, None)
        return [str(error) for _, _, error in self._missing.values()]

    def closed_panes(
        self,
        overview: TopicProgress,
        metric: Metric,
        partitions: Sequence[int],
        starts: Sequence[int],
    ) -> dict[int, Counts | None] | None:
        """Return single panes, summed over partitions, by where they begin.

        None in place of a sum: some of the pane has expired. None in place of all: they were read
        while Redis went back, or was emptied.

        Parameters
        ----------
        overview : TopicProgress
            From before.
        starts : sequence of int
            Ascending.

        Raises
        ------
        StateUnreadable
            If something that was counted is not there, and does not expire.
        """
        wanted = Span("pane", starts[0], starts[-1] + 1)
        sums: dict[int, Counts | None] = {start: metric.zero() for start in starts}
        failure: StateUnreadable | None = None
        try:
            name = metric_key(metric.name, metric.revision)
            keys = [
                place
                for place in self.store.panes.find(
                    name, [(number, wanted) for number in partitions]
                )
                if place[1].start in sums
            ]
            for key, statistic in self.panes(metric, keys):
                known = sums[key.start]
                sums[key.start] = None if known is None or statistic is None else known + statistic
        except StateUnreadable as error:
            failure = error
        if not self.store.goes_on(overview):
            return None
        if failure is not None:
            raise failure
        return sums

    def event_time(self, name: str) -> int | None:
        """Return the latest event time counted of a metric, in ms since the epoch."""
        return event_time(self.frame(self.store.overview(), name).watermarks)

    def first_waiting(self, overview: TopicProgress, metric: Metric, start_ms: int) -> int | None:
        """Return where the first pane begins, from `start_ms` on, that is over in some partition.

        None: there is none. Whether every partition has closed it is for :meth:`closed` to say.
        """
        overview.check()
        key, numbers = metric_key(metric.name, metric.revision), [*overview.partitions]
        marks = [one.watermarks.get(key, Watermark()) for one in overview.partitions.values()]
        last = max((mark.closed for mark in marks), default=NEVER) - metric.pane_ms
        return min(self.store.panes.first(key, numbers, start_ms, last, 1), default=None)

    def closed(self, overview: TopicProgress, partitions: int | None = None) -> dict[str, int]:
        """Return, by metric, the event time in ms before which every window is final.

        Metrics that are asked in rounds are left out, and those of which nothing is final.

        Parameters
        ----------
        partitions : int, optional
            How many the topic has, for a caller that asked Kafka; else what the workers said last.
        """
        overview.check()
        found = {
            name: overview.closed(metric_key(name, metric.revision), partitions)
            for name, metric in self.metrics.items()
            if not isinstance(metric, SearchMetric)
        }
        return {name: closed for name, closed in found.items() if closed != NEVER}


def _sum(metric: Metric, values: Sequence[tuple[str, bytes]]) -> Counts:
    """Return the sum of statistics as they are stored, each with its key."""
    statistic = metric.zero()
    for place, value in values:
        statistic += parsing.statistic(place, value, metric)
    return statistic


def _version(*facts: object) -> str:
    return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()
