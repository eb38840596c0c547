"""A distribution over HTTP, in Prometheus and on the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.services.browser.conftest import Site, Visitor
from tests.support.running import http_client

METRICS = """
[metrics.latency]
description = "Time to first byte"
kind = "distribution"
range = [0, 100]
bins = 20
unit = "ms"
levels = [2, 4]
pane = "1h"
lateness = "1h"
"""
PEOPLE = 20_000
OPACITIES = """(canvas) => {
    const {width, height} = canvas;
    const {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
    const of = (column, row) => data[4 * (row * width + column) + 3];
    return Array.from({length: width}, (_, column) => [of(column, height - 1), of(column, 0)]);
}"""


def test_a_distribution_is_shown_by_its_quantiles(
    site_of_metrics: Callable[..., AbstractContextManager[Site]], visitor: Visitor
) -> None:
    values = np.linspace(0, 80, PEOPLE)
    epsilons = np.where(np.arange(PEOPLE) % 2, 4.0, 2.0)
    with site_of_metrics(METRICS) as site:
        site.report("latency", values, epsilons, "2013-01-01T10:00", 1)

        definition = http_client.get(f"{site.url}/v1/metrics/latency").json()
        assert (definition["shape"], definition["bins"]) == ("distribution", 20)
        assert definition["quantiles"] == [0.5, 0.9, 0.99]
        assert len(definition["constants"]["depths"]) == 2
        path = f"{site.url}/v1/metrics/latency/estimate"
        answer = http_client.get(path).json()
        assert answer["quantiles"] == ["0.5", "0.9", "0.99"]
        assert answer["lower"][0] < 40 <= answer["upper"][0]
        assert len(answer["distribution"]["edges"]) == 21
        assert answer["distribution"]["value"][8] == pytest.approx(0.5, abs=0.1)
        (one,) = http_client.get(path, params={"quantile": 0.25}).json()["lower"]
        assert one < 20
        assert http_client.get(path, params={"quantile": 2}).status_code == 400
        points = http_client.get(f"{site.url}/v1/metrics/latency/series?step=1h").json()
        assert points["quantiles"] == answer["quantiles"]
        assert [point["value"] for point in points["points"]] == [answer["value"]]
        assert "shares" not in points["points"][0]

        scraped = http_client.get(f"{site.url}/metrics").text
        for name, numbers in (("", "value"), ("_lower", "lower"), ("_upper", "upper")):
            line = f'dither_quantile{name}{{metric="latency",quantile="0.9"}} {answer[numbers][1]}'
            assert line in scraped

        page = visitor.open(site.url)
        card = page.get_by_role("article", name="latency")
        card.get_by_role("radio", name="p99").wait_for()
        named = [each.get_attribute("aria-label") for each in card.get_by_role("radio").all()]
        assert [str(name).split(":")[0] for name in named] == ["median", "p90", "p99"]
        card.get_by_role("link", name="latency").click()
        page.get_by_role("heading", name="Quantiles").wait_for()
        page.get_by_text("20", exact=True).first.wait_for()

        heading = page.get_by_role("heading", name="Distribution")
        panel = page.locator("section.panel", has=heading)
        chart = panel.get_by_role("group")
        chart.wait_for()
        expect(panel).to_contain_text("the band holds for all values at once")
        expect(panel).to_contain_text("95\u00a0%")
        chart.focus()
        chart.press("Home")
        expect(panel.locator("#cdf-readout")).to_have_text(
            "Below 0\u00a0ms: 0.0\u00a0%, 0.0\u00a0% to 0.0\u00a0%"
        )
        for _ in range(8):
            chart.press("ArrowRight")
        edges, shown = answer["distribution"]["edges"], answer["distribution"]["value"][8]
        assert edges[8] == 40
        expect(panel.locator("#cdf-readout")).to_contain_text(
            f"Below 40\u00a0ms: {100 * shown:.0f}\u00a0%"
        )
        assert panel.locator(".cdf-point").count() == 3
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
        expect(panel.locator("#cdf-readout")).to_contain_text("Below 100\u00a0ms: 100\u00a0%")

        map_of_hours = page.get_by_role("group", name="how values are spread")
        assert not map_of_hours.is_visible(), "one hour is no course of time"
        site.report("latency", values / 4, epsilons, "2013-01-01T11:00", 2)
        map_of_hours.wait_for()
        drawn = http_client.get(f"{site.url}/v1/metrics/latency/series?step=1h&bins=4").json()
        assert drawn["edges"] == [0, 25, 50, 75, 100]
        early, late = (point["shares"] for point in drawn["points"])
        assert early == pytest.approx([0.31, 0.31, 0.31, 0.06], abs=0.1)
        assert late == pytest.approx([1, 0, 0, 0], abs=0.1)
        assert sum(late) == pytest.approx(1)
        asked = {
            "metric": "latency",
            "from": "2013-01-01T10:00Z",
            "to": "2013-01-01T11:00Z",
            "against-from": "2013-01-01T11:00Z",
            "against-to": "2013-01-01T12:00Z",
        }
        compared = http_client.get(f"{site.url}/v1/compare", params={**asked, "below": 20}).json()
        (found,) = compared["comparisons"]
        assert (found["shares"], found["unit"], found["law"]) == (["below 20"], "", "joint")
        assert found["lower"][0] <= 0.25 - 1 <= found["upper"][0] < 0
        assert found["a"]["value"] == pytest.approx([0.25], abs=0.1)
        compared = http_client.get(
            f"{site.url}/v1/compare", params={**asked, "quantile": 0.5}
        ).json()
        (found,) = compared["comparisons"]
        assert (found["quantiles"], found["unit"], found["decided"]) == (["0.5"], "ms", True)
        assert found["lower"][0] <= 40 - 10 <= found["upper"][0]
        refused = http_client.get(f"{site.url}/v1/compare", params={**asked, "below": 21})
        assert refused.status_code == 400
        assert "such as 20 or 25" in refused.text
        map_of_hours.focus()
        for key in ("End", *["ArrowDown"] * 20):
            map_of_hours.press(key)
        expect(page.locator("#heat-readout")).to_contain_text(
            "11:00 \u2013 12:00: 0\u00a0ms to 5\u00a0ms: 2"
        )
        expect(page.locator("#heat-readout")).to_contain_text("20\u202f000 reports")
        colours = page.locator(".heat canvas").evaluate(OPACITIES)
        assert colours[-1] == pytest.approx([255, 0], abs=15), "at 0 ms, at 95 ms, in the last hour"
