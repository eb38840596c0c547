"""The site of the docs, as `make docs` builds it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.more

LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the dependency group `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--site-dir", str(folder)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_it_begins_with_the_readme_and_loads_nothing_from_another_host(site: Path) -> None:
    title = (ROOT / "README.md").read_text().splitlines()[0].removeprefix("# ")
    assert re.search(rf"<h1[^>]*>{title}\b", (site / "index.html").read_text())
    pages = {page: LOADED.findall(page.read_text()) for page in site.rglob("*.html")}
    assert len(pages) > 40
    foreign = [(page.name, url) for page, urls in pages.items() for url in urls if "//" in url]
    assert foreign == []


def test_a_diagram_is_drawn_in_the_page(site: Path) -> None:
    page = (site / "docs" / "architecture.html").read_text()
    assert page.count('<div class="diagram"><svg') == (
        (ROOT / "docs" / "architecture.md").read_text().count("```mermaid")
    )
    assert 'class="mermaid"' not in page  # which would fetch a script to draw it
