"""Checks of folders of modules, and the table of modules in docs/architecture.md.

Folders stay small, and tests share helpers only in tests/support. `python -m deploy.checks.modules`
writes the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from deploy.checks import ROOT, Fault

PACKAGES = ("estimators", "producers", "aggregator", "dither", "reproduction")
MOST_MODULES = 16
REGISTRIES = {"aggregator/cli/commands", "estimators/mechanisms", "reproduction/experiments"}
"""Folders with a file for each command, mechanism or experiment."""
IMPORT = re.compile(r"\s*(?:from|import) (tests\.[\w.]+)")
PAGE = ROOT / "docs" / "architecture.md"
TABLE = re.compile(r"(?<=\n\| module \| what it contains \|\n\|---\|---\|\n)(?:\|.*\n)*")


def faults() -> Iterator[Fault]:
    """Yield the page if its table differs from that of the present modules, and wrong folders."""
    text = PAGE.read_text(encoding="utf-8")
    if TABLE.findall(text) != [_table()]:
        yield Fault(PAGE, 1, "the table of modules is old: run `python -m deploy.checks.modules`")
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
            if not f"{module}.".startswith(("tests.support.", f"{package_of_file}.")):
                message = f"{module} belongs to another folder: share it in tests/support"
                yield Fault(file, number, message)


def _table() -> str:
    """Return a row for each module with code: its path, and its docstring's first line."""
    rows = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            module = ast.parse(file.read_text(encoding="utf-8"))
            title = (ast.get_docstring(module) or "").partition("\n")[0].rstrip(".")
            cell = title.replace("|", r"\|")
            if file.name != "__init__.py" and title:
                path = file.relative_to(ROOT).as_posix()
                rows.append(f"| `{path}` | {cell} |\n")
    return "".join(rows)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda _: _table(), page), encoding="utf-8")
