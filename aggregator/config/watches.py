"""What is watched: comparisons and alarms, which the file of definitions has beside the metrics.

Devices do not need them, so they are read here and not with the metrics.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from aggregator.config.alarm_definitions import AlarmDefinition, AlarmTable, define_alarm
from aggregator.config.comparison_definitions import (
    ComparisonDefinition,
    ComparisonTable,
    define_comparison,
)
from aggregator.config.watch_tables import read_tables
from aggregator.errors import DitherError
from aggregator.secrets import masked_path
from estimators import Metric
from estimators.metrics.loading import metrics_of, read_document


class Definitions(dict[str, Metric]):
    """The metrics of a file by name, and what is watched of them.

    Attributes
    ----------
    comparisons : mapping of str to ComparisonDefinition
    alarms : mapping of str to AlarmDefinition
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        comparisons: Mapping[str, ComparisonDefinition] | None = None,
        alarms: Mapping[str, AlarmDefinition] | None = None,
    ) -> None:
        super().__init__(metrics)
        self.comparisons = comparisons or {}
        self.alarms = alarms or {}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file of definitions.

        Parameters
        ----------
        path : path

        Raises
        ------
        DefinitionError
            With the file, the key, the value found and what was expected.
        FileNotFoundError
            If there is no such file.
        """
        document, source = read_document(path), str(path)  # once: the file may be changed meanwhile
        metrics = metrics_of(document, source)
        comparisons = read_tables(ComparisonTable, define_comparison, document, metrics, source)
        alarms = read_tables(AlarmTable, define_alarm, document, metrics, source)
        return cls(metrics, comparisons, alarms)

    def is_same(self, other: Definitions) -> bool:
        """Return whether another file's definitions say the same."""
        return (
            self == other and self.comparisons == other.comparisons and self.alarms == other.alarms
        )


def load_definitions(path: str | os.PathLike[str]) -> Definitions:
    """Return what a deployment's file of definitions says now.

    Parameters
    ----------
    path : path

    Raises
    ------
    DitherError
        If there is no such file.
    DefinitionError
        With the file, the key, the value found and what was expected.
    """
    require_file(path)
    return Definitions.load(os.fspath(path))


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise DitherError if there is no such file of definitions.

    Parameters
    ----------
    path : path
    """
    if not Path(path).exists():
        raise DitherError(
            f"no metrics file {masked_path(path)!r}: write one with a table [metrics.NAME] for "
            "each question (README.md has an example), or name yours with --metrics, "
            "DITHER_METRICS or Reader(metrics=...)"
        )
