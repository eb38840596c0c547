"""Crowds: a relay shuffles a metric's reports before their collector sees any of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from estimators.durations import milliseconds
from estimators.metrics.validation import check_duration, read_table

SEAL_BYTES = 48
"""Bytes that sealing adds to a report: a public key of X25519, and an authentication tag."""
MAX_CROWD_BYTES = 16 * 2**20
"""The most bytes of sealed reports that a relay posts at once."""
MAX_SEALED_REPORT = 2**16 - 1
SMALLEST_CROWD, LARGEST_CROWD = 100, 1_000_000
LARGEST_DISHONEST, LARGEST_DELTA = 0.5, 0.01


@dataclasses.dataclass(frozen=True)
class Crowd:
    """The crowd of reports in which each report of a metric hides.

    Parameters
    ----------
    minimum : int
        A relay drops a crowd with fewer reports.
    wait : str
        How long after a pane's end the relay accepts its reports, as a duration.
    delta : float
        The delta of the crowd's central guarantee (epsilon, delta).
    dishonest : float
        The largest share of a crowd's reports that may be fabricated.

    Examples
    --------
    >>> crowd = Crowd(minimum=10_000, wait="12h")
    >>> crowd.honest, crowd.others, crowd.wait_ms
    (9000, 8999, 43200000)
    """

    minimum: int
    wait: str
    delta: float = 1e-8
    dishonest: float = 0.1

    def __post_init__(self) -> None:
        if not SMALLEST_CROWD <= self.minimum <= LARGEST_CROWD:
            raise ValueError(f"minimum: {SMALLEST_CROWD} to {LARGEST_CROWD} reports")
        try:
            check_duration(self.wait)
        except ValueError as error:
            raise ValueError(f"wait: {error}") from None
        if not 0 < self.delta <= LARGEST_DELTA:
            raise ValueError(f"delta: above 0 and at most {LARGEST_DELTA}")
        if not 0 <= self.dishonest <= LARGEST_DISHONEST:
            raise ValueError(f"dishonest: a share from 0 to {LARGEST_DISHONEST}")

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Crowd:
        """Return the crowd that the table `crowd` of a definition describes.

        Raises ValueError with what was expected.
        """
        return dataclasses.replace(read_table(table, cls))  # copies the defaults

    @property
    def honest(self) -> int:
        """The number of honest reports in the smallest crowd."""
        return math.floor((1 - Fraction(str(self.dishonest))) * self.minimum)

    @property
    def others(self) -> int:
        """The number of other honest reports among which an honest report hides."""
        return self.honest - 1

    @property
    def wait_ms(self) -> int:
        """How long after a pane's end the relay accepts its reports, in milliseconds."""
        return milliseconds(self.wait)

    @property
    def meaning(self) -> dict[str, Any]:
        """The crowd's part of the canonical form of a definition, as plain values for JSON."""
        return {
            "minimum": self.minimum,
            "wait": self.wait_ms,
            "delta": float(self.delta),
            "dishonest": float(self.dishonest),
        }

    def size_fault(self, width: int) -> str:
        """Return what was expected if reports of `width` bytes are too large; "" otherwise."""
        sealed = width + SEAL_BYTES
        if sealed > MAX_SEALED_REPORT:
            return f"reports of at most {MAX_SEALED_REPORT - SEAL_BYTES} bytes, not {width}"
        max_minimum = MAX_CROWD_BYTES // (2 * sealed)  # a crowd is split into parts of >= minimum
        if self.minimum > max_minimum:
            return f"minimum: at most {max_minimum} reports, {sealed} bytes each when sealed"
        return ""
