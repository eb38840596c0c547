"""Which files of tests execute the places that are mutated: no other test can notice.

A copy of the repository has a call of `note` at each of these places. Processes that tests start
note the same, by the name of the test in their environment.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = "DITHER_MUTATIONS_REACHED"
"""The environment variable with the folder in which reached places are noted."""
IMPORTED = "import"
"""Noted for a test: the place is executed when a module is imported, so by every test."""

_noted: set[tuple[int, str]] = set()


def note(number: int) -> None:
    """Note that the running test has reached a mutation."""
    test = os.environ.get("PYTEST_CURRENT_TEST", IMPORTED).partition("::")[0]
    folder = os.environ.get(FOLDER)
    if folder and (number, test) not in _noted:
        _noted.add((number, test))
        with Path(folder, str(os.getpid())).open("a") as file:
            file.write(f"{number} {test}\n")


def instrument(path: Path, places: Iterable[tuple[int, int, str]]) -> set[int]:
    """Put calls of `note` into a file of Python code; return the mutations that have none.

    Parameters
    ----------
    path : Path
    places : iterable of (int, int, str)
        Of each mutation in the file: its number, where its text begins in bytes, and the text.
    """
    source, missing = path.read_bytes(), set()
    for number, offset, before in sorted(places, key=lambda place: -place[1]):
        if source[offset : offset + len(before.encode())] != before.encode():
            missing.add(number)  # it has another mutation within
            continue
        call = f'__import__("{__name__}", fromlist=["note"]).note({number})'
        code = before.lstrip(" ")
        indent, text = before[: len(before) - len(code)], code.rstrip("\n")
        for noted in (f"({call} or ({text}))", f"{indent}{call}; {code}"):
            changed = source[:offset] + noted.encode() + source[offset + len(before.encode()) :]
            try:
                ast.parse(changed)
            except SyntaxError:
                continue
            source = changed
            break
        else:
            missing.add(number)
    path.write_bytes(source)
    return missing


def reached(folder: Path, count: int) -> Sequence[set[str] | None]:
    """Return by which files of tests each mutation was reached; None: by all that import it."""
    found: list[set[str]] = [set() for _ in range(count)]
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            number, test = line.split(" ", 1)
            found[int(number)].add(test)
    return [None if IMPORTED in tests else tests for tests in found]
