"""What reporters have in common, however their reports travel: values in, batches out."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time as clocks
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators import SearchMetric
from estimators.exact.randomness import Bits
from estimators.metrics.attributes import MOST_BYTES, sent_attributes
from estimators.metrics.denial import Deny, without_denied
from estimators.metrics.metric import Metric
from estimators.metrics.reported import ReportedMetric
from producers.delivery.batches import Delivered, PendingBatch
from producers.delivery.closing import Calls, Closing
from producers.device.panes import Columns
from producers.device.randomizing import check_metric, randomized, rules_of, values_of
from producers.device.times import Times, event_times
from producers.wire.batch import encode_randomized, new_batch_id

if TYPE_CHECKING:
    from producers.device.rounds import Round
    from producers.ledger.ledger import Ledger

logger = logging.getLogger("producers")

LOOK_SECONDS = 60.0
"""Between two calls of what is scheduled."""
_MESSAGE_OVERHEAD = 512  # bytes for everything in a batch but its two columns and attributes
_ATTRIBUTE_OVERHEAD = 2 * MOST_BYTES + 8


class BaseReporter(Closing):
    """Randomizes values of one metric at once; a subclass sends the reports.

    Raw values are never stored: `report` randomizes them before it returns. All methods are
    thread-safe. See :class:`producers.Reporter` for the parameters; `most_bytes` limits the bytes
    of a batch.
    """

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
    ) -> None:
        check_metric(metric)
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
        self._closed, self._process = False, os.getpid()
        self._scheduled: dict[str, Callable[[], object]] = {}
        self._calls, self._next_look = Calls(), 0.0

    # -- How reports travel -----------------------------------------------------------------------

    @property
    @abstractmethod
    def delivered(self) -> Delivered:
        """Reports, batches and bytes that are acknowledged so far."""

    @abstractmethod
    def has_capacity(self, reports: int) -> bool:
        """Return whether so many more reports are taken; False: they are dropped, and counted.

        Raises
        ------
        DeliveryError
            If they are not, and the application has to know.
        """

    @abstractmethod
    def buffer(self, columns: Columns) -> None:
        """Put randomized reports into their batches."""

    @abstractmethod
    def send(self, batch: PendingBatch) -> None:
        """Send a batch."""

    @abstractmethod
    def flush(self, timeout: float = 30.0) -> None:
        """Send everything, and wait until it is acknowledged; DeliveryError if it is not."""

    @abstractmethod
    def close(self, timeout: float = 30.0) -> object:
        """Flush, and accept no more reports."""

    def check_pseudonymous(self) -> None:
        """Raise ValueError if batches cannot have the pseudonyms of true values as their keys."""

    @property
    def has_file(self) -> bool:
        """Whether :meth:`transaction` has a file, which survives a restart."""
        return False

    def transaction(self, *, erasing: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Provide the reporter's own file for one transaction, for what belongs to its reports.

        Raises
        ------
        ValueError
            If it has none.
        """
        raise ValueError(f"the reporter of {self.metric.name!r} has no file (erasing = {erasing})")

    @property
    def is_closed(self) -> bool:
        """Whether no more is sent."""
        return self._closed

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Make `close` wait for a call, so that everything charged is reported.

        Raise ValueError if the reporter is closed or belongs to another process.
        """
        self.check_open()
        with self._calls.under_way():
            yield

    # -- What comes again -------------------------------------------------------------------------

    def schedule(self, name: str, call: Callable[[], object]) -> None:
        """Let the sending thread call a function each minute; it replaces one of the same name."""
        if not self._scheduled:
            self._next_look = clocks.monotonic() + LOOK_SECONDS
        self._scheduled[name] = call

    def run_scheduled(self) -> float:
        """Call what is scheduled, if it is time; return in how many seconds it is the next time."""
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
        value: ArrayLike,
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
            Numbers for a mean; category names or indices for a frequency; vectors.
        epsilon : float or array_like of float, shape (n,)
            The largest epsilon each owner allows; rounded down to one of the metric's levels.
        time : None, float, datetime, datetime64, or n of these
            When it happened; None: now. See :func:`producers.device.times.event_times`.
        attributes : mapping of str to str, optional
            Those of the devices of these values, instead of the reporter's: for an application that
            reports for several devices.
        ledger : Ledger, optional
            The account of the one person who owns all these values. The reporter charges each
            report's level there, on disk, before it randomizes anything. For a memoized metric, it
            stores answers there and repeats them. For a trusted one, it sends each report by
            itself, under the device's pseudonym in its pane, at most one a pane.
        permanent : float, optional
            With a ledger and a memoized metric: the epsilon of the permanent answers, from which
            each report is drawn again at `epsilon`. By default reports are the permanent answers.
            See :class:`estimators.memoization.Memoization`.
        changes : int
            With a ledger and a memoized metric: how often the answer may change in a period of the
            ledger. The ledger charges that many answers plus one, whatever the values are; a
            further value gets the previous answer.

        Raises
        ------
        ValueError
            If a value, an epsilon, a time or an attribute cannot be used. Nothing is reported then.
        DefinitionChanged
            If the ledger has answers of another definition of that name. Nothing is reported then.
        BudgetSpent
            If the cost exceeds what is left in the ledger. Nothing is reported then.
        AlreadyAnswered
            If the metric is memoized or trusted, and the ledger has a report in the same pane or in
            a later one. Nothing is reported then.
        LedgerError
            If the ledger's file cannot be used. Nothing is reported then.
        DeliveryError
            If so many earlier reports have not arrived that no more are taken. Nothing is reported
            then.
        """
        attributes_sent = self._attributes
        if attributes is not None:
            attributes_sent = sent_attributes(self.metric.slicing, attributes)
        with self.calling():
            randomized = self._randomized(value, epsilon, time, ledger, permanent, changes)
            if randomized is None:
                return
            columns, denied = randomized
            if self.metric.sends_true_values and ledger is not None:
                self._entrust(ledger, columns)
                return
            self.buffer(columns._replace(attributes=attributes_sent))
        with self._counting:
            self.denied += denied

    def report_groups(
        self,
        value: ArrayLike,
        epsilon: ArrayLike,
        time: Times,
        groups: Iterable[tuple[NDArray[np.intp], Mapping[str, str]]],
    ) -> None:
        """Report for groups of devices: as one :meth:`report` a group, in a fraction of the time.

        Parameters
        ----------
        value, epsilon, time
            As for :meth:`report`; of all groups.
        groups : iterable of (ndarray of intp, mapping of str to str)
            The rows of each group, and the attributes of its devices. Groups of early panes go
            before those of later ones.

        Raises
        ------
        ValueError, DeliveryError
            As for :meth:`report`. Nothing is reported then.
        """
        slicing = self.metric.slicing
        parts = [(rows, sent_attributes(slicing, attributes)) for rows, attributes in groups]
        with self.calling():
            randomized = self._randomized(value, epsilon, time, None, None, 1)
            if randomized is None:
                return
            columns, denied = randomized
            for rows, attributes in parts:
                self.buffer(columns.part(rows)._replace(attributes=attributes))
        with self._counting:
            self.denied += denied

    def _randomized(
        self,
        value: ArrayLike,
        epsilon: ArrayLike,
        time: Times,
        ledger: Ledger | None,
        permanent: float | None,
        changes: int,
    ) -> tuple[Columns, int] | None:
        """Return the reports of values, and how many are denied; None if they are not taken."""
        metric = self.metric
        if not isinstance(metric, ReportedMetric):
            raise ValueError(
                f"metric {metric.name!r} is asked in rounds: follow them with `Rounds`, and "
                "`answer` each"
            )
        values = values_of(metric, value)
        demanded = np.asarray(epsilon)
        if demanded.shape not in ((), values.shape[:1]):
            raise ValueError(
                f"epsilons of shape {demanded.shape} for values of shape {values.shape}: "
                "expected one epsilon, or one for each value"
            )
        times = event_times(time, len(values), self._clock())
        values, denied = self.permitted(values)
        level = metric.level_of(epsilon)
        if level.ndim == 0:
            level = np.full(len(values), level)
        if not self.has_capacity(len(values)) or values.size == 0:
            return None
        self.check_open()
        reports = randomized(metric, values, level, times, ledger, permanent, changes, self.bits)
        return Columns(level, reports, times), denied

    def permitted(self, values: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Return values with "other" in place of denied strings, and how many those are."""
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
        rounds, it answers only the round that it drew for itself when it was first asked. Other
        calls answer nothing. The draw and the answer are on disk before anything is sent.

        Parameters
        ----------
        open_round : Round
            From :class:`producers.Rounds`, or `GET /v1/metrics/NAME/round`.
        value : float or array_like, shape (n,)
            For a device, one number that does not change between rounds.
        epsilon : float or array_like of float, shape (n,)
        ledger : Ledger, optional
            The account of the person who owns this value. Without one, the caller has to ensure
            that nobody answers twice, and decide who answers which round
            (:meth:`estimators.extremes.Search.own_round`).

        Returns
        -------
        int
            The number of answers.

        Raises
        ------
        ValueError
            If a value or an epsilon cannot be used, or the metric's definition does not allow the
            round: another number, or a threshold that its search cannot reach.
        DefinitionChanged
            If the ledger has a search of this name with another definition.
        BudgetSpent, LedgerError, DeliveryError
            As for :meth:`report`. Nothing is answered then.
        """
        metric = SearchMetric.require(self.metric)
        if fault := open_round.fault(metric):
            raise ValueError(f"{fault}; nothing was answered")
        if open_round.threshold is None:
            raise ValueError(f"the search for {metric.name!r} is over: expected an open round")
        values = values_of(metric, value)
        level = np.broadcast_to(metric.level_of(epsilon), values.shape)
        with self.calling():
            return self._answer(
                metric, open_round.number, open_round.threshold, values, level, ledger
            )

    def _answer(
        self,
        metric: SearchMetric,
        number: int,
        threshold: float,
        values: NDArray[Any],
        level: NDArray[np.uint8],
        ledger: Ledger | None,
    ) -> int:
        if not self.has_capacity(len(values)):
            return 0
        self.check_open()
        metric.domain.to_unit(values)  # what cannot be answered costs nothing
        if ledger is not None:
            from producers.ledger.round_participation import claim_round

            if values.size != 1:
                raise ValueError(
                    f"{values.size} values with one ledger: expected one value, as a ledger is for "
                    "one person"
                )
            if not claim_round(ledger, metric, number, int(level[0]), self.bits):
                return 0
        answers = metric.search.answer(values, level, threshold, self.bits)
        now = int(1000 * self._clock())  # a batch that is sent again has to meet itself in its pane
        for begin in range(0, len(answers), self.batch_reports):
            part = slice(begin, begin + self.batch_reports)
            key = new_batch_id()
            payload = encode_randomized(metric, level[part], answers[part], now, key, number)
            self.send(PendingBatch(key, payload, len(answers[part])))
        return len(answers)

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a fork of the process that opened the reporter."""
        return self._process != os.getpid()

    def check_open(self) -> None:
        """Raise ValueError if this reporter is closed, or belongs to another process."""
        if self.is_closed:
            raise ValueError("this reporter is closed: open a new one")
        if self.is_elsewhere:
            raise ValueError(
                f"this reporter was opened in process {self._process}, which has forked: open a "
                "new one in each process"
            )

    def sealed(self, columns: Columns) -> PendingBatch:
        """Return reports of one pane and slice as a batch; its time is their latest."""
        key, last = new_batch_id(), int(columns.time_ms.max())
        level, reports, _, attributes = columns
        payload = encode_randomized(self.metric, level, reports, last, key, attributes=attributes)
        return PendingBatch(key, payload, level.size)

    def _entrust(self, ledger: Ledger, columns: Columns) -> None:
        """Send one person's true values, each in a batch of its own, at most one a pane."""
        from producers.device.true_values import entrusted

        self.check_pseudonymous()
        ids = entrusted(ledger, self.metric, columns.level, columns.time_ms)
        for row, key in enumerate(ids):
            report = columns.part(slice(row, row + 1))
            time = int(report.time_ms[0])
            payload = encode_randomized(self.metric, report.level, report.reports, time, key)
            self.send(PendingBatch(key, payload, 1))
