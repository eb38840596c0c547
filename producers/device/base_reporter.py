"""The base of all reporters: takes values, and randomizes them; a subclass sends the reports."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time as clocks
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators import SearchMetric
from estimators.exact.randomness import Bits
from estimators.mechanisms.mechanism import Reports
from estimators.metrics.attributes import MOST_BYTES, Attributes, sent_attributes
from estimators.metrics.denial import Deny, without_denied
from estimators.metrics.domains import Values
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric, ReportedMetric
from producers.delivery.batches import Columns, Delivered, PendingBatch
from producers.delivery.closing import CLOSED_MESSAGE, Calls, Closing
from producers.device.event_times import Times, event_times
from producers.device.metric_checks import check_ledger, check_relay, rules_of
from producers.wire.batch import encode_randomized, new_batch_id

if TYPE_CHECKING:
    from producers.device.rounds import Round
    from producers.ledger.ledger import Ledger

logger = logging.getLogger("producers")

LOOK_SECONDS = 60.0
"""The time between two rounds of calls of the scheduled functions."""
_MESSAGE_OVERHEAD = 512  # bytes for everything in a batch but its two columns and attributes
_ATTRIBUTE_OVERHEAD = 2 * MOST_BYTES + 8


class DeviceFile(Protocol):
    """A file on the device, whose content survives a restart."""

    def transaction(self, *, erasing: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Provide the database for a transaction.

        `erasing`: whether no file may contain the deleted data afterwards.
        """


class BaseReporter(Closing):
    """Randomizes values of one metric immediately; a subclass sends the reports.

    Raw values are never stored: `report` randomizes them before it returns. All methods are
    thread-safe. See :class:`producers.Reporter` for the parameters; `most_bytes` limits the bytes
    of a batch.
    """

    file: DeviceFile | None = None
    """The file in which reports wait; None without a file."""
    _key: bytes | None = None
    """The key of all batches; None if the key of each batch is its id."""
    _is_closed = False

    def __init__(
        self,
        metric: Metric,
        *,
        most_bytes: int,
        batch_reports: int,
        attributes: Mapping[str, str] | None = None,
        deny: Deny | None = None,
        trusted: bool = False,
        bits: Bits | None = None,
        clock: Callable[[], float] = clocks.time,
        has_relay: bool = False,
    ) -> None:
        check_relay(metric, has_relay=has_relay)
        if batch_reports < 1:
            raise ValueError(f"batch_reports = {batch_reports}: expected 1 or more")
        self.metric, self.bits = metric, bits
        self._attributes = sent_attributes(metric.slicing, attributes)
        self._rules, self.denied = rules_of(metric, deny), 0
        if metric.sends_true_values and not trusted:
            raise ValueError(
                f"metric {metric.name!r} has trusted collection: true values, not randomized, "
                "would leave this device. Pass `trusted=True` if the application intends this"
            )
        if metric.sends_true_values:
            logger.warning(
                "metric %r has trusted collection: TRUE VALUES leave this device, not randomized",
                metric.name,
            )
        room = most_bytes - _MESSAGE_OVERHEAD
        if metric.slicing is not None:
            room -= len(metric.slicing.attributes) * _ATTRIBUTE_OVERHEAD
        batch_limit = max(1, room // (metric.randomizer.width + 1))
        self.batch_reports = min(
            batch_reports, batch_limit, metric.max_batch_reports or batch_limit
        )
        self._clock, self._counting = clock, threading.Lock()
        self._process = os.getpid()
        self._scheduled: dict[str, Callable[[], object]] = {}
        self._calls, self._next_look = Calls(), 0.0

    # -- What a subclass does with reports --------------------------------------------------------

    @property
    @abstractmethod
    def delivered(self) -> Delivered:
        """Reports, batches and bytes that are acknowledged so far."""

    @abstractmethod
    def _has_capacity(self, reports: int) -> bool:
        """Return whether there is room for `reports` reports; if not, count them as dropped.

        Raises DeliveryError if there is no room and nothing may be dropped, or if earlier reports
        have failed.
        """

    @abstractmethod
    def _buffer(self, panes: Iterable[tuple[int, Columns]]) -> None:
        """Put reports into batches; each item has the start of a pane in ms, and its reports."""

    @abstractmethod
    def _send(self, batch: PendingBatch) -> None:
        """Send a batch."""

    @abstractmethod
    def _send_all(self, deadline: float) -> None:
        """Send everything; raise DeliveryError if it is not acknowledged in time."""

    @abstractmethod
    def _finish(self, deadline: float) -> int | None:
        """Send everything, then nothing more; return how many reports wait in the file.

        Raises DeliveryError if reports are lost.
        """

    @abstractmethod
    def _unsent(self) -> int | None:
        """Return what `close` would return now, or raise its error, while another thread closes."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is sent."""
        return self._is_closed

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Let `close` wait for the end of a call, so that everything that was charged is reported.

        Raise ValueError if the reporter is closed or belongs to another process.
        """
        self.check_open()
        with self._calls.under_way():
            yield

    # -- What comes again -------------------------------------------------------------------------

    def schedule(self, name: str, call: Callable[[], object]) -> None:
        """Call a function each minute in the sending thread, replacing one of the same name."""
        if not self._scheduled:
            self._next_look = clocks.monotonic() + LOOK_SECONDS
        self._scheduled[name] = call

    def run_scheduled(self) -> float:
        """Call the scheduled functions if they are due; return the seconds until they are due.

        The sending thread does so regularly.
        """
        now = clocks.monotonic()
        if now < self._next_look:
            return self._next_look - now
        self._next_look = now + LOOK_SECONDS
        with suppress(ValueError), self.calling():  # nothing is called once it is closed
            for call in tuple(self._scheduled.values()):
                call()
        return LOOK_SECONDS

    # -- Values -----------------------------------------------------------------------------------

    def report(
        self,
        value: Values,
        epsilon: ArrayLike,
        time: Times = None,
        *,
        attributes: Mapping[str, str] | None = None,
        ledger: Ledger | None = None,
        permanent: float | None = None,
        changes: int = 1,
    ) -> None:
        """Randomize values and put the reports into their batches.

        Parameters
        ----------
        value : scalar or array_like, shape (n,); for a vector mean (d,) or (n, d)
            Numbers for a mean; category names or indices for a frequency, or a mapping of each axis
            to its value; vectors.
        epsilon : float or array_like of float, shape (n,)
            The largest epsilon that each owner allows; it is rounded down to a level of the metric.
        time : None, float, datetime, datetime64, or n of these
            When the values were true; by default now. See
            :func:`producers.device.event_times.event_times`.
        attributes : mapping of str to str, optional
            The attributes of the devices of these values, which replace those of the reporter, for
            an application that reports for several devices.
        ledger : Ledger, optional
            The account of the one person who owns all these values. The reporter charges each
            report's level there, on disk, before it randomizes anything. For a memoized metric, it
            stores answers there and repeats them. For a trusted metric, it sends each report
            separately, under the device's pseudonym in its pane, at most one report a pane. A
            metric with a crowd needs a ledger, and takes at most one report a pane.
        permanent : float, optional
            With a ledger and a memoized metric: the epsilon of the permanent answers, from which
            each report is drawn again at `epsilon`. By default reports are the permanent answers.
            See :class:`estimators.memoization.Memoization`.
        changes : int
            With a ledger and a memoized metric: how often the answer may change in a period of the
            ledger. The ledger charges one answer more than this number, whatever the values are;
            for any further value, the device repeats its previous answer.

        Nothing is reported if this raises an error.

        Raises
        ------
        ValueError
            If a value, an epsilon, a time or an attribute cannot be used.
        DefinitionChanged
            If the ledger has answers of another definition of that name.
        BudgetSpent
            If the cost exceeds what is left in the ledger.
        AlreadyAnswered
            If the metric is memoized or trusted or has a crowd, and the ledger has a report in the
            same pane or in a later one.
        LedgerError
            If the ledger's file cannot be used.
        DeliveryError
            If so many earlier reports are undelivered that no more are accepted.
        """
        sent = self._attributes
        if attributes is not None:
            sent = sent_attributes(self.metric.slicing, attributes)
        with self.calling():
            self._report(value, epsilon, time, [(None, sent)], ledger, permanent, changes)

    def report_groups(
        self,
        value: ArrayLike,
        epsilon: ArrayLike,
        time: Times,
        groups: Iterable[tuple[NDArray[np.intp], Mapping[str, str]]],
    ) -> None:
        """Report for groups of devices, like a call of :meth:`report` for each group, but faster.

        Parameters
        ----------
        value, epsilon, time
            As for :meth:`report`, for all groups together.
        groups : iterable of (ndarray of intp, mapping of str to str)
            The rows of each group, and the attributes of its devices. Groups of earlier panes must
            come before groups of later panes.

        Raises
        ------
        ValueError, DeliveryError
            As for :meth:`report`. Then nothing is reported.
        """
        slicing = self.metric.slicing
        parts = [(rows, sent_attributes(slicing, attributes)) for rows, attributes in groups]
        with self.calling():
            self._report(value, epsilon, time, parts)

    def _report(
        self,
        value: Values,
        epsilon: ArrayLike,
        time: Times,
        parts: Iterable[tuple[NDArray[np.intp] | None, Attributes]],
        ledger: Ledger | None = None,
        permanent: float | None = None,
        changes: int = 1,
    ) -> None:
        """Randomize values; put the reports of each part's rows (None: all) into batches."""
        metric = self.metric
        if not isinstance(metric, ReportedMetric):
            raise ValueError(
                f"metric {metric.name!r} is asked in rounds: follow them with `Rounds`, and "
                "`answer` each"
            )
        if metric.crowd is not None:
            check_ledger(metric, ledger)
        values = metric.domain.rows(value)
        level = metric.level_of(epsilon)
        if level.shape not in ((), values.shape[:1]):
            raise ValueError(
                f"epsilons of shape {level.shape} for values of shape {values.shape}: "
                "expected one, or one for each value"
            )
        times = event_times(self._clock() if time is None else time, len(values))
        values, denied = self.permitted(values)
        if level.ndim == 0:
            level = np.full(len(values), level)
        if not self._has_capacity(len(values)) or values.size == 0:
            return
        self.check_open()
        reports = self._charged_reports(metric, values, level, times, ledger, permanent, changes)
        columns = Columns(level, reports, times)
        if metric.sends_true_values and ledger is not None:
            self._send_true_values(ledger, columns)
            return
        for rows, attributes in parts:
            report_columns = columns if rows is None else columns.part(rows)
            report_columns = report_columns._replace(attributes=attributes)
            self._buffer(by_pane(report_columns, metric.pane_ms))
        with self._counting:
            self.denied += denied

    def _charged_reports(
        self,
        metric: ReportedMetric,
        values: NDArray[Any],
        level: NDArray[np.uint8],
        times: NDArray[np.int64],
        ledger: Ledger | None,
        permanent: float | None,
        changes: int,
    ) -> Reports:
        """Charge the ledger, if any, and return randomized reports of the values."""
        memoized = isinstance(metric, LocalMetric) and metric.memoized
        if permanent is not None and (ledger is None or not memoized):
            raise ValueError(
                f"permanent = {permanent} for {metric.name!r}: expected a ledger, which keeps the "
                "answers, and a metric with `memoized = true`"
            )
        if ledger is None or metric.sends_true_values:
            return metric.randomize(values, level, self.bits)
        if memoized:
            from producers.ledger.permanent_answers import repeat_or_draw

            answers = None if permanent is None else Fraction(str(permanent))
            return repeat_or_draw(ledger, metric, values, level, times, answers, changes, self.bits)
        metric.domain.to_unit(values)  # what cannot be reported costs nothing
        epsilons = metric.randomizer.epsilons
        counts = np.bincount(level, minlength=len(epsilons)).tolist()
        cost = sum(epsilon * count for epsilon, count in zip(epsilons, counts, strict=True))
        if metric.crowd is None:
            ledger.spend(metric.name, Fraction(cost), len(values), fingerprint=metric.fingerprint)
        else:
            ledger.spend_once(metric, Fraction(cost), times.tolist())
        return metric.randomize(values, level, self.bits)

    def permitted(self, values: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Return values with "other" in place of denied strings, and how many were denied."""
        return without_denied(values, self._rules) if self._rules else (values, 0)

    def answer(
        self,
        open_round: Round,
        value: ArrayLike,
        epsilon: ArrayLike,
        *,
        ledger: Ledger | None = None,
    ) -> int:
        """Answer a round of a minimum or maximum at random, and send the answers.

        With a ledger, a device answers each round at most once. If the users are split over the
        rounds, it answers only the round that it drew when it was first asked; a call for any other
        round answers nothing. The draw and the answer are on disk before anything is sent.
        `open_round`: from :class:`producers.Rounds`, or `GET /v1/metrics/NAME/round`; `value`,
        shape (n,): the devices' numbers, which must not change between rounds; `epsilon`, shape
        (n,): the epsilon of each answer; `ledger`, optional: the account of the person who owns the
        only value. Without a ledger, the caller must ensure that nobody answers twice, and decide
        who answers which round (:meth:`estimators.extremes.Search.own_round`).

        Returns
        -------
        int
            The number of answers that were sent.

        Raises
        ------
        ValueError
            If a value or an epsilon cannot be used, or the metric's definition does not allow the
            round: another number, or a threshold that its search cannot reach.
        DefinitionChanged
            If the ledger has a search of this name with another definition.
        BudgetSpent, LedgerError, DeliveryError
            As for :meth:`report`. Then nothing is answered.
        """
        metric = SearchMetric.require(self.metric)
        if fault := open_round.fault(metric):
            raise ValueError(f"{fault}; nothing was answered")
        if open_round.threshold is None:
            raise ValueError(f"the search for {metric.name!r} is over: expected an open round")
        values = metric.domain.rows(value)
        level = np.broadcast_to(metric.level_of(epsilon), values.shape)
        number, threshold = open_round.number, open_round.threshold
        with self.calling():
            if not self._has_capacity(len(values)):
                return 0
            self.check_open()
            metric.domain.to_unit(values)  # what cannot be answered costs nothing
            if ledger is not None:
                from producers.ledger.single_answers import claim_round

                if values.size != 1:
                    raise ValueError(
                        f"{values.size} values with one ledger: expected one value, as a ledger is "
                        "for one person"
                    )
                if not claim_round(ledger, metric, number, int(level[0]), self.bits):
                    return 0
            answers = metric.search.answer(values, level, threshold, self.bits)
            now = int(1000 * self._clock())  # for all, as batches sent again stay in their pane
            columns = Columns(level, answers, np.full(len(answers), now))
            for begin in range(0, len(answers), self.batch_reports):
                part = columns.part(slice(begin, begin + self.batch_reports))
                self._send(self._encoded(part, new_batch_id(), number))
            return len(answers)

    def _send_true_values(self, ledger: Ledger, columns: Columns) -> None:
        """Send the true values of one person, each in its own batch, at most one in a pane."""
        from producers.ledger.single_answers import entrusted

        if self._key is not None:
            raise ValueError(
                "a reporter with a key cannot send one person's true values for "
                f"{self.metric.name!r}: open it without a key. The pane's pseudonym is the key"
            )
        ids = entrusted(ledger, self.metric, columns.level, columns.time_ms)
        for row, key in enumerate(ids):
            self._send(self._encoded(columns.part(slice(row, row + 1)), key))

    def _encoded(self, columns: Columns, key: bytes, number: int = 0) -> PendingBatch:
        """Return reports of one pane and slice as a batch; `number` is that of a round, or 0."""
        level, reports, times, attributes = columns
        payload = encode_randomized(
            self.metric, level, reports, int(times.max()), key, number, attributes
        )
        return PendingBatch(key, payload, len(level))

    # -- Opened and closed ------------------------------------------------------------------------

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process is a fork of the one that opened the reporter."""
        return self._process != os.getpid()

    def check_open(self) -> None:
        """Raise ValueError if this reporter is closed, or belongs to another process."""
        if self.is_closed:
            raise ValueError(CLOSED_MESSAGE)
        if self.is_elsewhere:
            raise ValueError(
                f"this reporter was opened in process {self._process}, which has forked: open a "
                "new one in each process"
            )

    def flush(self, timeout: float = 30.0) -> None:
        """Send everything, including failed batches; wait up to `timeout` seconds for it.

        Raises DeliveryError if a batch is not acknowledged in time. It is kept, and the next
        `flush` sends it again.
        """
        with self._calls.flushing():
            self._send_all(clocks.monotonic() + timeout)

    def close(self, timeout: float = 30.0) -> int | None:
        """Wait for calls under way, then flush; afterwards no reports are accepted.

        If another thread is closing the reporter, wait for it and return the same result. In a
        forked process nothing is sent, because the reports belong to the parent.

        Returns
        -------
        int or None
            Over HTTP, the number of this metric's reports that are left in the file; else None.

        Raises
        ------
        DeliveryError
            If a batch was not acknowledged within `timeout` seconds, and is lost.
        """
        if self.is_elsewhere:
            return None
        deadline = clocks.monotonic() + timeout
        try:
            return self._calls.close(deadline, lambda: self._finish(deadline))
        except TimeoutError:
            return self._unsent()


def by_pane(columns: Columns, pane_ms: int) -> Iterator[tuple[int, Columns]]:
    """Yield the start of each pane and its reports, in order of event time."""
    starts = columns.time_ms - columns.time_ms % pane_ms
    if starts.size == 1 or starts.min() == starts.max():
        yield int(starts[0]), columns
        return
    order = np.argsort(starts, kind="stable")
    sorted_starts = starts[order]
    edges = np.flatnonzero(np.diff(sorted_starts)) + 1
    for rows in np.split(order, edges):
        yield int(starts[rows[0]]), columns.part(rows)
