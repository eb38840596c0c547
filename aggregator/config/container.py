"""The memory limit of this process's container, from Linux's control groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest number of pages."""


class Limit(NamedTuple):
    """A limit of memory in bytes, and the file that says so."""

    bytes: int
    file: Path


def memory_limit(root: Path = ROOT, own: Path = SELF) -> Limit | None:
    """Return the least memory that this process's control groups allow; None: no limit is known.

    A group is bounded by those that it is in, too. Inside a container its own group is mostly the
    root of what can be seen; a service of systemd has a path.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    found: list[Limit] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _up(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _up(root / "memory", path, "memory.limit_in_bytes")
    return min(found, default=None)


def _up(root: Path, path: str, name: str) -> Iterator[Limit]:
    """Yield the limits of a group and of those that it is in."""
    here = root / path.strip("/")
    for folder in (here, *here.parents):
        if not folder.is_relative_to(root):
            return
        with contextlib.suppress(OSError):
            text = (folder / name).read_text().strip()
            if text.isdecimal() and int(text) < NO_LIMIT:
                yield Limit(int(text), folder / name)
