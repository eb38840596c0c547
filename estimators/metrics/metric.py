"""A metric: one question asked of the population, and everything needed to ask and answer it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.bounds.manipulation import Influence, Reach, largest_shifts
from estimators.central import COLLECTIONS, TrueValues
from estimators.central.weights import POLICIES as RELEASE_POLICIES
from estimators.durations import milliseconds
from estimators.errors import ReportError
from estimators.estimate import Counts, Estimate
from estimators.exact.randomness import Bits, SystemBits
from estimators.extremes import Search
from estimators.extremes.search import KINDS as EXTREMES
from estimators.mechanisms import MECHANISMS, Mechanism, RandomizedResponse
from estimators.mechanisms.mechanism import Levels, Reports
from estimators.metrics.domains import KEYS, OPEN, Domain, domain_of
from estimators.metrics.validation import LEVEL_DIGITS, check, check_options
from estimators.question import Question
from estimators.weights import POLICIES

BLOCK = 2**16
"""Numbers that are randomized together: intermediate arrays stay in the processor's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One question: its domain, its mechanism, the privacy levels on offer, and its panes.

    Parameters
    ----------
    name : str
        Lower-case letters, digits and underscores.
    kind : {"mean", "vector_mean", "frequency", "minimum", "maximum"}
        What is estimated.
    mechanism : str
        The local randomizer, one of :data:`estimators.mechanisms.MECHANISMS`. Left out where the
        collector is trusted, and for a minimum or maximum.
    levels : sequence of float
        The epsilons on offer, ascending, with at most 4 decimal digits.
    range : pair of float, optional
        For means, minimum and maximum: the domain. A value outside is clipped to it, on the device.
    categories : int, sequence of str, or "open", optional
        For frequencies: the categories' names, or k for values 0 to k - 1; or ``"open"`` where any
        string may be reported and asked for, with a mechanism that can do so.
    watch : sequence of str, optional
        Of an open vocabulary: the strings that an estimate is about if no others are asked for.
    dimension : int, optional
        For vector means: the number of coordinates. May be left out where they have names.
    coordinates : sequence of str, optional
        For vector means: the coordinates' names; "0" to "d - 1" by default.
    radius : float, optional
        For vector means: the domain is the l2 ball of this radius around zero. A longer vector is
        shortened to it, on the device.
    trust : {"local", "central"}
        ``"local"``: a value is randomized on the device. ``"central"``: **devices send their true
        values**; the collector sees them all, and only its releases are private. For kinds `mean`
        and `frequency`.
    options : mapping of str to int or str, optional
        The mechanism's own options, for instance ``{"grid": 1024}`` for ``laplace``.
    pane : str
        The width of a pane of event time, for instance ``"1m"``.
    lateness : str
        How long after a pane's end its reports are still counted, in event time.
    hold_open : bool
        While it is set, no pane is closed, whatever times are reported: for a backfill beside live
        reports. What is open takes memory; no window is final.
    retention : str, optional
        How long a pane is kept after the last report in it arrived; for ever by default.
    minimum_reports : int
        Below this an answer says ``too_few_reports``.
    memoized : bool
        Whether devices may draw an answer once for each value and repeat it, at most once a pane.
        Reports of different panes are then not independent, and bounds over several panes are
        wider. For mechanisms that are ``memoizable``.
    max_batch_reports : int, optional
        A batch with more reports is refused; no limit by default.
    max_key_reports : int, optional
        How many reports of one message key are counted in a pane; no limit by default.
    rounds : int, optional
        For a minimum or maximum, which is searched for in so many rounds of questions: see
        :class:`estimators.extremes.Search`, also for `split`, `beta` and `critical`.
    split, beta, critical
        As there.
    round_reports : int, optional
        A round closes when so many answers are counted; by default, by its time alone.
    round_time : str
        A round closes when this much time has passed since it was opened and `minimum_reports`
        answers are counted.
    unit, description : str
        For people.

    Raises
    ------
    DefinitionError
        Naming the key, what was found there and what was expected.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> metric = Metric(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1, 2])
    >>> level = metric.level_of([1.0] * 4000 + [3.0] * 4000)
    >>> reports = metric.randomize([0.0, 1.0] * 4000, level, SeededBits(1))
    >>> statistic = metric.zero()
    >>> metric.accumulate(statistic, level, reports)
    >>> estimate = metric.estimate(statistic)
    >>> bool(estimate.lower < 0.5 < estimate.upper), estimate.reports
    (True, 8000)
    """

    name: str
    kind: str
    mechanism: str = ""
    levels: Sequence[float]
    range: Sequence[float] | None = None
    categories: int | str | Sequence[str] | None = None
    watch: Sequence[str] | None = None
    dimension: int | None = None
    coordinates: Sequence[str] | None = None
    radius: float | None = None
    trust: str = "local"
    options: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    pane: str = "1m"
    lateness: str = "0s"
    hold_open: bool = False
    retention: str | None = None
    minimum_reports: int = 100
    memoized: bool = False
    max_batch_reports: int | None = None
    max_key_reports: int | None = None
    rounds: int | None = None
    split: str = "users"
    beta: float = 0.05
    critical: str = "law"
    round_reports: int | None = None
    round_time: str = "1h"
    unit: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse what could not be counted or explained; fill in what follows from the rest."""
        check(self)
        object.__setattr__(self, "mechanism", self.mechanism_class.name)
        if self.kind == "vector_mean":
            object.__setattr__(self, "dimension", len(self.labels))

    # -- What the definition says -------------------------------------------------------------

    @property
    def mechanism_class(self) -> type[Mechanism]:
        """What the mechanism is an instance of."""
        if self.trust == "central":
            return COLLECTIONS[self.kind]
        return RandomizedResponse if self.has_rounds else MECHANISMS[self.mechanism]

    @property
    def has_rounds(self) -> bool:
        """Whether the question is asked in rounds: of a minimum or maximum."""
        return self.kind in EXTREMES

    def check_has_rounds(self) -> None:
        """Raise ValueError unless this is a minimum or maximum, which are asked in rounds."""
        if not self.has_rounds:
            raise ValueError(
                f"metric {self.name!r} of kind {self.kind!r} has no rounds: expected one of kind "
                f"{' or '.join(map(repr, EXTREMES))}"
            )

    @functools.cached_property
    def search(self) -> Search:
        """How a minimum or maximum is searched for.

        Raises
        ------
        ValueError
            If the metric has no rounds.
        """
        self.check_has_rounds()
        assert self.range is not None  # noqa: S101
        assert self.rounds is not None  # noqa: S101
        return Search(
            kind=self.kind,
            range=self.range,
            levels=self.levels,
            rounds=self.rounds,
            split=self.split,
            beta=self.beta,
            critical=self.critical,
        )

    @functools.cached_property
    def round_ms(self) -> int:
        """How long a round is open at least, unless it has its answers, in milliseconds."""
        return milliseconds(self.round_time)

    @functools.cached_property
    def randomizer(self) -> Mechanism:
        """The mechanism, built for this metric's levels and domain.

        Of a trusted collection, what stands in its place: it randomizes nothing. Of a minimum or
        maximum, what makes the answer to one round.
        """
        if self.has_rounds:
            if self.options:
                raise ValueError(f"expected none, found {', '.join(self.options)}")
            return self.search.randomizer
        epsilons = [Fraction(round(e * 10**LEVEL_DIGITS), 10**LEVEL_DIGITS) for e in self.levels]
        kind, parameters = self.mechanism_class, self.domain.parameters
        check_options(self.options, kind, parameters)
        return kind(epsilons, **parameters, **self.options)

    @functools.cached_property
    def domain(self) -> Domain:
        """The values that are asked for."""
        return domain_of(self.name, self.kind, {key: getattr(self, key) for key in KEYS})

    @property
    def category_names(self) -> tuple[str, ...]:
        """The categories' names; "0" to "k - 1" where only their number was given.

        Of an open vocabulary: the strings on watch.
        """
        return self.domain.labels if self.kind == "frequency" else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """What the numbers of an estimate are called: categories, or "0" to "d - 1"; or nothing."""
        return self.domain.labels

    @functools.cached_property
    def pane_ms(self) -> int:
        """The width of a pane in milliseconds."""
        return milliseconds(self.pane)

    @functools.cached_property
    def lateness_ms(self) -> int:
        """The allowed lateness in milliseconds."""
        return milliseconds(self.lateness)

    @functools.cached_property
    def retention_ms(self) -> int | None:
        """How long a pane is kept after its last report, in milliseconds; None: for ever."""
        return None if self.retention is None else milliseconds(self.retention)

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the weights that it may have, the default first."""
        return tuple(RELEASE_POLICIES[self.kind] if self.trust == "central" else POLICIES)

    @functools.cached_property
    def canonical(self) -> str:
        """All that a batch of reports and its pane mean, as one line of JSON in ASCII.

        Keys are sorted, there are no spaces, and numbers are written as Python's `repr` does: the
        browser's module writes the same.
        """
        meaning: dict[str, Any] = {
            "kind": self.kind,
            "mechanism": self.mechanism,
            "levels": [float(e) for e in self.levels],
            "range": None if self.range is None else [float(x) for x in self.range],
            "categories": OPEN if self.categories == OPEN else list(self.category_names),
            "options": dict(self.options),
            "pane": self.pane_ms,
        }
        if self.trust != "local":
            meaning["trust"] = self.trust
        if self.memoized:
            meaning["memoized"] = True
        if self.has_rounds:
            meaning |= {"rounds": self.rounds, "split": self.split}
            meaning |= {"beta": float(self.beta), "critical": self.critical}
        if self.kind == "vector_mean":
            assert self.radius is not None  # noqa: S101
            meaning |= {"coordinates": list(self.labels), "radius": float(self.radius)}
        if set(chosen := self.randomizer.chosen) != {self.mechanism}:
            meaning["chosen"] = chosen
        return json.dumps(meaning, sort_keys=True, separators=(",", ":"))

    @functools.cached_property
    def fingerprint(self) -> bytes:
        """The SHA-256 of that, 32 bytes: nobody can make up another definition that has it."""
        return hashlib.sha256(self.canonical.encode()).digest()

    @functools.cached_property
    def revision(self) -> int:
        """The first 32 bits of the fingerprint, which batches carry; never zero."""
        return int.from_bytes(self.fingerprint[:4], "big") or 1

    def pane_start(self, time_ms: int) -> int:
        """Return the start of the pane that an event time falls into, in ms since the epoch."""
        return time_ms - time_ms % self.pane_ms

    # -- On the device ------------------------------------------------------------------------

    def level_of(self, epsilons: ArrayLike) -> NDArray[np.uint8]:
        """Return the index of the largest level that is at most each demanded epsilon.

        Rounding down never costs privacy.

        Parameters
        ----------
        epsilons : array_like of float, shape (n,)

        Returns
        -------
        ndarray of uint8, shape (n,)

        Raises
        ------
        ValueError
            If an epsilon is below the lowest level, or not a number.

        Examples
        --------
        >>> Metric(name="m", kind="mean", mechanism="randomized_response", range=(0, 1),
        ...        levels=[0.5, 1, 2]).level_of([0.5, 1.9, 64.0])
        array([0, 1, 2], dtype=uint8)
        """
        demanded = np.asarray(epsilons, dtype=np.float64)
        level = np.searchsorted(np.asarray(self.levels), demanded, side="right") - 1
        refused = (level < 0) | np.isnan(demanded)
        if refused.any():
            raise ValueError(
                f"epsilon = {demanded[refused].ravel()[0]}: metric {self.name!r} offers "
                f"{list(self.levels)}; a stricter demand cannot be met, do not report"
            )
        return level.astype(np.uint8)

    def randomize(self, values: ArrayLike, level: ArrayLike, bits: Bits | None = None) -> Reports:
        """Randomize values at their levels: the only step that sees what a person holds.

        Of a trusted collection, nothing is random: a report is the value, on a grid.

        Parameters
        ----------
        values : array_like, shape (n,); (n, dimension) for a vector mean
            Numbers for a mean (clipped to the range); vectors for a vector mean (shortened to the
            radius); category names or indices for a frequency, strings for an open vocabulary.
        level : array_like of int, shape (n,)
            Indices into the metric's levels, from :meth:`level_of`.
        bits : Bits, optional
            The source of randomness; the operating system's by default.

        Returns
        -------
        ndarray of integers, one row a report

        Raises
        ------
        ValueError
            If a value is not a number, a category is unknown, or a level is out of range.
        """
        if self.has_rounds:
            raise ValueError(
                f"metric {self.name!r} is asked in rounds: use `search.answer`, with the threshold "
                "of a round"
            )
        held, levels = np.asarray(values), np.asarray(level)
        row = () if self.dimension is None else (self.dimension,)
        if levels.ndim != 1 or held.shape != (*levels.shape, *row):
            raise ValueError(
                f"values of shape {held.shape} with levels of shape {levels.shape}: "
                "expected two arrays of the same length"
                + (f", {self.dimension} numbers a value" if row else "")
            )
        if levels.size and not (levels.min() >= 0 and levels.max() < len(self.levels)):
            raise ValueError(f"level: expected 0 to {len(self.levels) - 1}")
        source = SystemBits() if bits is None else bits
        size = max(1, BLOCK // (self.dimension or 1))
        blocks = [slice(i, i + size) for i in range(0, max(1, levels.size), size)]
        reports = [
            self.randomizer.randomize(self.domain.own_units(held[b]), levels[b], source)
            for b in blocks
        ]
        return reports[0] if len(reports) == 1 else np.concatenate(reports)

    # -- At the aggregator ----------------------------------------------------------------------

    def zero(self) -> Counts:
        """Return the statistic of no reports: int64, one slice of `randomizer.columns` a level."""
        return np.zeros(len(self.levels) * self.randomizer.columns, dtype=np.int64)

    def _table(self, statistic: Counts) -> Counts:
        cells = len(self.levels) * self.randomizer.columns
        if statistic.dtype != np.int64 or statistic.shape != (cells,):
            raise ValueError(
                f"statistic of dtype {statistic.dtype} and shape {statistic.shape}: "
                f"metric {self.name!r} needs int64 of shape ({cells},)"
            )
        return statistic.reshape(len(self.levels), self.randomizer.columns)

    def accumulate(self, statistic: Counts, level: ArrayLike, reports: ArrayLike) -> None:
        """Add reports to a statistic, in place.

        Parameters
        ----------
        statistic : ndarray of int64
            From :meth:`zero`.
        level : array_like of int, shape (n,)
        reports : array_like of integers, one row a report
            From :meth:`randomize`, or from the wire.

        Raises
        ------
        ReportError
            If a level or a report is outside what the mechanism can send; nothing is added then.
        """
        levels, rows = np.asarray(level), np.asarray(reports)
        if levels.size and not (levels.min() >= 0 and levels.max() < len(self.levels)):
            raise ReportError("bad_level", f"expected 0 to {len(self.levels) - 1}")
        if rows.shape != (*levels.shape, *self.randomizer.shape):
            raise ReportError(
                "bad_length",
                f"reports of shape {rows.shape} for {levels.size} levels: "
                f"expected {(levels.size, *self.randomizer.shape)}",
            )
        narrow = rows.astype(self.randomizer.dtype)
        if (narrow != rows).any():
            raise ReportError("bad_value", f"reports that do not fit {self.randomizer.dtype}")
        self.randomizer.check(levels.astype(np.uint8).tobytes(), narrow.tobytes())
        self.accumulate_checked(statistic, levels, narrow)

    def accumulate_checked(self, statistic: Counts, level: Levels, reports: Reports) -> None:
        """Add reports that `randomizer.check` has passed already: the hot path."""
        self.randomizer.accumulate(self._table(statistic), level, reports)

    def counts(self, statistic: Counts) -> Counts:
        """Return the number of reports per level, shape (levels,)."""
        return self._table(statistic)[:, 0].copy()

    def estimate(
        self,
        statistic: Counts,
        beta: float = 0.05,
        weights: str = "optimal",
        bound: str = "fixed",
        target: str = "population",
        *,
        categories: Sequence[str | int] | None = None,
        simultaneous: bool = True,
        panes: int | None = 1,
    ) -> Estimate:
        """Estimate the metric from a statistic, with bounds that hold.

        Parameters
        ----------
        statistic : ndarray of int64
        beta, weights, bound, target, simultaneous
            See :class:`estimators.question.Question`.
        categories : sequence of str or int, optional
            Of a frequency: those that are asked for, each once; all of them by default, or those on
            watch. Bounds are simultaneous over these: which ones must not depend on the reports.
        panes : int, optional
            Of a memoized metric, the panes that the reports come from, or None if nobody knows.

        Returns
        -------
        Estimate
            In the metric's own unit; arrays over categories for a frequency, over coordinates for a
        vector mean.

        Raises
        ------
        ValueError
            If the collector is trusted: see :meth:`release`; or if the metric has rounds.
        """
        if self.has_rounds:
            raise ValueError(
                f"metric {self.name!r} is searched for in rounds, each decided by itself: use "
                "`search.estimate`"
            )
        if self.trust == "central":
            raise ValueError(
                f"metric {self.name!r} is collected in trust: only releases may be shown, "
                "use `release`"
            )
        labels, asked = self.domain.asked(categories)
        question = Question(
            beta=beta,
            weights=weights,
            bound="fixed" if bound == "auto" else bound,
            target=target,
            simultaneous=simultaneous,
            asked=asked,
            panes=panes if self.memoized else 1,
        )
        estimate = self.randomizer.estimate(self._table(statistic), question)
        if question.panes != 1:  # neither knows what repeated answers have in common
            least = estimate.effective_reports / question.panes if question.panes else 0.0
            estimate = dataclasses.replace(estimate, heterogeneity=None, effective_reports=least)
        return dataclasses.replace(self.domain.restored(estimate), labels=labels)

    def influence(
        self, estimate: Estimate, reports: int, *, among: bool = False, each: bool = True
    ) -> Influence:
        """Say how far reports that somebody made up can move an estimate of this metric.

        Parameters
        ----------
        estimate : Estimate
            From :meth:`estimate`.
        reports : int
            How many are lies: they may say anything that is not refused, at any level.
        among : bool
            True: they are among those that the estimate rests on, which would have been another one
            without them. False: they come in addition.
        each : bool
            False: `shift` is left to be the largest one, which is much faster for a million
            categories.

        Returns
        -------
        Influence
            A bound that holds, and that can be attained: see
            :func:`estimators.bounds.manipulation.largest_shifts`. Numbers are NaN where no report
            has arrived, and infinite where all of them are lies.

        Raises
        ------
        ValueError
            If the collector is trusted: releases have no such bound; or if the metric has rounds.

        Examples
        --------
        >>> metric = Metric(name="late", kind="mean", mechanism="randomized_response", range=(0, 1),
        ...                 levels=[1])
        >>> statistic = np.array([9_900, 4_950])
        >>> lies = metric.influence(metric.estimate(statistic), 100)
        >>> round(lies.largest, 4), round(lies.without_privacy, 4)
        (0.0108, 0.005)
        """
        if self.has_rounds:
            raise ValueError(f"metric {self.name!r} is searched for: lies can turn every round")
        values = np.atleast_1d(np.asarray(estimate.value, dtype=np.float64))
        extremes = values if each or not values.size else np.array([values.min(), values.max()])
        offset, scale = self.domain.unit
        low, high = self.randomizer.report_range()
        weights, counts = self.randomizer.report_weights(estimate.policy), estimate.counts
        reach = Reach(weights, offset + scale * low, offset + scale * high)
        shift = largest_shifts(extremes, counts, reach, reports, among=among)
        ends = np.array(self.domain.ends)
        true = Reach(np.ones(1), ends[:1], ends[1:])
        plain = largest_shifts(extremes, counts.sum(keepdims=True), true, reports, among=among)
        largest = float(shift.max(initial=0.0))
        norm, l2 = self.randomizer.report_norm(), None
        if norm is not None:
            length = np.array([float(np.linalg.norm(values))])
            around = Reach(weights, np.zeros(weights.size), scale * norm)
            l2 = float(largest_shifts(-length, counts, around, reports, among=among)[0])
        whole = shift if each and np.ndim(estimate.value) else largest
        return Influence(reports, whole, largest, l2, float(plain.max(initial=0.0)))

    def release(
        self,
        statistic: Counts,
        bits: Bits | None = None,
        weights: str | None = None,
        beta: float = 0.05,
        target: str = "population",
    ) -> Estimate:
        """Draw a private release from the sums of a trusted collection.

        **Each call draws anew and costs every report what `privacy` says.** Release a statistic
        once, and keep the result.

        Parameters
        ----------
        statistic : ndarray of int64
        bits : Bits, optional
            The source of randomness; the operating system's by default.
        weights : str, optional
            One of :attr:`policies`; the first of them by default.
        beta : float
            Failure probability of the bounds; simultaneous over categories.
        target : {"population", "sample"}
            See :class:`estimators.question.Question`.

        Returns
        -------
        Estimate
            In the metric's own unit, unbiased and not clipped, with the loss at each level
            (`privacy`) and the epsilon above which a level buys nothing (`saturation`). With
            ``"adpm"`` and too few users for any use it is the middle of the range, at no loss.

        Raises
        ------
        ValueError
            If the collector is not trusted, or there are no such weights.

        Examples
        --------
        >>> from estimators.exact.randomness import SeededBits
        >>> metric = Metric(name="late", kind="mean", trust="central", range=(0, 1),
        ...                 levels=[0.1, 1, 8])
        >>> level = metric.level_of([0.1] * 2000 + [1.0] * 1000 + [8.0] * 1000)
        >>> statistic = metric.zero()
        >>> metric.accumulate(statistic, level, metric.randomize([0.0, 1.0] * 2000, level))
        >>> release = metric.release(statistic, SeededBits(1), weights="adpm")
        >>> bool(release.lower < 0.5 < release.upper), release.saturation
        (True, 0.14)
        >>> release.privacy.round(4)
        array([0.1 , 0.14, 0.14])
        """
        collection = self.randomizer
        if not isinstance(collection, TrueValues):
            raise ValueError(  # noqa: TRY004
                f"metric {self.name!r} is randomized on the device, and needs no release: "
                "use `estimate`"
            )
        chosen = self.policies[0] if weights is None else weights
        source = SystemBits() if bits is None else bits
        released = collection.release(self._table(statistic), source, chosen, beta, target)
        return dataclasses.replace(self._in_unit(released), labels=self.labels)

    def _in_unit(self, released: Estimate) -> Estimate:
        """Return a release in [0, 1] in the metric's unit."""
        if self.range is None:
            return released
        low, high = self.range
        return released.rescaled(low, high - low)
