"""Rounds numbers to decimals for display, so that the text never claims more than the number.

A lower bound is rounded down; an upper bound, a loss and a failure probability are rounded up. The
input is the shortest decimal of a float, as in JSON. The dashboard has the same rules
(``aggregator/web/static/format.js``); ``tests/vectors/rounding.json`` tests both.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Sequence

USUAL_DECIMALS, MOST_DECIMALS = 3, 15
LOSS_DIGITS = 4
"""The significant digits of a privacy loss."""
_EXACT_CONTEXT = decimal.Context(
    prec=decimal.MAX_PREC, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX
)


def decimals(lower: float, upper: float) -> int:
    """Return how many decimals show two significant digits of half the distance between two bounds.

    The usual number of decimals is returned if the distance is 0, infinite or NaN.

    >>> decimals(0.25, 0.75), decimals(-1000.0, 1000.0), decimals(0.0031, 0.0032)
    (2, 0, 6)
    """
    half = (upper - lower) / 2
    if not (half > 0 and math.isfinite(half)):
        return USUAL_DECIMALS
    return min(MOST_DECIMALS, max(0, 1 - decimal.Decimal(repr(float(half))).adjusted()))


def down(x: float, places: int) -> str:
    """Return the text of a number, rounded down to `places` decimals; a dash for NaN.

    >>> down(0.29, 1), down(-0.21, 1), down(0.3, 1), down(float("nan"), 1)
    ('0.2', '-0.3', '0.3', '-')
    """
    return _rounded(x, places, decimal.ROUND_FLOOR)


def up(x: float, places: int) -> str:
    """Return the text of a number, rounded up to `places` decimals; a dash for NaN.

    >>> up(0.21, 1), up(-0.29, 1), up(0.3, 1)
    ('0.3', '-0.2', '0.3')
    """
    return _rounded(x, places, decimal.ROUND_CEILING)


def at_most(x: float | None) -> str:
    """Return the text of an error bound: at least two significant digits, rounded up.

    >>> at_most(87.5441), at_most(0.01234), at_most(4500.2), at_most(None)
    ('88', '0.013', '4501', '-')
    """
    return "-" if x is None else up(x, decimals(0.0, 2 * x))


def nearest(x: float, places: int) -> str:
    """Return the text of a number, rounded to `places` decimals; a dash for NaN."""
    return _rounded(x, places, decimal.ROUND_HALF_EVEN)


def common_decimals(lower: Iterable[float], upper: Iterable[float]) -> int:
    """Return the number of decimals for a table: as many as its narrowest interval needs."""
    pairs = zip(lower, upper, strict=True)
    return max((decimals(*pair) for pair in pairs), default=USUAL_DECIMALS)


def interval(numbers: Sequence[float], places: int | None = None) -> tuple[str, str, str]:
    """Return the texts of a value and its bounds; the bounds are rounded outwards.

    `numbers`: the value, the lower and the upper bound; `places`: decimals; by default they follow
    from the bounds.

    >>> interval((0.12345, 0.1111, 0.1399)), interval((-0.001, -0.21, 0.2))
    (('0.123', '0.111', '0.140'), ('0.00', '-0.21', '0.20'))
    """
    value, lower, upper = numbers
    places = decimals(lower, upper) if places is None else places
    return nearest(value, places), down(lower, places), up(upper, places)


def search_decimals(low: float, high: float, rounds: int) -> int:
    """Return the decimals for the result of a search: two significant digits of its last step.

    `low`, `high`: the interval of the search; `rounds`: the number of halvings.

    >>> search_decimals(0, 1440, 12), search_decimals(0, 2**24, 24), search_decimals(0, 2**24, 10)
    (2, 1, 0)
    """
    step = (high - low) / 2**rounds
    return decimals(-step, step)


def certified(kind: str, low: float, high: float, rounds: int, x: float) -> str:
    """Return the text of the certified end, rounded up for a minimum and down for a maximum.

    `kind`: "minimum" or "maximum"; `low`, `high`, `rounds`: as in :func:`search_decimals`;
    `x`: the certified number.

    >>> certified("maximum", 0, 1440, 12, 361.875), certified("minimum", 0, 1440, 12, 361.875)
    ('361.87', '361.88')
    """
    side = up if kind == "minimum" else down
    return trimmed(side(x, search_decimals(low, high, rounds)))


def trimmed(text: str) -> str:
    """Return a number without trailing zeros.

    >>> trimmed("44.00"), trimmed("0.50"), trimmed("100")
    ('44', '0.5', '100')
    """
    return text.rstrip("0").rstrip(".") if "." in text else text


def loss(epsilon: float, digits: int = LOSS_DIGITS) -> str:
    """Return the text of a privacy loss, rounded up to `digits` significant digits.

    >>> loss(0.138611), loss(4.0), loss(12.3401), loss(0.0)
    ('0.1387', '4', '12.35', '0')
    """
    if not (math.isfinite(epsilon) and epsilon):
        return nearest(epsilon, 0)
    places = digits - 1 - decimal.Decimal(repr(float(epsilon))).adjusted()
    return trimmed(up(epsilon, max(0, places)))


def certainty(beta: float) -> str:
    """Return the text of 1 - beta in percent, rounded down: beta has three significant digits.

    >>> certainty(0.05), certainty(1e-7), certainty(0.05 / 3), certainty(0.125)
    ('95%', '99.99999%', '98.33%', '87.5%')
    """
    left = _EXACT_CONTEXT.subtract(decimal.Decimal(100), _percent(beta))
    return f"{trimmed(f'{left:f}')}%"


def percent(beta: float) -> str:
    """Return the text of a failure probability in percent: three digits, rounded up, no sign.

    >>> percent(0.05), percent(0.05 / 3), percent(1e-7)
    ('5', '1.67', '0.00001')
    """
    return trimmed(f"{_percent(beta):f}")


def _percent(beta: float) -> decimal.Decimal:
    exact = decimal.Decimal(repr(float(beta)))
    return decimal.Decimal(up(float(exact), max(2, 2 - exact.adjusted()))).scaleb(2, _EXACT_CONTEXT)


def _rounded(x: float, places: int, rounding: str) -> str:
    x = float(x)
    if not math.isfinite(x):
        return "-" if math.isnan(x) else str(x)
    unit = decimal.Decimal(1).scaleb(-places)
    rounded = decimal.Decimal(repr(x)).quantize(unit, rounding, _EXACT_CONTEXT)
    return f"{rounded or abs(rounded):f}"
