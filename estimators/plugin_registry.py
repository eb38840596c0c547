"""Registries of named entries, built in or from installed distributions."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from estimators.errors import DefinitionError

Entry = TypeVar("Entry")
logger = logging.getLogger("estimators")


class PluginRegistry(Mapping[str, Entry], Generic[Entry]):
    """A mapping from names to entries, to which other distributions can add entries.

    Entry points of a group are read on the first request for a name that is not built in, or for
    all names. Each is loaded on first use. `group`: the group of entry points: see
    :mod:`importlib.metadata`; `built_in`: the built-in entries; an entry point with the name of a
    built-in entry is ignored, with a warning in the log; `accept`: a function from the object of an
    entry point to the entry; it raises ValueError with what was expected. The use of an invalid
    entry point, or of a name from two distributions, raises DefinitionError with the distribution
    and what to do; other entries still work.
    """

    def __init__(
        self, group: str, built_in: Mapping[str, Entry], accept: Callable[[str, Any], Entry]
    ) -> None:
        self.group, self.built_in, self._accept = group, built_in, accept

    def __getitem__(self, name: str) -> Entry:
        return self.built_in[name] if name in self.built_in else self._loaders[name]()

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self._loaders

    def __iter__(self) -> Iterator[str]:
        yield from (*self.built_in, *self._loaders)

    def __len__(self) -> int:
        return len(self.built_in) + len(self._loaders)

    def usable(self) -> Iterator[tuple[str, Entry]]:
        """Yield the names and entries that can be loaded."""
        for name in self:
            with contextlib.suppress(DefinitionError):
                yield name, self[name]

    @functools.cached_property
    def _loaders(self) -> dict[str, Callable[[], Entry]]:
        """A loader for each entry of installed distributions, by name; each loads only once."""
        from importlib import metadata  # slow to import, and seldom needed

        points: dict[str, list[metadata.EntryPoint]] = {}
        for point in metadata.entry_points(group=self.group):
            points.setdefault(point.name, []).append(point)
        for name in self.built_in.keys() & points.keys():
            for point in points.pop(name):
                why = _unusable(point, "another name: Dither itself has this one")
                logger.warning("%s; it is ignored", why)
        return {name: functools.cache(lambda p=p: self._load(*p)) for name, p in points.items()}

    def _load(self, point: Any, *others: Any) -> Entry:
        if others:
            raise _unusable(point, f"another name: {_brought_by(others[0])} has it too")
        try:
            target = point.load()
        except Exception as error:
            expected = f"what can be imported, found {type(error).__name__}: {error}"
            raise _unusable(point, expected) from error
        try:
            return self._accept(point.name, target)
        except ValueError as error:
            raise _unusable(point, str(error)) from None


def _brought_by(point: Any) -> str:
    """Return the name and version of an entry point's distribution."""
    if point.dist is None:
        return "an unknown distribution"
    return f"{point.dist.name} {point.dist.version}"


def _unusable(point: Any, expected: str) -> DefinitionError:
    return DefinitionError(
        f"entry point {point.name!r} of group {point.group}",
        point.value,
        f"{expected}. It comes with {_brought_by(point)}: change, update or uninstall that "
        "distribution",
    )
