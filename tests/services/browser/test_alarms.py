"""Alarms on the dashboard: its first page lists them, a metric's page marks them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np
import pytest
from playwright.sync_api import expect

from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute
from tests.services.browser.conftest import Site, Visitor
from tests.support.reports.messages import batch
from tests.support.running.deployment import wait_until

METRICS = """
[attributes]
country = ["DE", "FR"]

[metrics.wait]
unit = "minutes"
kind = "mean"
mechanism = "randomized_response"
range = [0, 100]
levels = [4]
pane = "1h"
lateness = "1m"
by = ["country"]

[metrics.plain]
kind = "mean"
mechanism = "laplace"
range = [0, 1]
levels = [1]

[alarms.queue]
metric = "wait"
every = "1h"
start = 2026-01-01T12:00:00Z
baseline = "12h"
direction = "up"
false_alarms = "1/365d"

[alarms.by_country]
metric = "wait"
by = ["country"]
every = "1h"
start = 2026-01-01T12:00:00Z
baseline = "12h"
false_alarms = "1/365d"
"""
HOUR = 3_600_000
TIME = 1_767_225_600_000  # 2026-01-01T00:00
MOVED, HOURS = 18, 20


@pytest.fixture(scope="module")
def moved(
    site_of_metrics: Callable[..., AbstractContextManager[Site]],
) -> Iterator[Site]:
    """A site where FR waits longer from 18:00 on."""
    with site_of_metrics(METRICS) as site:
        wait, rng = site.deployment.metrics["wait"], np.random.default_rng(5)
        sent: list[tuple[int, bytes]] = []
        for hour in range(HOURS):
            for place, country in enumerate(("DE", "FR")):
                mean = 60 if country == "FR" and hour >= MOVED else 20
                values = np.clip(rng.normal(mean, 5, 400), 0, 100).tolist()
                about = [Attribute(name="country", value=country)]
                one = batch(
                    wait, values, 4, TIME + hour * HOUR, 2 * hour + place + 1, attributes=about
                )
                sent.append((hour % site.deployment.partitions, one.SerializeToString()))
        end = TIME + HOURS * HOUR + wait.lateness_ms
        sent += [(n, heartbeat(wait, end)) for n in range(site.deployment.partitions)] * 8
        site.deployment.produce(sent)
        site.deployment.wait_until_counted()
        yield site


def test_a_reader_of_the_first_page_finds_what_has_moved_and_since_when(
    moved: Site, visitor: Visitor
) -> None:
    page = visitor.open(moved.url)
    alarms = page.locator("#alarms")
    expect(alarms.get_by_role("heading", name="Alarms")).to_be_visible()
    expect(alarms).to_contain_text(re.compile(r"queue wait · raised (once|2 times)"))
    line = alarms.locator("li", has_text="FR").last
    expect(line).to_contain_text(
        re.compile(r"▲ 1.Jan.* 18:00.*FR moved from 2\d.* to [56]\d.*minutes")
    )
    expect(alarms).to_contain_text("the last look raised an alarm")
    expect(alarms).to_contain_text("All together: at most 2.0 false alarms a year expected.")
    alarms.get_by_role("link", name="queue").click()
    expect(page.get_by_role("heading", name="wait", level=2)).to_be_visible()
    own = page.locator("section.panel.alarms:visible")
    expect(own).to_have_count(1)
    expect(own).to_contain_text("by_country")


def test_a_metric_without_alarms_has_no_panel_of_them(moved: Site, visitor: Visitor) -> None:
    page = visitor.open(moved.url + "/#metric=plain")
    expect(page.get_by_role("heading", name="plain", level=2)).to_be_visible()
    expect(page.locator("section.alarms:visible")).to_have_count(0)


def test_the_history_is_marked_where_it_moved(moved: Site, visitor: Visitor) -> None:
    page = visitor.open(moved.url + "/#metric=wait")
    expect(page.locator("section.panel.alarms:visible")).to_contain_text("queue")
    expect(page.locator(".history.large canvas")).to_be_visible()
    warning = page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--warning')"
    )
    red, green, blue = (int(warning.strip()[i : i + 2], 16) for i in (1, 3, 5))
    count = """([red, green, blue]) => {
        const canvas = document.querySelector(".history.large canvas");
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4)
          if (data[i] === red && data[i + 1] === green && data[i + 2] === blue) found += 1;
        return found;
    }"""
    wait_until(lambda: page.evaluate(count, [red, green, blue]) > 100, "a line at an alarm")
