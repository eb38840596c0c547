"""Settings of glibc's malloc that make processes smaller."""

from __future__ import annotations

import ctypes
import os

MALLOC_VARIABLES = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "1000000",
    "MALLOC_TRIM_THRESHOLD_": "1000000",
}
"""With these, glibc returns freed memory at once; by default it keeps as much as is in use. Threads
share two arenas; by default each has one, which takes 60 kB even in an idle thread."""
MALLOC_PARAMETERS = {
    "MALLOC_ARENA_MAX": -8,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_TRIM_THRESHOLD_": -1,
}
"""The numbers of these variables for glibc's `mallopt`."""


def apply_malloc_variables(*names: str) -> None:
    """Apply variables of MALLOC_VARIABLES to this process, which is running, if it has glibc."""
    set_parameter = getattr(ctypes.CDLL(None), "mallopt", None)
    for name in names:
        if set_parameter is not None and name not in os.environ:
            set_parameter(MALLOC_PARAMETERS[name], int(MALLOC_VARIABLES[name]))
