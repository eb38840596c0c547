"""The file of definitions: the metrics, and the tables that features have beside them.

Devices need the metrics alone, so the other tables are read here and not with the metrics.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from aggregator.errors import DitherError
from aggregator.feature import features
from aggregator.secrets import masked_path
from estimators import Metric
from estimators.metrics.loading import metrics_of, read_document


class Definitions(dict[str, Metric]):
    """The metrics of a file by name, and the definitions in its other tables.

    Parameters
    ----------
    metrics : mapping of str to Metric
    **tables : mapping
        Definitions by name, for each kind of table: ``alarms={"late": ...}``.
    """

    def __init__(self, metrics: Mapping[str, Metric], **tables: Mapping[str, Any]) -> None:
        super().__init__(metrics)
        self.tables = tables

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
        kinds = [kind for feature in features() for kind in feature.tables()]
        tables = {kind.kind: kind.read(document, metrics, source) for kind in kinds}
        return cls(metrics, **tables)

    def is_same(self, other: Definitions) -> bool:
        """Return whether another file's definitions say the same."""
        return self == other and self.tables == other.tables


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
