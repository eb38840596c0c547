"""The list of promises in docs/privacy.md: every one names a test, and every test is there."""

import re

from tests.support.paths import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FEWEST = 13


def promises() -> list[list[str]]:
    """Return the rows of the list, cell by cell."""
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    section = page.partition("## A dishonest server\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows[1:]]


def test_each_promise_has_a_liar_a_keeper_and_tests_that_exist() -> None:
    assert len(promises()) >= FEWEST
    for promise, attempt, keeper, tests in promises():
        assert all((promise, attempt, keeper))
        named = NAMED.findall(tests)
        assert named, f"no test keeps: {promise}"
        assert NAMED.sub("", tests).strip(", ") == "", f"not the path of a test: {tests}"
        for path, name in named:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert f"\ndef {name}(" in text, f"{path} has no test {name}"
