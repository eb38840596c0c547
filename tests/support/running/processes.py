"""Looking at processes of this machine by their ids."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

PROC = Path("/proc")


def parents() -> dict[int, int]:
    """Return every living process and its parent; zombies are not living."""
    if not (PROC / "self" / "stat").exists():
        pytest.skip("needs /proc: children are found there")
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
                if state != "Z":
                    found[int(folder.name)] = int(parent)
    return found


def children(pid: int) -> set[int]:
    """Return the processes that a process has started itself."""
    return {child for child, parent in parents().items() if parent == pid}


def descendants(pid: int) -> set[int]:
    """Return the processes that a process has started, and those that they have started."""
    table = parents()
    found: set[int] = set()
    latest = {pid}
    while latest:
        latest = {child for child, parent in table.items() if parent in latest}
        found |= latest
    return found


def living(pids: set[int]) -> set[int]:
    """Return those that still run."""
    return pids & parents().keys()
