"""The form of the docs: what fits a terminal, what each page begins with, one glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

WIDEST = 100
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*/README.md")])
UNBREAKABLE = re.compile(r"<.*>|\S+")
INTRODUCED = [page for page in PAGES if page.parent.name != "decisions"]
READERS = re.compile(r"\bfor (developers|everyone|operators|people|teams|whoever)\b")


def prose(page: Path) -> Iterator[str]:
    """Yield the lines that could wrap: no code, no rows of tables, no HTML, no single word."""
    in_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not (in_code or line.lstrip().startswith("|") or UNBREAKABLE.fullmatch(line.strip())):
            yield line


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_no_line_of_prose_is_too_wide(page: Path) -> None:
    assert [line for line in prose(page) if len(line) > WIDEST] == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_list_means_the_same_to_a_forge_and_to_the_site(page: Path) -> None:
    """A forge takes a line that begins with + for a list; the site takes 4 spaces to nest one."""
    assert [line for line in prose(page) if re.match(r"\+ | {1,3}([-*+]|\d+\.) ", line)] == []


@pytest.mark.parametrize(
    "page", INTRODUCED, ids=[str(page.relative_to(ROOT)) for page in INTRODUCED]
)
def test_a_page_begins_with_what_it_is_for_and_for_whom(page: Path) -> None:
    title, *paragraphs = page.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    first = " ".join(" ".join(paragraphs[:2]).split())  # the README's readers have the second
    assert re.match(r"(Dither|This (page|folder)) \w+", first)
    assert READERS.search(first)


def test_the_glossary_has_each_term_once_in_order() -> None:
    _, found, glossary = (ROOT / "CONTRIBUTING.md").read_text().partition("## Glossary\n")
    assert found
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", glossary, re.MULTILINE)[1:]
    terms = [term for term, _ in rows]
    assert len(terms) > 50
    assert terms == sorted(set(terms))
    assert [term for term, meaning in rows if not re.search(r"[.)]$", meaning)] == []
