"""Checks the form of the docs: length of lines, beginnings of pages, the glossary, and names.

Links and headings are checked by MkDocs itself (`make docs`).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import dither
from deploy.checks import ROOT, Fault
from estimators.mechanisms import MECHANISMS

MAX_LINE_LENGTH = 100
MAX_COMMENTED_LENGTH = 135
COMMENTED = re.compile(r"\S +(#|//) ")
UNBREAKABLE = re.compile(r"<.*>|\S+")
LIST = re.compile(r"\+ | {1,3}([-*+]|\d+\.) ")
"""A forge reads a line that begins with + as a list; the site nests a list by 4 spaces."""
PURPOSE = re.compile(r"(Dither|For|Proofs?|The docs|This (page|folder)) \w+")
READERS = re.compile(r"\b[Ff]or (developers|everyone|operators|people|teams|whoever)\b")
TERM = re.compile(r"\| ([^|]+) \| (.+) \|")
ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
DOCUMENTED = ("estimators", "producers", "aggregator")


def faults() -> Iterator[Fault]:
    """Yield what is wrong with the form of pages, and the public names that no reference has."""
    for pattern in ("*.md", "docs/**/*.md", "deploy/*/README.md"):
        for page in ROOT.glob(pattern):
            yield from _form(page)
            if page.parent.name != "decisions":
                yield from _introduction(page)
    yield from _glossary(ROOT / "CONTRIBUTING.md")
    yield from _reference(ROOT / "docs" / "reference")


def _form(page: Path) -> Iterator[Fault]:
    """Check lines that could wrap: not code, rows of tables, HTML or single words."""
    in_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif in_code and COMMENTED.search(line) and len(line) > MAX_COMMENTED_LENGTH:
            yield Fault(page, number, "a command with a comment has a line of its own")
        elif not (in_code or line.lstrip().startswith("|") or UNBREAKABLE.fullmatch(line.strip())):
            if len(line) > MAX_LINE_LENGTH:
                yield Fault(page, number, f"{len(line)} characters: at most {MAX_LINE_LENGTH}")
            if LIST.match(line):
                yield Fault(page, number, "a list that the site takes for another: nest by 4")


def _introduction(page: Path) -> Iterator[Fault]:
    title, *paragraphs = page.read_text(encoding="utf-8").split("\n\n")
    first = " ".join(" ".join(paragraphs[:2]).split())  # the README's readers have the second
    if not (title.startswith("# ") and PURPOSE.match(first) and READERS.search(first)):
        yield Fault(page, 1, "begin with a title, what the page is for, and for whom")


def _glossary(page: Path) -> Iterator[Fault]:
    lines = page.read_text(encoding="utf-8").splitlines()
    begin = lines.index("## Glossary")
    rows = [(number, TERM.fullmatch(line)) for number, line in enumerate(lines, 1)]
    terms = [(number, row[1], row[2]) for number, row in rows[begin:] if row][1:]
    previous_term = ""
    for number, term, meaning in terms:
        if term <= previous_term:
            yield Fault(page, number, f"{term}: each term once, in order")
        if not meaning.endswith((".", ")")):
            yield Fault(page, number, f"{term}: end the meaning with a full stop")
        previous_term = term
    if not terms:
        yield Fault(page, begin + 1, "a glossary without terms")


def _reference(folder: Path) -> Iterator[Fault]:
    entries = {entry for page in folder.glob("*.md") for entry in ENTRY.findall(page.read_text())}
    public = {
        f"{package}.{name}": package
        for package in DOCUMENTED
        for name in importlib.import_module(package).__all__
    }
    for mechanisms in MECHANISMS.values():
        for mechanism in mechanisms.values():
            public[f"estimators.mechanisms.{mechanism.__name__}"] = "mechanisms"
    documented = {entry.rpartition(".")[2] for entry in entries}
    for name in set(dither.__all__) - documented:
        yield Fault(folder / "aggregator.md", 1, f"dither.{name} is not in the reference")
    for name in public.keys() - entries:
        yield Fault(folder / f"{public[name]}.md", 1, f"{name} is not in the reference")
