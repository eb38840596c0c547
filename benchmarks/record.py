"""The results of a run as a file, from which tables are printed and capacity is computed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Self

from benchmarks.measure import Figure, Result

RECORDED = Path(__file__).with_name("recorded.json")


@dataclasses.dataclass
class Record:
    """What was measured, by name, and on which machine.

    As JSON: ``benchmarks`` has ours, baseline, unit and ratio of each (medians); ``spread`` the
    lowest and the highest ratio of all rounds; ``figures`` numbers without a baseline;
    ``not_run`` the reasons.
    """

    results: dict[str, Result] = dataclasses.field(default_factory=dict)
    figures: dict[str, Figure] = dataclasses.field(default_factory=dict)
    not_run: dict[str, str] = dataclasses.field(default_factory=dict)
    machine: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [*self.results, *self.figures, *self.not_run]

    def __or__(self, newer: Record) -> Record:
        """Return the results of both records; where both have a name, that of `newer`."""
        not_run = {name: why for name, why in self.not_run.items() if name not in newer.names}
        return Record(
            self.results | newer.results,
            self.figures | newer.figures,
            not_run | newer.not_run,
            self.machine | newer.machine,
        )

    def without(self, stage: str) -> Record:
        """Return the results of all other stages."""
        copy = Record(dict(self.results), dict(self.figures), dict(self.not_run), self.machine)
        for kind in (copy.results, copy.figures, copy.not_run):
            for name in [name for name in kind if name.split("/")[0] == stage]:
                del kind[name]
        return copy

    def as_dict(self) -> dict[str, Any]:
        return {
            "benchmarks": {
                name: {key: getattr(r, key) for key in ("ours", "baseline", "unit", "ratio")}
                for name, r in self.results.items()
            },
            "spread": {name: [r.lowest, r.highest] for name, r in self.results.items()},
            "figures": {
                name: {"value": figure.value, "unit": figure.unit}
                for name, figure in self.figures.items()
            },
            "not_run": self.not_run,
            "machine": self.machine,
        }

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file that was written from :meth:`as_dict`."""
        document = json.loads(file.read_text())
        results = {}
        for name, result in document["benchmarks"].items():
            lowest, highest = document["spread"][name]
            results[name] = Result(**result, lowest=lowest, highest=highest)
        figures = {name: Figure(name, **figure) for name, figure in document["figures"].items()}
        return cls(results, figures, document["not_run"], document["machine"])
