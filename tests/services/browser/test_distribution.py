"""A distribution on the dashboard: its quantiles, its course, and how it was at each hour."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

from tests.services.browser.conftest import Site, Visitor, expect
from tests.support.running import http_client

pytestmark = pytest.mark.more

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

        answer = http_client.get(f"{site.url}/v1/metrics/latency/estimate").json()

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
        map_of_hours.focus()
        for key in ("End", *["ArrowDown"] * 20):
            map_of_hours.press(key)
        expect(page.locator("#heat-readout")).to_contain_text(
            "11:00 \u2013 12:00: 0\u00a0ms to 5\u00a0ms: 2"
        )
        expect(page.locator("#heat-readout")).to_contain_text("20\u202f000 reports")
        colours = page.locator(".heat canvas").evaluate(OPACITIES)
        assert colours[-1] == pytest.approx([255, 0], abs=15), "at 0 ms, at 95 ms, in the last hour"
