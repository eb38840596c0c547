"""Mutations written by hand: what an attentive reader would break."""

from __future__ import annotations

from pathlib import Path

from tests.mutations.mutation import Mutation

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""Drawn mutations that change nothing that anybody can see, each with its reason."""

WRITTEN: tuple[tuple[str, str, str, str], ...] = ()
"""File, what the mutation breaks, the text before (once in the file), and the text after."""


def written(root: Path) -> list[Mutation]:
    """Return the mutations that were written by hand."""
    return [_found(root, *entry) for entry in WRITTEN]


def _found(root: Path, path: str, what: str, before: str, after: str) -> Mutation:
    source = (root / path).read_bytes()
    if source.count(before.encode()) != 1:
        raise ValueError(f"{path}: expected {before!r} once, for the mutation {what!r}")
    offset = source.index(before.encode())
    return Mutation(path, source[:offset].count(b"\n") + 1, before, after, offset, what)
