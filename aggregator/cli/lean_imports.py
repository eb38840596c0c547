"""Loads libraries without those of their imports that no command uses."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

UNUSED_MODULES = {"redis": "opentelemetry", "structlog": "rich"}
"""The module that a library loads, if installed, for features that no command uses: 9 MB of
memory."""


class LeanLoader(importlib.machinery.SourceFileLoader):
    """Loads a library as if the module that it does not need here were not installed."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module; meanwhile, an import of the unused module raises ImportError."""
        unused = UNUSED_MODULES[module.__name__]
        is_hidden = unused not in sys.modules
        if is_hidden:
            sys.modules[unused] = None  # type: ignore[assignment]
        try:
            super().exec_module(module)
        finally:
            if is_hidden:
                del sys.modules[unused]


class LeanFinder(importlib.abc.MetaPathFinder):
    """Finds the libraries of `UNUSED_MODULES`, to load them without the unused modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a library in `UNUSED_MODULES`; None for other modules.

        `fullname`: the name of the module; `path`, `target`: as importlib passes them.
        """
        if fullname not in UNUSED_MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = LeanLoader(fullname, spec.origin)
        return spec
