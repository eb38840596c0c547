"""Plain summaries of a ledger's accounts."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from estimators.durations import UNITS_MS
from producers.ledger.accounts import Account, number

if TYPE_CHECKING:
    from fractions import Fraction

    from producers.ledger.turns import Lottery, Turn


_UNIT_WORDS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def summarize(accounts: Mapping[str, Account], period_ms: int, began: datetime.datetime) -> str:
    """Return a paragraph that tells the ledger's owner what was spent.

    `accounts`: the ledger's accounts; `period_ms`: the period of its budget; `began`: when the
    ledger was created.
    """
    total, *metrics = accounts.values()
    repeated = [account.metric for account in metrics if account.permanent]
    of_what = "which values you had" if repeated else "anything about you"
    sentences = [_given(metrics, total, describe_period(period_ms), of_what)]
    if repeated:
        sentences.append(
            f"Answers about {' and '.join(repeated)} are repeated while the value stays the same, "
            "so they reveal when it changed. This account does not include that. They are charged "
            "as if it had changed."
        )
    sentences += _left(total, metrics)
    if total.ever_reports > total.reports:
        sentences.append(
            f"Since {began:%Y-%m-%d} it gave {_answers(total.ever_reports)}, at a total cost of "
            f"{number(total.ever_spent)}"
            + (", where a repeated answer counts once." if repeated else ".")
        )
    return " ".join(sentences)


def describe_lottery(lottery: Lottery, present: Turn | None) -> str:
    """Return a sentence on what a ledger's lottery does, and what it drew for the present turn.

    `lottery`: the lottery; `present`: the draw of the present turn; None if nothing is drawn yet.
    """
    total = sum(lottery.tickets.values())
    shares = ", ".join(f"{name} {count}" for name, count in lottery.tickets.items())
    drawn = "not drawn yet" if present is None else present.metric
    return (
        f"Every {describe_period(lottery.turn_ms)} this device draws one question by itself, from "
        f"{total} tickets ({shares}), and answers no other; now: {drawn}."
    )


def _given(metrics: list[Account], total: Account, period: str, of_what: str) -> str:
    if not total.reports:
        return f"In the last {period} this device gave no answers."
    reported = [account for account in metrics if account.reports]
    answers = [_about(account) for account in reported if not account.trusted]
    values = [_about(account) for account in reported if account.trusted]
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


def _about(account: Account) -> str:
    if not account.trusted:
        return f"{_answers(account.reports)} about {account.metric} ({number(account.spent)})"
    values = f"{account.reports} true value{'' if account.reports == 1 else 's'}"
    return f"{values} of {account.metric} ({number(account.spent)})"


def _left(total: Account, metrics: list[Account]) -> list[str]:
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
