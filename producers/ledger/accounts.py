"""The accounts of a ledger, and the error for reports above the budget."""

from __future__ import annotations

import dataclasses
import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from estimators.limits import LEVEL_DIGITS

PARTS_PER_EPSILON = 10**LEVEL_DIGITS
"""Epsilon is counted in whole ten-thousandths, as finely as levels can be written."""
LAST_MS = 253_402_300_799_000
"""The last second of the year 9999."""
Number = float | str | Decimal | Fraction


class BudgetSpent(RuntimeError):  # noqa: N818
    """Raised if a report costs more than is left; nothing was randomized.

    Attributes
    ----------
    metric : str
        The metric.
    asked, left, budget : Fraction
        The cost of the report, what is left of the tighter budget, and that whole budget, in
        epsilon. The tighter budget is that of the metric or that of all metrics.
    of_metric : bool
        Whether the tighter budget is that of the metric.
    free_at : datetime or None
        When enough epsilon will be left; None if `asked` exceeds the whole budget.
    """

    def __init__(
        self,
        path: Path,
        metric: str,
        cost: Fraction,
        left: Fraction,
        budget: Fraction,
        free_at: datetime.datetime | None,
        *,
        of_metric: bool,
        behind: str = "",
    ) -> None:
        self.path, self.metric, self.asked, self.left = path, metric, cost, left
        self.budget, self.free_at, self.of_metric = budget, free_at, of_metric
        account = f"the budget of {metric!r}" if of_metric else "the budget of all metrics"
        remedy = (
            "the whole budget is smaller than that: use a smaller epsilon, or raise the budget"
            if free_at is None
            else f"enough is free again from {free_at:%Y-%m-%d %H:%M:%S} UTC"
        )
        super().__init__(
            f"epsilon = {number(cost)} for {metric!r}: {number(left)} is left of "
            f"{account}, {number(budget)} (ledger {path}); {remedy}{behind}; nothing was reported"
        )


@dataclasses.dataclass(frozen=True)
class Account:
    """The epsilon spent on one metric, or on all metrics.

    Attributes
    ----------
    metric : str
        The metric's name; empty for all metrics together.
    budget : Fraction or None
        The epsilon for each period; None for no limit.
    spent : Fraction
        The epsilon that was spent in the last period.
    left : Fraction or None
        The rest of the budget, at least 0; None for no limit.
    reports : int
        The number of randomized reports in the last period.
    permanent : int
        How many permanent answers are charged for these reports: the largest number that they can
        have, whatever the values were.
    ever_spent, ever_reports : Fraction, int
        The epsilon and the reports since the ledger was created; a repeated answer costs once.
    more_at : datetime or None
        When some of the spent epsilon will be available again; None if nothing was spent.
    trusted : bool
        Whether the reports are true values for a trusted collector; `spent` is then what releases
        may reveal to others.
    """

    metric: str
    budget: Fraction | None
    spent: Fraction
    left: Fraction | None
    reports: int
    permanent: int
    ever_spent: Fraction
    ever_reports: int
    more_at: datetime.datetime | None
    trusted: bool = False


def utc_time(time_ms: int) -> datetime.datetime:
    """Return a time in milliseconds as a datetime in UTC, at most the end of the year 9999."""
    return datetime.datetime.fromtimestamp(min(time_ms, LAST_MS) / 1000, datetime.UTC)


def number(epsilon: Fraction) -> str:
    """Return an epsilon as decimal text, which is exact for the four decimals of a ledger.

    Examples
    --------
    >>> from fractions import Fraction
    >>> number(Fraction(3, 2)), number(Fraction(2)), number(Fraction(123456789, 10000))
    ('1.5', '2', '12345.6789')
    """
    return f"{float(epsilon):.4f}".rstrip("0").rstrip(".")


def parts_of(number: Number, name: str) -> int:
    """Return an epsilon as a whole number of ten-thousandths.

    Raises ValueError, with `name`, if it is not above 0, or has more than 4 decimals.

    Examples
    --------
    >>> parts_of(0.1, "budget"), parts_of("2", "budget")
    (1000, 20000)
    """
    try:
        parts = (
            number if isinstance(number, Fraction) else Fraction(str(number))
        ) * PARTS_PER_EPSILON
    except (ValueError, ZeroDivisionError):
        parts = Fraction(-1)
    if parts <= 0 or parts.denominator != 1 or parts > 2**53:
        raise ValueError(
            f"{name} = {number!s}: expected an epsilon above 0 with at most {LEVEL_DIGITS} decimal "
            "digits"
        )
    return int(parts)
