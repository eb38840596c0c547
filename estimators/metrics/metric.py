"""The base class of metrics; a metric is one question to the population."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.durations import milliseconds
from estimators.errors import DefinitionError, shortened
from estimators.estimate import Counts, Indices, Integers
from estimators.exact.randomness import Bits, SystemBits
from estimators.limits import LARGEST_REPORT, LEVEL_DIGITS
from estimators.mechanisms import Mechanism
from estimators.mechanisms.mechanism import Levels, Reports
from estimators.metrics import validation
from estimators.metrics.attributes import Slicing
from estimators.metrics.axes import Axes
from estimators.metrics.crowd import Crowd
from estimators.metrics.domains import Domain, as_given, conversion, refuse_misread
from estimators.metrics.kinds import Way, kind_named
from estimators.shapes import Shape
from estimators.weights import WEIGHTINGS

NUMBERS_PER_BLOCK = 2**16
"""Numbers that are randomized together: intermediate arrays stay in the processor's cache."""
A_DEMAND = "a number above 0, the privacy that the value's owner demands"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric(ABC):
    """One question to a population: its domain, privacy levels, panes and limits.

    :func:`estimators.define` chooses the subclass, one for each way of collecting:
    :class:`~estimators.metrics.local.LocalMetric`,
    :class:`~estimators.metrics.trusted.TrustedMetric` or
    :class:`~estimators.metrics.search.SearchMetric`.

    Parameters
    ----------
    name : str
        Lower-case letters, digits and underscores.
    kind : str
        The quantity to estimate, one of :data:`estimators.metrics.kinds.KINDS`.
    domain : Domain
        The possible values; an object of the kind's domain class.
    levels : sequence of float
        The epsilons that devices may choose from, ascending, with at most 4 decimal digits.
    mechanism : str
        The name of the mechanism; omitted if there is no choice.
    options : mapping of str to int or str, optional
        The mechanism's further parameters, for instance ``{"grid": 1024}`` for ``laplace``.
    pane : str
        The width of a pane of event time, for instance ``"1m"``.
    lateness : str
        How long after a pane's end its reports still count, in event time.
    hold_open : bool
        Keeps every pane open, whatever times are reported, so that a backfill can run beside live
        reports. Meanwhile open panes take memory, and no window is final.
    retention : str, optional
        How long a pane is kept after its last report; forever by default.
    minimum_reports : int
        An answer from fewer reports has the status ``too_few_reports``.
    max_batch_reports : int, optional
        A batch with more reports is rejected; no limit by default.
    max_key_reports : int, optional
        The most reports with the same message key that a pane counts; no limit by default.
    unit, description : str
        The unit of the values, and a description, for readers.
    title, group : str
        The title that readers see instead of the name, and the heading under which they find the
        metric.

    Attributes
    ----------
    trust : str
        ``"local"``: devices randomize their values. ``"central"``: they trust the collector.
    sends_true_values : bool
        Whether devices send true values; this requires a notice to their owners, and TLS.

    Raises
    ------
    DefinitionError
        If a key is invalid: with the key, its value and what was expected.
    """

    way: ClassVar[Way]
    trust: ClassVar[str] = "local"
    sends_true_values: ClassVar[bool] = False
    answered: ClassVar[str]
    """How to get an answer from a metric of this class: in messages, the words after its name."""

    name: str
    kind: str
    domain: Domain
    levels: Sequence[float] = dataclasses.field(
        metadata={"expected": "epsilons on offer, as in levels = [0.5, 1, 2]"}
    )
    mechanism: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pane: str = "1m"
    lateness: str = "0s"
    hold_open: bool = False
    retention: str | None = None
    minimum_reports: int = 100
    max_batch_reports: int | None = None
    max_key_reports: int | None = None
    unit: str = ""
    description: str = ""
    title: str = ""
    group: str = ""

    @property
    def heading(self) -> str:
        """The heading of a picture: the title; without one, the name and description (or kind)."""
        return self.title or f"{self.name}: {self.description or self.kind}"

    def __post_init__(self) -> None:
        if self.domain.metric != self.name:
            self._set("domain", dataclasses.replace(self.domain, metric=self.name))
        self.check()
        self._set("mechanism", self.mechanism_class.name)
        try:
            self.randomizer  # noqa: B018
        except (TypeError, ValueError) as error:
            self.refuse("options", f"options of {self.mechanism}: {error}")
        if (width := self.randomizer.width) > LARGEST_REPORT:
            key = next(iter(self.domain.parameters), "options")
            value, max_bytes = self.domain.parameters.get(key, self.options), LARGEST_REPORT
            expected = (
                f"fewer for {self.mechanism}: reports of at most {max_bytes} bytes, not {width}"
            )
            raise DefinitionError(f"{self.name}.{key}", value, expected)

    def check(self) -> None:
        """Raise DefinitionError, with key, value and what was expected, if a key is invalid."""
        self.require_key(validation.check_name, "name")
        self.require_key(kind_named, "kind")
        kind = kind_named(self.kind)
        if self.way not in kind.ways or not isinstance(self.domain, kind.domain):
            description = f"{type(self).__name__} with values of {type(self.domain).__name__}"
            self.refuse("kind", f"a kind that can be a {description}")
        self.require_key(validation.check_levels, "levels")
        self.require_key(validation.check_duration, "pane", "retention")
        self.require_key(validation.check_lateness, "lateness")
        self.require_key(
            validation.check_number, "minimum_reports", "max_batch_reports", "max_key_reports"
        )

    def require_key(self, check: Callable[[Any], object], *keys: str) -> None:
        """Raise DefinitionError for each of `keys` whose value makes `check` raise ValueError.

        The text of the ValueError says what was expected.
        """
        for key in keys:
            try:
                check(getattr(self, key))
            except DefinitionError:
                raise
            except ValueError as error:
                self.refuse(key, str(error))

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise DefinitionError for the value of a `key`, with what was `expected`."""
        raise DefinitionError(f"{self.name}.{key}", getattr(self, key), expected)

    def _set(self, key: str, value: object) -> None:
        object.__setattr__(self, key, value)

    @classmethod
    def require(cls, metric: Metric) -> Self:
        """Return `metric` if it is of this class.

        Otherwise raise ValueError, whose message says how to get the metric's answer.
        """
        if not isinstance(metric, cls):
            raise ValueError(f"metric {metric.name!r} {metric.answered}")
        return metric

    # -- What the definition says -------------------------------------------------------------

    @property
    @abstractmethod
    def mechanism_class(self) -> type[Mechanism]:
        """The class of the mechanism."""

    @functools.cached_property
    def randomizer(self) -> Mechanism:
        """The mechanism, built for this metric's levels and domain."""
        epsilons = [Fraction(round(e * 10**LEVEL_DIGITS), 10**LEVEL_DIGITS) for e in self.levels]
        build, parameters = self.mechanism_class, self.domain.parameters
        validation.check_options(self.options, build, parameters)
        return build(epsilons, **parameters, **self.options)

    @property
    def shape(self) -> Shape:
        """The shape of an answer."""
        return kind_named(self.kind).shape

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of an estimate's numbers, such as categories; empty for a single number."""
        return self.domain.labels

    @property
    def category_names(self) -> tuple[str, ...]:
        """The categories' names, or the strings on watch of an open vocabulary; else empty."""
        return () if self.categories is None else self.labels

    # the keys of built-in domains; None if this metric's domain does not have the key

    @property
    def range(self) -> Sequence[float] | None:
        """The least and the largest value; None if the domain has no range."""
        return getattr(self.domain, "range", None)

    @property
    def categories(self) -> int | str | Sequence[str] | Mapping[str, Sequence[str]] | None:
        """The categories' names, their number, their axes, or "open"; None for other kinds."""
        return getattr(self.domain, "categories", None)

    @property
    def axes(self) -> Axes | None:
        """The axes whose product the categories are; None if there are no axes."""
        return getattr(self.domain, "axes", None)

    @property
    def watch(self) -> Sequence[str] | None:
        """The strings that an open vocabulary's estimate is about by default; None without any."""
        return getattr(self.domain, "watch", None)

    @property
    def dimension(self) -> int | None:
        """The number of coordinates of a vector; None for other kinds."""
        return getattr(self.domain, "dimension", None)

    @property
    def coordinates(self) -> Sequence[str] | None:
        """The names of a vector's coordinates; None if the definition does not name them."""
        return getattr(self.domain, "coordinates", None)

    @property
    def radius(self) -> float | None:
        """The largest length of a vector; None for other kinds."""
        return getattr(self.domain, "radius", None)

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
        """How long a pane is kept after its last report, in milliseconds; None means forever."""
        return None if self.retention is None else milliseconds(self.retention)

    @property
    def share_names(self) -> tuple[str, ...]:
        """The canonical names of the shares of A among B that the definition lists."""
        return ()

    @property
    def slicing(self) -> Slicing | None:
        """How reports are divided into slices; None if they are not."""
        return None

    @property
    def crowd(self) -> Crowd | None:
        """The crowd in which reports hide, which a relay shuffles; None if there is none."""
        return None

    @property
    def by_retention_ms(self) -> int | None:
        """How long a slice's panes are kept, in milliseconds; None means forever."""
        return self.retention_ms

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of this metric's policies for weights, the default first."""
        return tuple(WEIGHTINGS)

    @functools.cached_property
    def canonical(self) -> str:
        """Everything that determines what a batch and its pane mean, as one line of ASCII JSON.

        Keys are sorted, there are no spaces, and Python's `repr` writes the numbers. The browser's
        module writes the same text.
        """
        meaning: dict[str, Any] = {
            "kind": self.kind,
            "mechanism": self.mechanism,
            "levels": [float(e) for e in self.levels],
            "range": None,
            "categories": [],
            "options": dict(self.options),
            "pane": self.pane_ms,
            **self.domain.meaning,
            **self.meaning,
        }
        if set(by_level := self.randomizer.level_mechanisms) != {self.mechanism}:
            meaning["chosen"] = by_level
        if constants := self.randomizer.public_constants:
            meaning["constants"] = constants
        return json.dumps(meaning, sort_keys=True, separators=(",", ":"))

    @property
    def meaning(self) -> dict[str, Any]:
        """The part of the canonical form for this way of collecting, as plain values for JSON."""
        return {}

    @functools.cached_property
    def fingerprint(self) -> bytes:
        """The SHA-256 of the canonical form, 32 bytes."""
        return hashlib.sha256(self.canonical.encode()).digest()

    @functools.cached_property
    def revision(self) -> int:
        """The first 32 bits of the fingerprint, or 1 if they are 0; batches carry this number."""
        return int.from_bytes(self.fingerprint[:4], "big") or 1

    def pane_start(self, time_ms: int) -> int:
        """Return the start of the pane that contains an event time; both in ms since the epoch."""
        return time_ms - time_ms % self.pane_ms

    def level_of(self, epsilons: ArrayLike) -> NDArray[np.uint8]:
        """Return the index of the largest level that is at most each epsilon; uint8, shape (n,).

        Rounding down never costs privacy. Raises ValueError if an epsilon is below the lowest
        level, or not a number.

        Examples
        --------
        >>> from estimators import define
        >>> define(name="m", kind="mean", mechanism="randomized_response", range=(0, 1),
        ...        levels=[0.5, 1, 2]).level_of([0.5, 1.9, 64.0])
        array([0, 1, 2], dtype=uint8)
        """
        refuse_misread(epsilons, "epsilons", truths=False)
        try:
            array = as_given(epsilons)
            if array.dtype.kind == "O" and all(type(number) is int for number in array.flat):
                array = array.astype(np.float64)  # beyond numpy's integers
        except (ValueError, OverflowError):  # lists of different lengths
            array = np.empty(0, dtype=object)
        if array.dtype.kind not in "iuf":  # a truth value or a text is not an epsilon
            odd = [x for x in array.ravel().tolist() if type(x) not in (int, float)] or [epsilons]
            raise ValueError(
                f"epsilon = {shortened(odd[0])}: expected {A_DEMAND}{conversion(odd[0])}"
            )
        demanded = array.astype(np.float64)
        if not (is_demand := demanded > 0).all():  # NaN is not above 0 either
            odd = demanded[~is_demand].ravel()[0]
            raise ValueError(f"epsilon = {odd:g}: expected {A_DEMAND}")
        level = np.searchsorted(np.asarray(self.levels), demanded, side="right") - 1
        if (refused := level < 0).any():
            raise ValueError(
                f"epsilon = {demanded[refused].ravel()[0]}: metric {self.name!r} offers "
                f"{list(self.levels)}; a stricter demand cannot be met, do not report"
            )
        return level.astype(np.uint8)

    def zero(self) -> Counts:
        """Return the empty statistic: int64, `randomizer.columns` cells for each level."""
        return np.zeros(len(self.levels) * self.randomizer.columns, dtype=np.int64)

    def table(self, statistic: Counts) -> Counts:
        """Return a statistic as the mechanism's table, with one row for each level; not copied.

        Raises ValueError if it is not a statistic of this metric.
        """
        cells = len(self.levels) * self.randomizer.columns
        if statistic.dtype != np.int64 or statistic.shape != (cells,):
            raise ValueError(
                f"statistic of dtype {statistic.dtype} and shape {statistic.shape}: "
                f"metric {self.name!r} needs int64 of shape ({cells},)"
            )
        return statistic.reshape(len(self.levels), self.randomizer.columns)

    def accumulate(self, statistic: Counts, level: ArrayLike, reports: ArrayLike) -> None:
        """Add reports to a statistic, in place.

        `statistic`: from :meth:`zero`; `level`, shape (n,): the index of each report's level;
        `reports`, one in each row: from :meth:`randomize`, or from the wire. Raises ReportError,
        and adds nothing, if a level or a report is outside what the mechanism can send.
        """
        self.accumulate_checked(statistic, *self.randomizer.checked(level, reports))

    def accumulate_checked(self, statistic: Counts, level: Levels, reports: Reports) -> None:
        """Add reports that have passed `randomizer.check`, as :meth:`accumulate` does, but faster.

        `statistic`: from :meth:`zero`; `level`, shape (n,), `reports`, n rows: as for that method.
        """
        self.randomizer.accumulate(self.table(statistic), level, reports)

    def accumulate_slices(
        self, statistics: Counts, rows: Indices, sizes: Integers, level: Levels, reports: Reports
    ) -> None:
        """Add batches that have passed `randomizer.check` to the statistics of their slices.

        `statistics`, shape (slices, cells): one statistic for each slice, changed in place; `rows`,
        shape (batches,): the slice of each batch; `sizes`, shape (batches,): the number of reports
        in each batch; `level`, shape (n,): the index of each report's level; `reports`, n rows: the
        reports of all batches, in the order of the batches.
        """
        shape = (len(statistics), len(self.levels), self.randomizer.columns)
        tables = statistics.reshape(shape)
        self.randomizer.accumulate_slices(tables, rows, sizes, level, reports)

    def counts(self, statistic: Counts) -> Counts:
        """Return the number of reports per level, shape (levels,)."""
        return self.table(statistic)[:, 0].copy()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportedMetric(Metric):
    """A metric for which a device reports its value."""

    def randomize(self, values: ArrayLike, level: ArrayLike, bits: Bits | None = None) -> Reports:
        """Return a random report for each value at its level; only this method sees true values.

        For a metric that ``sends_true_values`` nothing is random: a report is the value, on a grid.

        Parameters
        ----------
        values : array_like, shape (n,); (n, dimension) for a vector mean
            Numbers for a mean (clipped to the range); vectors for a vector mean (shortened to the
            radius); category names or indices for a frequency; strings for an open vocabulary,
            where "other" replaces denied ones.
        level : array_like of int, shape (n,)
            Indices into the metric's levels, from :meth:`level_of`.
        bits : Bits, optional
            The source of randomness; the operating system's by default.

        Raises
        ------
        ValueError
            If a value is not a number, a category is unknown, or a level is out of range.
        """
        array, levels = self.domain.as_array(values), np.asarray(level)
        row = () if self.dimension is None else (self.dimension,)
        if levels.ndim != 1 or array.shape != (*levels.shape, *row):
            raise ValueError(
                f"values of shape {array.shape} with levels of shape {levels.shape}: "
                "expected two arrays of the same length"
                + (f", {self.dimension} numbers a value" if row else "")
            )
        if levels.size and not (levels.min() >= 0 and levels.max() < len(self.levels)):
            raise ValueError(f"level: expected 0 to {len(self.levels) - 1}")
        source = SystemBits() if bits is None else bits
        size, reports = max(1, NUMBERS_PER_BLOCK // (self.dimension or 1)), []
        for start in range(0, max(1, levels.size), size):
            block = slice(start, start + size)
            in_unit = self.domain.to_unit(self.domain.reported(array[block]))
            reports.append(self.randomizer.randomize(in_unit, levels[block], source))
        return reports[0] if len(reports) == 1 else np.concatenate(reports)
