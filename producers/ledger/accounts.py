"""The accounts of a ledger, their summary in sentences, and the error for a spent budget."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from estimators.durations import UNITS_MS
from estimators.limits import LEVEL_DIGITS

PARTS_PER_EPSILON = 10**LEVEL_DIGITS
"""Epsilon is counted in whole ten-thousandths, as finely as levels can be written."""
LAST_MS = 253_402_300_799_000
"""The last second of the year 9999."""
Number = float | str | Decimal | Fraction
_UNIT_WORDS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


@dataclasses.dataclass(eq=False, repr=False)
class BudgetSpent(RuntimeError):  # noqa: N818
    """Raised if a report costs more than is left; nothing was randomized.

    Attributes
    ----------
    path : Path
        The ledger's file.
    metric : str
        The metric.
    asked, left, budget : Fraction
        The cost of the report, what is left of the tighter budget, and that whole budget, in
        epsilon. The tighter budget is that of the metric or that of all metrics.
    of_metric : bool
        Whether the tighter budget is that of the metric.
    free_at : datetime or None
        When enough epsilon will be left; None if `asked` exceeds the whole budget.
    behind : str
        How far the clock is behind the latest report, for the message.
    """

    path: Path
    metric: str
    asked: Fraction
    left: Fraction
    budget: Fraction
    free_at: datetime.datetime | None
    of_metric: bool
    behind: str = ""

    def __post_init__(self) -> None:
        whose = repr(self.metric) if self.of_metric else "all metrics"
        remedy = "the whole budget is smaller than that: use a smaller epsilon, or raise the budget"
        if self.free_at is not None:
            remedy = f"enough is free again from {self.free_at:%Y-%m-%d %H:%M:%S} UTC"
        super().__init__(
            f"epsilon = {number(self.asked)} for {self.metric!r}: {number(self.left)} is left of "
            f"the budget of {whose}, {number(self.budget)} (ledger {self.path}); {remedy}"
            f"{self.behind}; nothing was reported"
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
        parts = Fraction(str(number)) * PARTS_PER_EPSILON
    except (ValueError, ZeroDivisionError):
        parts = Fraction(-1)
    if parts <= 0 or parts.denominator != 1 or parts > 2**53:
        raise ValueError(
            f"{name} = {number!s}: expected an epsilon above 0 with at most {LEVEL_DIGITS} decimal "
            "digits"
        )
    return int(parts)


def summarize(accounts: Mapping[str, Account], period_ms: int, began: datetime.datetime) -> str:
    """Return a paragraph that tells the ledger's owner what was spent.

    `accounts`: the ledger's accounts; `period_ms`: the period of its budget; `began`: when the
    ledger was created.
    """
    total, *metrics = accounts.values()
    repeated = [account.metric for account in metrics if account.permanent]
    of_what = "which values you had" if repeated else "anything about you"
    sentences = [_spent_text(metrics, total, describe_period(period_ms), of_what)]
    if repeated:
        sentences.append(
            f"Answers about {' and '.join(repeated)} are repeated while the value stays the same, "
            "so they reveal when it changed. This account does not include that. They are charged "
            "as if it had changed."
        )
    sentences += _left_sentences(total, metrics)
    if total.ever_reports > total.reports:
        sentences.append(
            f"Since {began:%Y-%m-%d} it gave {_answers(total.ever_reports)}, at a total cost of "
            f"{number(total.ever_spent)}"
            + (", where a repeated answer counts once." if repeated else ".")
        )
    return " ".join(sentences)


def _spent_text(metrics: list[Account], total: Account, period: str, of_what: str) -> str:
    if not total.reports:
        return f"In the last {period} this device gave no answers."
    reported = [account for account in metrics if account.reports]
    answers = [_answers_text(account) for account in reported if not account.trusted]
    values = [_answers_text(account) for account in reported if account.trusted]
    statements = [f"gave {' and '.join(answers)}"] if answers else []
    observed, knowing = "all of them", ""
    if values:
        statements.append(f"sent {' and '.join(values)} to a trusted collector")
        observed = "all the collector's releases, and the randomized answers,"
        names = " and ".join(account.metric for account in reported if account.trusted)
        knowing = f" The collector itself knows the true values of {names}."
    return (
        f"In the last {period} this device {'. It '.join(statements)}. Anyone who has seen "
        f"{observed} can be at most e^{number(total.spent)} = {times(total.spent)} times surer of "
        f"{of_what} than before.{knowing}"
    )


def _answers_text(account: Account) -> str:
    if not account.trusted:
        return f"{_answers(account.reports)} about {account.metric} ({number(account.spent)})"
    values = f"{account.reports} true value{'' if account.reports == 1 else 's'}"
    return f"{values} of {account.metric} ({number(account.spent)})"


def _left_sentences(total: Account, metrics: list[Account]) -> list[str]:
    sentences = []
    for account in (total, *metrics):
        if account.budget is None or account.left is None:
            continue
        of = f" for {account.metric}" if account.metric else ""
        sentences.append(f"{number(account.left)} of {number(account.budget)} is left{of}.")
        if account.more_at is not None:
            sentences.append(f"More is free again from {account.more_at:%Y-%m-%d %H:%M} UTC.")
    return sentences


def _answers(count: int) -> str:
    return f"{count} randomized answer{'' if count == 1 else 's'}"


def times(epsilon: Fraction) -> str:
    """Return e^epsilon, rounded up to at least two digits.

    Examples
    --------
    >>> from fractions import Fraction
    >>> times(Fraction(3, 2)), times(Fraction(1, 4)), times(Fraction(20)), times(Fraction(2000))
    ('4.5', '1.3', '490,000,000', 'over 10^868')
    """
    if epsilon > 600:
        return f"over 10^{math.floor(float(epsilon) / math.log(10))}"
    factor = math.exp(float(epsilon))
    unit = 10.0 ** (math.floor(math.log10(factor)) - 1)
    rounded = math.ceil(factor / unit) * unit
    return f"{rounded:,.1f}" if rounded < 10 else f"{rounded:,.0f}"


def describe_period(period_ms: int) -> str:
    """Return a duration in words, in the largest unit of which it is a multiple; a day is 24 hours.

    Examples
    --------
    >>> [describe_period(ms) for ms in (86_400_000, 3_600_000, 1_209_600_000, 1500)]
    ['24 hours', 'hour', '2 weeks', '1500 milliseconds']
    """
    if period_ms == UNITS_MS["d"]:
        return "24 hours"
    for unit, words in _UNIT_WORDS.items():
        count, remainder = divmod(period_ms, UNITS_MS[unit])
        if count and not remainder:
            return words.removesuffix("s") if count == 1 else f"{count} {words}"
    return f"{period_ms} milliseconds"
