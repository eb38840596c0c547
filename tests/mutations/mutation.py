"""A mutation: one piece of a file's text that is replaced."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One replacement in one file.

    Attributes
    ----------
    path : str
        Relative to the root of the repository.
    line : int
        The first line of the replaced text.
    before, after : str
        The replaced text, and what replaces it.
    offset : int
        Where the replaced text begins, in bytes.
    what : str
        What the mutation breaks, or its operator.
    """

    path: str
    line: int
    before: str
    after: str
    offset: int
    what: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same if lines are added above it."""
        return self.path, self.before, self.after

    def __str__(self) -> str:
        before, after = (" ".join(text.split())[:60] for text in (self.before, self.after))
        return f"{self.path}:{self.line} ({self.what}): {before} -> {after or 'nothing'}"

    def apply(self, root: Path) -> None:
        """Write the mutated file below `root`."""
        path = root / self.path
        source = path.read_bytes()
        end = self.offset + len(self.before.encode())
        if source[self.offset : end] != self.before.encode():
            raise ValueError(f"{path}: expected {self.before!r} at byte {self.offset}")
        path.write_bytes(source[: self.offset] + self.after.encode() + source[end:])
