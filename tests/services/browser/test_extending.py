"""A kind from another distribution, and a page of another origin, go all the way."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.staticfiles import StaticFiles

from estimators import DefinitionError, define
from estimators.mechanisms import MECHANISMS
from estimators.metrics.kinds import KINDS
from tests.services.browser.conftest import Sites, Visitor, expect, until
from tests.support import toy
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.served_application import served_plainly

pytestmark = pytest.mark.more

METRICS = """
[metrics]
agree = {kind = "share_of_yes", mechanism = "coin", yes = "agree", no = "disagree", \
levels = [1, 4], description = "Would they agree?"}
"""
ENTRY_POINTS = """
[dither.mechanisms]
coin = dither_toy:Coin

[dither.metrics]
share_of_yes = dither_toy:SHARE_OF_YES
"""
PEOPLE, SHARE = 20_000, 0.7


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with the toy, for this process and for those that it starts."""
    facts = tmp_path / "dither_toy-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: dither-toy\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copy(toy.__file__, tmp_path / "dither_toy.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    paths = filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    known: list[dict[str, Any]] = [vars(MECHANISMS), vars(KINDS)]
    for one in known:
        one.pop("_loaders", None)
    yield
    for one in known:
        one.pop("_loaders", None)


def test_a_kind_that_is_brought_along_goes_all_the_way(
    installed: None, site_of_metrics: Sites, visitor: Visitor
) -> None:
    people = np.arange(PEOPLE)
    values = np.where(people < SHARE * PEOPLE, "agree", "disagree")
    epsilons = np.where(people % 2, 4.0, 1.0)
    with site_of_metrics(METRICS) as site:
        site.report("agree", values, epsilons, "2013-01-01T10:00", 1)

        answer = http_client.get(f"{site.url}/v1/metrics/agree/estimate").json()
        assert answer["reports"] == PEOPLE
        assert 0.6 < answer["lower"] < SHARE < answer["upper"] < 0.8
        scraped = http_client.get(f"{site.url}/metrics").text
        assert f'dither_estimate{{category="",metric="agree"}} {answer["value"]}' in scraped
        assert "agree: Would they agree?" in site.deployment.dither("estimate", "agree").stdout
        assert site.deployment.dither("verify").returncode == 0

        page = visitor.open(site.url)
        card = page.get_by_role("article", name="agree")
        figure = card.locator(".figure .value")
        figure.filter(visible=True).wait_for()
        assert float(figure.inner_text()) == pytest.approx(answer["value"], abs=0.01)
        card.get_by_role("link", name="agree").click()
        page.get_by_text("Would they agree?").wait_for()
        page.get_by_text("What this rests on").click()
        page.get_by_text("share of yes").wait_for()

    # what cannot be done with it is said
    agree: dict[str, Any] = {"name": "agree", "kind": "share_of_yes", "mechanism": "coin"}
    with pytest.raises(ValueError, match="value 'perhaps': expected 'yes' or 'no'"):
        define(**agree, levels=[1]).randomize(np.array(["yes", "perhaps"]), [0, 0])
    with pytest.raises(DefinitionError, match="false for kind 'share_of_yes'"):
        define(**agree, levels=[1], memoized=True)


LATE = """
[metrics]
late = {kind = "mean", range = [0, 1], levels = [0.5, 1], lateness = "1h", minimum_reports = 1}
"""
ADDRESS = "https://reports.example.org"


def test_a_page_of_another_origin_needs_one_script_tag(
    site_of_metrics: Sites, visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (ROOT / "docs" / "javascript-client.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```html\n(<script.*?</script>)\n```", guide, re.DOTALL)
    with served_plainly(StaticFiles(directory=tmp_path, html=True)) as origin:
        monkeypatch.setenv("DITHER_SERVE_CORS_ORIGINS", origin)
        with site_of_metrics(LATE) as site:
            page = "<!doctype html><title>shop</title>" + script.replace(ADDRESS, site.url)
            (tmp_path / "index.html").write_text(page)
            (tmp_path / "favicon.ico").touch()  # a browser asks for it
            visitor.own.add(site.url.removeprefix("http://"))
            other = visitor.open(origin.replace("127.0.0.1", "localhost"))  # which is not listed
            until(lambda: "blocked by CORS policy" in "".join(visitor.errors), other, "refused")
            other.close()
            visitor.errors.clear()
            visitor.open(origin)
            card = visitor.open(site.url).get_by_role("article", name="late", exact=True)
            expect(card.get_by_title(". 1 report.")).to_be_visible()
            assert site.deployment.counts()["accepted:late"] == 1
