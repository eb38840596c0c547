"""The table of modules in docs/architecture.md: `python -m deploy.checks.modules` writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from deploy.checks import ROOT, Fault
from deploy.checks.folders import PACKAGES

PAGE = ROOT / "docs" / "architecture.md"
TABLE = re.compile(r"(?<=\n\| module \| what it contains \|\n\|---\|---\|\n)(?:\|.*\n)*")


def faults() -> Iterator[Fault]:
    """Yield the page if its table differs from that of the present modules."""
    text = PAGE.read_text(encoding="utf-8")
    if TABLE.findall(text) != [_table()]:
        yield Fault(PAGE, 1, "the table of modules is old: run `python -m deploy.checks.modules`")


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
