"""The commands that the project prints: in its documents, and in the strings of its code."""

import ast
import re
import shlex
from collections.abc import Iterator

from tests.support.paths import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [
    file
    for package in ("estimators", "producers", "aggregator", "dither", "deploy", "benchmarks")
    for file in sorted((ROOT / package).rglob("*.py"))
]
PROGRAM = r"(?:\.venv/bin/)?(?:dither|make|python3?)"
LINE = re.compile(rf"^(?:\$ )?({PROGRAM}(?: .*)?)$")
INLINE = re.compile(rf"`({PROGRAM} [^`]*)`")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = {"", "bash", "sh", "console"}


def printed_commands() -> Iterator[tuple[str, str]]:
    """Yield (where, command) of every command that is printed somewhere."""
    for file in DOCUMENTS:
        yield from ((str(file.relative_to(ROOT)), one) for one in in_document(file.read_text()))
    for file in SOURCES:
        yield from ((str(file.relative_to(ROOT)), one) for one in in_source(file.read_text()))


def in_document(text: str) -> Iterator[str]:
    """Yield the commands of a Markdown text: lines of shell blocks, and inline code."""
    for language, body in BLOCK.findall(text):
        if language in SHELL:
            found = (LINE.match(line) for line in body.replace("\\\n", " ").splitlines())
            yield from (one[1] for one in found if one)
    yield from INLINE.findall(BLOCK.sub("", text))


def in_source(text: str) -> Iterator[str]:
    """Yield the commands in backticks in a module's strings, those of its messages among them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            yield from INLINE.findall("".join(str(part) for part in parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for line in node.value.splitlines():
                if found := re.match(rf"^ +({PROGRAM} .+)$", line):  # an example of a help text
                    yield found[1]
            yield from INLINE.findall(" ".join(node.value.split()))


def words(command: str) -> list[str]:
    """Return a command's words, without its comment, what is optional, and redirections."""
    plain = re.sub(r"\s\[[^\]]*\]|\s#.*$|\s>>?\s.*$|\s\|\s.*$", "", command)
    return shlex.split(plain)
