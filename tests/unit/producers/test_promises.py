"""The list of promises in docs/privacy.md: every one names a test, and every test is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.paths import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FEWEST = 13


def promises() -> list[list[str]]:
    """Return the rows of the list, cell by cell."""
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    section = page.partition("## A dishonest server\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows[1:]]


def test_the_list_is_read() -> None:
    assert len(promises()) >= FEWEST


@pytest.mark.parametrize("row", promises(), ids=lambda row: row[0][:60])
def test_a_promise_has_a_liar_a_keeper_and_tests_that_exist(row: list[str]) -> None:
    promise, attempt, keeper, tests = row
    assert promise
    assert attempt
    assert keeper
    named = NAMED.findall(tests)
    assert named, f"no test keeps: {promise}"
    assert NAMED.sub("", tests).strip(", ") == "", f"not the path of a test: {tests}"
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{path} has no test {name}"
