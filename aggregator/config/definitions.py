"""The file of definitions: the metrics, which devices read, too, and the tables of features."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from aggregator.errors import DitherError
from aggregator.feature import features
from aggregator.secrets import masked_path
from estimators import DefinitionError, Metric
from estimators.metrics.loading import metrics_of, read_document

MAX_PANE_BYTES = 2**29
"""The most bytes of a pane's sums: Redis refuses a larger value (`proto-max-bulk-len`)."""


class MetricDefinitions(dict[str, Metric]):
    """The metrics of a file by name, and the definitions in its other tables.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics by name.
    **tables : mapping
        The definitions in each kind of table, by name: ``alarms={"late": ...}``.
    """

    def __init__(self, metrics: Mapping[str, Metric], **tables: Mapping[str, Any]) -> None:
        super().__init__(metrics)
        self.tables = tables

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the definitions in a file.

        Raises
        ------
        DefinitionError
            If a definition is invalid, or its sums are too large for Redis.
        FileNotFoundError
            If the file is missing.
        """
        document, source = read_document(path), str(path)  # read once, since the file may change
        metrics = metrics_of(document, source)
        for name, metric in metrics.items():
            if (size := metric.zero().nbytes) > MAX_PANE_BYTES:
                expected = (
                    f"fewer levels, or smaller tables, as Redis takes sums of at most "
                    f"{MAX_PANE_BYTES:,} bytes, and a pane has {size:,}"
                )
                raise DefinitionError(f"{name}.levels", metric.levels, expected, source)
        kinds = [kind for feature in features() for kind in feature.tables()]
        return cls(metrics, **{kind.kind: kind.read(document, metrics, source) for kind in kinds})


def load_definitions(path: str | os.PathLike[str]) -> MetricDefinitions:
    """Return the current definitions of a deployment's file.

    Raises
    ------
    DitherError
        If the file is missing.
    DefinitionError
        If a definition is invalid.
    """
    require_file(path)
    return MetricDefinitions.load(os.fspath(path))


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise DitherError if the file of definitions is missing."""
    if not Path(path).exists():
        raise DitherError(
            f"no metrics file {masked_path(path)!r}: write one with a table [metrics.NAME] for "
            "each question (README.md has an example), or name yours with --metrics, "
            "DITHER_METRICS or Reader(metrics=...)"
        )
