"""Checks of docstrings, pages and folders that ruff, import-linter and MkDocs do not have."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Fault(NamedTuple):
    """What is wrong, and where."""

    file: Path
    line: int
    told: str

    def __str__(self) -> str:
        """Return one line, as ruff and mypy write it."""
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.told}"
