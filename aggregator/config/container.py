"""What the container that this process runs in may use, as Linux's control groups tell it."""

from __future__ import annotations

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
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _up(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _up(root / "memory", path, "memory.limit_in_bytes")
    return min(found, default=None)


def _up(root: Path, path: str, name: str) -> list[Limit]:
    """Return the limits of a group and of those that it is in."""
    here = root / path.strip("/")
    limits = []
    for folder in (here, *here.parents):
        if not folder.is_relative_to(root):
            break
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal() and int(text) < NO_LIMIT:
            limits.append(Limit(int(text), folder / name))
    return limits
