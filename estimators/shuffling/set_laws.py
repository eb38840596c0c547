"""The laws that a mechanism states for its reports, from which a crowd's privacy is computed."""

from __future__ import annotations

import dataclasses
from fractions import Fraction


@dataclasses.dataclass(frozen=True)
class SetLaw:
    """The law of a report that is more likely in its value's set of outputs.

    A report y has the probability `ratio` b(y) in the set and b(y) outside, b being the least
    probability of y under any value (the blanket).

    Parameters
    ----------
    ratio : Fraction
        p, at least 1.
    inside : Fraction
        The mass of a set under b / |b|, the same for all values; at most 1/2.
    overlap : Fraction
        The least mass that the sets of two values have in common, under b / |b|.
    chance : Fraction
        The probability of this law, if a public draw chooses one of several; else 1.
    is_sign : bool
        Whether a report is one of two symbols.
    """

    ratio: Fraction
    inside: Fraction = Fraction(1, 2)
    overlap: Fraction = Fraction(0)
    chance: Fraction = Fraction(1)
    is_sign: bool = False
