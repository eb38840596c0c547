"""An empty page of another origin and one script tag: a value reaches the dashboard."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.staticfiles import StaticFiles

from tests.services.browser.conftest import Sites, Visitor, expect
from tests.support.paths import ROOT
from tests.support.running.served_application import served_plainly

pytestmark = pytest.mark.more

LATE = """
[metrics]
late = {kind = "mean", range = [0, 1], levels = [0.5, 1], lateness = "1h", minimum_reports = 1}
"""
ADDRESS = "https://reports.example.org"


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    """A server of static files, from `tmp_path`."""
    with served_plainly(StaticFiles(directory=tmp_path, html=True)) as url:
        yield url


def script_of(guide: str) -> str:
    """Return the script tag of a guide."""
    (found,) = re.findall(r"```html\n(<script.*?</script>)\n```", guide, re.DOTALL)
    return str(found)


def test_a_page_of_another_origin_needs_one_script_tag(
    site_of_metrics: Sites,
    visitor: Visitor,
    origin: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guide = ROOT / "docs" / "javascript-client.md"
    script = script_of(guide.read_text(encoding="utf-8"))
    monkeypatch.setenv("DITHER_SERVE_CORS_ORIGINS", origin)
    with site_of_metrics(LATE) as site:
        page = "<!doctype html><title>shop</title>" + script.replace(ADDRESS, site.url)
        (tmp_path / "index.html").write_text(page)
        (tmp_path / "favicon.ico").touch()  # a browser asks for it
        visitor.own.add(site.url.removeprefix("http://"))
        other = visitor.open(origin.replace("127.0.0.1", "localhost"))  # which is not listed
        other.wait_for_load_state("networkidle")
        assert any("blocked by CORS policy" in error for error in visitor.errors)
        other.close()
        visitor.errors.clear()
        visitor.open(origin)
        dashboard = visitor.open(site.url)
        card = dashboard.get_by_role("article", name="late", exact=True)
        expect(card.get_by_title(". 1 report.")).to_be_visible()
        assert site.deployment.counts()["accepted:late"] == 1
