"""Maps an instrument's values to reports: one for each export, or one for each window of time."""

from __future__ import annotations

import dataclasses

from estimators.metrics.metric import Metric, ReportedMetric
from producers.device.base_reporter import BaseReporter
from producers.device.roll_up import RollUp
from producers.ledger.ledger import Ledger
from producers.otel.points import (
    SHARES_OF_POINT,
    Data,
    Of,
    UnusableError,
    category_of,
    is_additive,
    value_of,
)


@dataclasses.dataclass(frozen=True)
class EachExport:
    """Makes a report in each export in which the instrument has a value.

    A reader exports every minute by default, and each report costs its epsilon: if the levels are
    meant for one report a day, use :class:`Gathered`.

    Parameters
    ----------
    reporter : Reporter or HttpReporter
        Sends the reports.
    epsilon : float
        The largest epsilon that the device's owner allows for one report.
    ledger : Ledger or None
        The owner's account, which refuses reports above its budget; None for no account.
    of : {"mean", "sum", "count", "smallest", "largest"}
        Which number is reported of a histogram's recordings since the last export.
    category : str, optional
        The key of the attribute whose values are the metric's categories: the category with the
        largest value is reported. Required for a metric of categories.
    permanent, changes
        Passed to :meth:`producers.Reporter.report`.

    Raises
    ------
    TypeError, ValueError
        If a parameter cannot be used.
    """

    reporter: BaseReporter
    epsilon: float
    ledger: Ledger | None
    of: Of = "mean"
    category: str | None = None
    permanent: float | None = None
    changes: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.reporter, BaseReporter):
            raise TypeError(f"reporter = {self.reporter!r}: expected a Reporter or HttpReporter")
        _check(self.reporter.metric, self.of, self.category)
        self.reporter.metric.level_of(self.epsilon)

    def take(self, data: list[Data]) -> None:
        """Report the value of an instrument; raise UnusableError if it has none."""
        self.reporter.report(
            _value(data, self.of, self.category),
            self.epsilon,
            ledger=self.ledger,
            permanent=self.permanent,
            changes=self.changes,
        )


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Makes a report for each window of a roll-up, from the values of the window's exports.

    The roll-up's reporter sends the report. An export only adds to the window: the SDK exports
    nothing if nothing was measured, so a report at an export would reveal that something was.

    Parameters
    ----------
    roll_up : RollUp
        ``"sum"`` adds up the values of counters, or the sums or counts of histograms, at the
        exports; ``"last"`` and ``"largest"`` take one of the values at the exports; ``"active"``
        says whether a value was above zero.
    of, category
        As for :class:`EachExport`; the roll-up of a metric of categories is ``"last"``.

    Raises
    ------
    TypeError, ValueError
        If a parameter cannot be used.
    """

    roll_up: RollUp
    of: Of = "mean"
    category: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.roll_up, RollUp):
            raise TypeError(f"roll_up = {self.roll_up!r}: expected a RollUp")
        if self.roll_up.how == "count":
            raise ValueError("how = 'count' would count exports: expected another way to gather")
        _check(self.reporter.metric, self.of, self.category)

    @property
    def reporter(self) -> BaseReporter:
        """The roll-up's reporter."""
        return self.roll_up.reporter

    def take(self, data: list[Data]) -> None:
        """Add the value of an instrument to the present window.

        Raises UnusableError if the instrument has no value, or values of this kind cannot be added
        up.
        """
        value = _value(data, self.of, self.category)
        if self.roll_up.how == "sum" and not is_additive(data, self.of):
            raise UnusableError(
                "not_additive",
                'expected a counter, or a histogram with of="sum" or of="count": the sum of other '
                "values means nothing",
            )
        if self.roll_up.how != "active":
            self.roll_up.add(value)
        elif isinstance(value, str) or value > 0:
            self.roll_up.add()


def _value(data: list[Data], of: Of, category: str | None) -> float | str:
    return value_of(data, of) if category is None else category_of(data, of, category)


def _check(metric: Metric, of: Of, category: str | None) -> None:
    """Raise ValueError if a metric does not fit an instrument's values."""
    if of not in SHARES_OF_POINT:
        raise ValueError(f"of = {of!r}: expected one of {', '.join(SHARES_OF_POINT)}")
    if not isinstance(metric, ReportedMetric):
        raise ValueError(f"metric {metric.name!r} is asked in rounds: expected one that is not")
    if metric.dimension is not None:
        raise ValueError(
            f"metric {metric.name!r} has vectors: expected one of numbers or categories"
        )
    if metric.domain.of_numbers and category is not None:
        raise ValueError(
            f"category = {category!r} for {metric.name!r}: expected none, for a metric of numbers"
        )
    if not metric.domain.of_numbers and category is None:
        raise ValueError(
            f"metric {metric.name!r} has categories: expected category = the key of the attribute "
            "whose values they are"
        )
