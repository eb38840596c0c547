"""Rooms stay small, and tests share helpers in one place."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("estimators", "producers", "aggregator", "reproduction")
MOST_MODULES = 16
REGISTRIES = {"aggregator/cli/commands", "estimators/mechanisms", "reproduction/experiments"}
"""Folders with a file for each command, mechanism or experiment."""


def imported(file: Path) -> Iterator[str]:
    """Yield the modules of the tests that a file imports from."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            yield str(node.module)


def test_no_room_has_more_modules_than_one_can_look_over() -> None:
    files = [file for name in PACKAGES for file in (ROOT / name).rglob("*.py")]
    counts = Counter(str(file.parent.relative_to(ROOT)) for file in files)
    assert len(counts) > len(PACKAGES)
    crowded = {room: count for room, count in counts.items() if count > MOST_MODULES + 1}
    assert set(crowded) <= REGISTRIES


def test_tests_import_helpers_from_support_or_from_their_own_folder() -> None:
    found = 0
    for file in (ROOT / "tests").rglob("*.py"):
        own = ".".join(file.parent.relative_to(ROOT).parts)
        for module in imported(file):
            found += 1
            assert module.startswith(("tests.support", f"{own}.")) or module == own, (
                f"{file.relative_to(ROOT)} imports {module}"
            )
    assert found > 100
