"""Every page of the documentation leads where it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = (heading.lower() for heading in HEADING.findall(page.read_text()))
    return {
        "#" + re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for file, anchor in LINK.findall(page.read_text()):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{file}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{file}{anchor}: no such heading"
