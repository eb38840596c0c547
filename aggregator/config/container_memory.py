"""The memory limit of this process's container, from Linux's control groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60
"""Limits of this many bytes or more mean "no limit": cgroups version 1 writes a huge number."""


class Limit(NamedTuple):
    """A limit of memory in bytes, and the file that states it."""

    bytes: int
    file: Path


def memory_limit(root: Path = CGROUP_ROOT, own_groups: Path = OWN_CGROUPS) -> Limit | None:
    """Return the smallest memory limit of this process's control groups and their parents.

    None if no limit is known. In most containers the process sees its own control group as the
    root.
    """
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:
        return None
    limits: list[Limit] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _ancestor_limits(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _ancestor_limits(root / "memory", path, "memory.limit_in_bytes")
    return min(limits, default=None)


def _ancestor_limits(root: Path, path: str, name: str) -> Iterator[Limit]:
    """Yield the limits of a control group and of its parents; `name`: the file with a limit."""
    group_folder = root / path.strip("/")
    for folder in (group_folder, *group_folder.parents):
        if not folder.is_relative_to(root):
            return
        with contextlib.suppress(OSError):
            text = (folder / name).read_text().strip()
            if text.isdecimal() and int(text) < NO_LIMIT:
                yield Limit(int(text), folder / name)
