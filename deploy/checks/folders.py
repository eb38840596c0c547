"""Checks that folders stay small, and that tests share helpers only in tests/support."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deploy.checks import ROOT, Fault

PACKAGES = ("estimators", "producers", "aggregator", "dither", "reproduction")
MOST_MODULES = 16
REGISTRIES = {"aggregator/cli/commands", "estimators/mechanisms", "reproduction/experiments"}
"""Folders with a file for each command, mechanism or experiment."""
IMPORT = re.compile(r"\s*(?:from|import) (tests\.[\w.]+)")


def faults() -> Iterator[Fault]:
    """Yield the folders with too many modules, and the imports of tests from other folders."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("__init__.py"):
            count = len([*file.parent.glob("*.py")]) - 1
            folder = str(file.parent.relative_to(ROOT))
            if count > MOST_MODULES and folder not in REGISTRIES:
                yield Fault(file, 1, f"{count} modules in a folder: at most {MOST_MODULES}")
    for file in (ROOT / "tests").rglob("*.py"):
        package_of_file = ".".join(file.parent.relative_to(ROOT).parts)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            module = match[1] if (match := IMPORT.match(line)) else package_of_file
            if not (
                module.startswith(("tests.support", f"{package_of_file}."))
                or module == package_of_file
            ):
                message = f"{module} belongs to another folder: share it in tests/support"
                yield Fault(file, number, message)
