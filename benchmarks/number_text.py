"""Numbers as short texts."""

from __future__ import annotations


def short(number: float, gap: str = "") -> str:
    """Return a number with three digits and a letter for thousands, after `gap`.

    Examples
    --------
    >>> short(1_234_567), short(12), short(1_234_567, " ") + "B"
    ('1.23M', '12', '1.23 MB')
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{gap}{letter}"
    return f"{number:.3g}{gap}"


def three_digits(number: float) -> str:
    """Return a number with three digits.

    Examples
    --------
    >>> three_digits(163_912.0), three_digits(66.61), three_digits(0.12345)
    ('164,000', '66.6', '0.123')
    """
    return f"{number:.3g}" if number < 1_000 else f"{float(f'{number:.3g}'):,.0f}"
