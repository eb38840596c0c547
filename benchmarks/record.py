"""The results of a run as a file, from which tables are printed and capacity is computed.

Numbers are printed with three digits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec

from benchmarks.measure import Result
from producers.wire.decoding import decode_json

RECORDED = Path(__file__).with_name("recorded.json")


class Measured(msgspec.Struct):
    """A number without a baseline."""

    value: float
    unit: str


class Record(msgspec.Struct):
    """What was measured, by name, and on which machine; as JSON it has the same names.

    `benchmarks` has medians; `spread` the lowest and the highest ratio of all rounds; `figures`
    numbers without a baseline; `not_run` the reasons.
    """

    benchmarks: dict[str, Result] = {}
    spread: dict[str, tuple[float, float]] = {}
    figures: dict[str, Measured] = {}
    not_run: dict[str, str] = {}
    machine: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        return [*self.benchmarks, *self.figures, *self.not_run]

    def updated(self, newer: Record, stage: str) -> Record:
        """Return the results of both records: those of `newer`, and of other names and stages."""
        replaced, parts = {*newer.names}, {}
        for part in self.__struct_fields__:
            kept = {
                name: result
                for name, result in getattr(self, part).items()
                if name not in replaced and name.split("/")[0] != stage
            }
            parts[part] = kept | getattr(newer, part)
        return Record(**parts)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file that `dither bench --json` wrote."""
        return decode_json(file.read_bytes(), cls)


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
