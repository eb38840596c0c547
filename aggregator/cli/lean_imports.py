"""Loads libraries without those of their imports that no command uses."""

from __future__ import annotations

import importlib
import importlib.machinery
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

UNUSED_MODULES = {
    "redis": ["opentelemetry"],
    "structlog": ["rich", "greenlet", "colorama"],
    "shutil": ["bz2", "lzma"],
    "msgspec": ["typing_extensions"],
}
"""The modules that a library loads, if installed, for features that no command uses: 10 MB of
memory."""
OPENSSL_MODULES = {"redis": ["ssl", "cryptography"], "hashlib": ["_hashlib"], "hmac": ["_hashlib"]}
"""The modules by which a library loads OpenSSL: 7 MB. Without them, Python computes hashes itself,
and Redis's client has no TLS. Kafka's client has its own OpenSSL."""
DEFERRED_MODULES = {
    "redis": ["asyncio", "importlib.metadata"],
    "structlog": ["asyncio"],
    "confluent_kafka": ["asyncio"],
    "scipy._lib.array_api_compat.numpy": ["numpy.testing", "numpy.f2py"],
    "scipy._lib._docscrape": ["pydoc"],
}
"""The modules that a library always loads, but uses in few functions: 2.5 MB, scipy's 8 MB."""
EMPTY_MODULES = {
    "redis.asyncio": "redis",
    "limits.aio": "limits",
    "numpy._core._add_newdocs": "numpy._core",
    "numpy._core._add_newdocs_scalars": "numpy._core",
    "google.protobuf.internal.python_message": "google._upb._message",
}
"""Modules that are left empty if the module named here is loaded: 4.5 MB. No command uses Redis or
rate limits from coroutines, or Protobuf's implementation in Python beside the one in C."""


def may_use_tls(args: Sequence[str]) -> bool:
    """Return whether a command's settings may have a `rediss://` URL, for Redis over TLS.

    `args`: the arguments of the command. The file of a secret is not read: it may have one. So may
    a file of settings that cannot be read.
    """
    files = [os.environ.get("DITHER_CONFIG") or "dither.toml"]
    files += [value for name, value in itertools.pairwise(args) if name == "--config"]
    files += [arg.removeprefix("--config=") for arg in args if arg.startswith("--config=")]
    texts = [*args, *os.environ.values()]
    try:
        texts += [Path(file).read_text(errors="replace") for file in files if Path(file).is_file()]
    except OSError:
        return True
    return "DITHER_REDIS_URL_FILE" in os.environ or "rediss" in " ".join(texts).lower()


class DeferredModule(ModuleType):
    """A module that is loaded when a library uses something of it, after it has been loaded."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # for annotations, and base classes
            return object
        return getattr(importlib.import_module(self.__name__), name)


class LeanLoader(importlib.machinery.SourceFileLoader):
    """Loads a module of a library as if the `hidden` modules were these, None if not installed."""

    def __init__(self, fullname: str, path: str, hidden: dict[str, ModuleType | None]) -> None:
        super().__init__(fullname, path)
        self._hidden = hidden

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        if EMPTY_MODULES.get(module.__name__) in sys.modules:
            return
        hidden = {name: each for name, each in self._hidden.items() if name not in sys.modules}
        sys.modules.update(hidden)  # type: ignore[arg-type]
        names = {name: name.rpartition(".") for name in hidden}
        packages = {name: sys.modules.get(package) for name, (package, _, _) in names.items()}
        for name, package in packages.items():
            if package is not None:
                setattr(package, names[name][2], hidden[name])
        try:
            super().exec_module(module)
        finally:
            for name, package in packages.items():
                del sys.modules[name]
                if package is not None:
                    delattr(package, names[name][2])


class LeanFinder:
    """Finds libraries, to load them with less than they import. Goes into `sys.meta_path`.

    `has_tls`: whether the client of Redis may need TLS.
    """

    def __init__(self, has_tls: bool) -> None:
        self._hidden: dict[str, dict[str, ModuleType | None]] = {name: {} for name in EMPTY_MODULES}
        for hidden in (UNUSED_MODULES, {} if has_tls else OPENSSL_MODULES):
            for library, names in hidden.items():
                self._hidden.setdefault(library, {}).update(dict.fromkeys(names))
        for library, names in DEFERRED_MODULES.items():
            deferred = {name: DeferredModule(name) for name in names}
            self._hidden.setdefault(library, {}).update(deferred)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module that is loaded with less; None for others.

        `fullname`: the name of the module; `path`, `target`: as importlib passes them.
        """
        if fullname not in self._hidden:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = LeanLoader(fullname, spec.loader.path, self._hidden[fullname])
        return spec
