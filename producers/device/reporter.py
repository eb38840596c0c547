"""The reporter: the interface for an application on a device."""

from __future__ import annotations

import logging
import os
import threading
import time as clocks
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from estimators import SearchMetric
from estimators.exact.randomness import Bits
from estimators.metrics.attributes import MOST_BYTES, leaving
from estimators.metrics.denial import Deny, without_denied
from estimators.metrics.metric import Metric
from estimators.metrics.reported import ReportedMetric
from producers.device.panes import Columns, PaneBuffer
from producers.device.randomizing import randomized, rules_of, values_of
from producers.device.times import Times, event_times
from producers.kafka.closing import Closing
from producers.kafka.connection import Connection
from producers.kafka.delivery import Delivered, Outbox, PendingBatch
from producers.kafka.kafka_errors import DeliveryError
from producers.wire.batch import encode_randomized, new_batch_id

if TYPE_CHECKING:
    from producers.device.rounds import Round
    from producers.ledger.ledger import Ledger

logger = logging.getLogger("producers")

TOPIC = "dither.reports"
KEPT_BYTES = 64 * 2**20  # of failed batches: above it, report() refuses to take more
_MESSAGE_OVERHEAD = 512  # bytes for everything in a batch but its two columns and attributes
_ATTRIBUTE_OVERHEAD = 2 * MOST_BYTES + 8


class Reporter(Closing):
    """Randomizes values of one metric at once and sends the reports to Kafka.

    It never stores a raw value: `report` randomizes it before it returns, and only the report waits
    for its batch. All methods may be called from any thread.

    Parameters
    ----------
    metric : Metric
    config : mapping or Connection
        librdkafka's properties, or a connection that several reporters share.
    topic : str
    batch_reports : int
        A batch is sent with this many reports (fewer if Kafka's message size or the metric's
        `max_batch_reports` requires it).
    batch_age : float
        A batch is also sent this many seconds after its first report, or when a report of a later
        pane arrives.
    key : bytes, optional
        The Kafka key of every batch, for metrics with a limit per key (`max_key_reports`): a random
        pseudonym of the device, or of several. A reader of the log can see which batches share a
        key; by default each batch has a random key, its id.
    attributes : mapping of str to str, optional
        Public properties of the device, by which a metric may sum its reports (`by`). Only those
        leave that the metric uses, and a value that it does not declare leaves as "other". Nothing
        protects them: see docs/privacy.md.
    deny : callable, optional
        For a metric of strings, the application's own rule: it is called with each string, in
        Unicode's normal form C, and returns whether it must not be reported, as a
        :class:`estimators.DenyRule` does. It comes in addition to the definition's `deny`, which a
        server may change; nothing that a server sends switches it off. For a string that one of
        them denies, "other" is reported in the same way as any string. If it raises, nothing is
        reported.
    trusted : bool
        Needed for a metric with ``trust = "central"``: **the collector may see true values**. The
        application decides this, not a definition that somebody sent.
    bits : Bits, optional
        The source of randomness; the operating system's by default.
    clock : callable
        Seconds since the epoch: the event time of reports without one.
    timer : callable
        Monotonic seconds: the age of batches.

    Attributes
    ----------
    delivered : Delivered
        Reports, batches and bytes that Kafka has acknowledged.
    denied : int
        How many values were reported as "other", because a rule denies them. The application
        decides what becomes of the number: it is not randomized, and is sent nowhere.

    Raises
    ------
    ValueError
        If a parameter or a Kafka property cannot be used.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1])
    >>> with Reporter(metric, {"test.mock.num.brokers": 1}) as reporter:
    ...     reporter.report(1.0, epsilon=0.5)
    ...     reporter.report([0.0, 1.0], epsilon=[0.7, 2.0])
    ...     reporter.flush()
    ...     reporter.delivered.reports
    3
    """

    def __init__(
        self,
        metric: Metric,
        config: Mapping[str, Any] | Connection,
        *,
        topic: str = TOPIC,
        batch_reports: int = 1000,
        batch_age: float = 1.0,
        key: bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        deny: Deny | None = None,
        trusted: bool = False,
        bits: Bits | None = None,
        clock: Callable[[], float] = clocks.time,
        timer: Callable[[], float] = clocks.monotonic,
    ) -> None:
        if batch_reports < 1:
            raise ValueError(f"batch_reports = {batch_reports}: expected 1 or more")
        if not batch_age >= 0:
            raise ValueError(f"batch_age = {batch_age}: expected seconds, 0 or more")
        self.metric, self.topic, self.bits = metric, topic, bits
        self._attributes = leaving(metric.slicing, attributes)
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
        self._owns_connection = not isinstance(config, Connection)
        self._connection = config if isinstance(config, Connection) else Connection(config)
        self._outbox = Outbox(self._connection, topic, key)
        room = self._connection.message_max_bytes - _MESSAGE_OVERHEAD
        if metric.slicing is not None:
            room -= len(metric.slicing.attributes) * _ATTRIBUTE_OVERHEAD
        most = max(1, room // (metric.randomizer.width + 1))
        size = min(batch_reports, most, metric.max_batch_reports or most)
        self._waiting = PaneBuffer(metric.pane_ms, metric.lateness_ms, size, batch_age)
        self._clock, self._timer = clock, timer
        self._lock = threading.Lock()
        self._closed, self._process = False, os.getpid()
        self._connection.add(self)

    @property
    def delivered(self) -> Delivered:
        """Reports, batches and bytes that Kafka has acknowledged so far."""
        return self._outbox.delivered

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

        Waits while librdkafka's queue is full.

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
            If batches have failed for good since the last error that told of some, or more than 64
            MiB of them wait for `flush`. Nothing is reported then.
        """
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
        own = self._attributes if attributes is None else leaving(metric.slicing, attributes)
        times = event_times(time, len(values), self._clock())
        denied = 0
        if self._rules:
            values, denied = without_denied(values, self._rules)
        level = metric.level_of(demanded)
        if level.ndim == 0:
            level = np.full(len(values), level)
        self._outbox.check(KEPT_BYTES)
        if values.size == 0:
            return
        self._check_open()
        reports = randomized(metric, values, level, times, ledger, permanent, changes, self.bits)
        if metric.sends_true_values and ledger is not None:
            self._entrust(ledger, Columns(level, reports, times))
            return
        with self._lock:
            self._check_open()
            self.denied += denied
            full = self._waiting.add(Columns(level, reports, times, own), self._timer())
            self._seal(full)
        self._outbox.send()

    def answer(
        self, asked: Round, value: ArrayLike, epsilon: ArrayLike, *, ledger: Ledger | None = None
    ) -> int:
        """Answer a round of a minimum or maximum at random, and send the answers.

        With a ledger, a device answers each round at most once. If the users are split over the
        rounds, it answers only the round that it drew for itself when it was first asked. Other
        calls answer nothing. The draw and the answer are on disk before anything is sent.

        Parameters
        ----------
        asked : Round
            From :class:`producers.device.rounds.Rounds`, or `GET /v1/metrics/NAME/round`.
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
        BudgetSpent, LedgerError
            As for :meth:`report`. Nothing is answered then.
        DeliveryError
            If batches have failed for good since the last error that told of some, or more than 64
            MiB of them wait for `flush`. Nothing is answered then.
        """
        metric = SearchMetric.require(self.metric)
        if fault := asked.fault(metric):
            raise ValueError(f"{fault}; nothing was answered")
        if asked.threshold is None:
            raise ValueError(f"the search for {metric.name!r} is over: expected an open round")
        values = values_of(metric, value)
        level = np.broadcast_to(metric.level_of(np.asarray(epsilon)), values.shape)
        self._outbox.check(KEPT_BYTES)
        self._check_open()
        metric.domain.to_unit(values)  # what cannot be answered costs nothing
        if ledger is not None:
            from producers.ledger.round_participation import claim_round

            if values.size != 1:
                raise ValueError(
                    f"{values.size} values with one ledger: expected one value, as a ledger is for "
                    "one person"
                )
            if not claim_round(ledger, metric, asked.number, int(level[0]), self.bits):
                return 0
        answers = metric.search.answer(values, level, asked.threshold, self.bits)
        now = int(1000 * self._clock())  # a batch that is sent again has to meet itself in its pane
        for begin in range(0, len(answers), self._waiting.batch_reports):
            part = slice(begin, begin + self._waiting.batch_reports)
            key = new_batch_id()
            payload = encode_randomized(metric, level[part], answers[part], now, key, asked.number)
            self._outbox.put(PendingBatch(key, payload, len(answers[part])))
            self._outbox.send()
        return len(answers)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("this reporter is closed: open a new one")
        if self._process != os.getpid():
            raise ValueError(
                f"this reporter was opened in process {self._process}, which has forked: open a "
                "new one in each process"
            )

    def _entrust(self, ledger: Ledger, columns: Columns) -> None:
        """Send one person's true values, each in a batch of its own, at most one a pane."""
        from producers.device.true_values import entrusted

        if self._outbox.key is not None:
            raise ValueError(
                "a reporter with a key cannot send one person's true values for "
                f"{self.metric.name!r}: open it without a key. The pane's pseudonym is the key"
            )
        ids = entrusted(ledger, self.metric, columns.level, columns.time_ms)
        for row, key in enumerate(ids):
            own = columns.part(slice(row, row + 1))
            time = int(own.time_ms[0])
            payload = encode_randomized(self.metric, own.level, own.reports, time, key)
            self._outbox.put(PendingBatch(key, payload, 1))
        self._outbox.send()

    def poll(self, timeout: float = 0.0) -> None:
        """Process acknowledgements, waiting up to `timeout` seconds, and send batches by age.

        Only needed with ``Connection(..., background=False)``; otherwise a thread does it.
        """
        self._connection.poll(timeout)

    def send_aged(self) -> None:
        """Send the batches that have reached their age."""
        with self._lock:
            self._seal(self._waiting.pop_aged(self._timer()))
        self._outbox.send()

    def flush(self, timeout: float = 30.0) -> None:
        """Send everything, including failed batches, and wait for Kafka's acknowledgement.

        Parameters
        ----------
        timeout : float
            Seconds.

        Raises
        ------
        DeliveryError
            If something is not acknowledged. The next `flush` sends it again.
        """
        deadline = clocks.monotonic() + timeout
        with self._lock:
            self._seal(self._waiting.pop_all())
        self._outbox.send(deadline)
        self._outbox.resend(deadline)
        self._outbox.wait(deadline)

    def close(self, timeout: float = 30.0) -> None:
        """Flush, and accept no more reports.

        In a forked process nothing is sent, because the reports belong to the parent.

        Raises
        ------
        DeliveryError
            If something was not acknowledged within `timeout` seconds: it is lost.
        """
        if self._process != os.getpid():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.flush(timeout)
        except DeliveryError:
            raise self._outbox.error(kept=False) from None
        finally:
            self._connection.remove(self)
            if self._owns_connection:
                self._connection.close()

    def _seal(self, ready: Iterable[Columns]) -> None:
        for columns in ready:
            key, last = new_batch_id(), int(columns.time_ms.max())
            level, reports, _, attributes = columns
            payload = encode_randomized(
                self.metric, level, reports, last, key, attributes=attributes
            )
            self._outbox.put(PendingBatch(key, payload, level.size))
