"""Libraries without what they would import for features that Dither does not use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

UNUSED = {"redis": "opentelemetry", "structlog": "rich"}
"""A library, and another that it imports wherever that is installed: for metrics of redis-py, which
nobody switches on, and for coloured tracebacks, which would show what variables hold. They take a
fifth of the processor time in which `dither aggregate` imports its modules."""


class _WithoutUnused(SourceFileLoader):
    """Imports a library as if the one that it does not need were not installed."""

    def exec_module(self, module: ModuleType) -> None:
        hidden, modules = UNUSED[module.__name__], _modules()
        modules[hidden] = None  # an ImportError for whoever asks
        try:
            super().exec_module(module)
        finally:
            del modules[hidden]


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in UNUSED or UNUSED[fullname] in sys.modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _WithoutUnused(fullname, spec.loader.path)
        return spec


def leave_out_unused() -> None:
    """From now on, import the libraries of `UNUSED` without what they do not need here."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _modules() -> dict[str, Any]:
    return sys.modules
