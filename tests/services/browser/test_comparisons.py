"""Living comparisons on the dashboard: its first page shows how they stand, and how they stood."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute
from tests.services.browser.conftest import Site, Visitor
from tests.services.browser.test_dashboard import PHONE, sideways
from tests.support.reports.messages import batch
from tests.support.running.deployment import wait_until

METRICS = """
[attributes]
variant = ["new", "old"]

[metrics.wait]
unit = "minutes"
kind = "mean"
mechanism = "randomized_response"
range = [0, 100]
levels = [4]
pane = "1h"
lateness = "1m"
by = ["variant"]

[metrics.colour]
kind = "frequency"
mechanism = "grr"
categories = ["red", "blue", "<b>green</b>"]
levels = [4]
pane = "1h"
lateness = "1m"
by = ["variant"]

[metrics.plain]
kind = "mean"
mechanism = "laplace"
range = [0, 1]
levels = [1]
by = ["variant"]

[comparisons.queue]
metric = "wait"
where = { variant = "new" }
against = { variant = "old" }
start = 2026-01-01T00:00:00Z
split = "1:1"

[comparisons.times]
metric = "wait"
of = "ratio"
where = { variant = "new" }
against = "rest"
start = 2026-01-01T00:00:00Z

[comparisons.colours]
metric = "colour"
where = { variant = "new" }
against = "rest"
start = 2026-01-01T00:00:00Z

[comparisons.empty]
metric = "plain"
where = { variant = "new" }
against = { variant = "old" }
start = 2026-01-01T00:00:00Z
"""
HOUR = 3_600_000
TIME = 1_767_225_600_000  # 2026-01-01T00:00
HOURS = 8


@pytest.fixture(scope="module")
def tested(
    site_of_metrics: Callable[..., AbstractContextManager[Site]],
) -> Iterator[Site]:
    """A site where people wait 20 minutes longer with the new variant; green does not differ."""
    with site_of_metrics(METRICS) as site:
        defined, rng = site.deployment.metrics, np.random.default_rng(5)
        wait, colour = defined["wait"], defined["colour"]
        sent: list[tuple[int, bytes]] = []
        partitions = site.deployment.partitions
        for hour in range(HOURS):
            for place, variant in enumerate(("new", "old")):
                values = np.clip(rng.normal(50 - 20 * place, 5, 200), 0, 100).tolist()
                shares = [0.6, 0.2, 0.2] if variant == "new" else [0.2, 0.6, 0.2]
                colours = rng.choice(3, 200, p=shares).tolist()
                about = [Attribute(name="variant", value=variant)]
                for metric, drawn in ((wait, values), (colour, colours)):
                    seed = 10 * hour + 2 * place + (metric is colour) + 1
                    one = batch(metric, drawn, 4, TIME + hour * HOUR, seed, attributes=about)
                    sent.append((hour % partitions, one.SerializeToString()))
        for metric in (wait, colour):
            end = TIME + HOURS * HOUR + metric.lateness_ms
            sent += [(n, heartbeat(metric, end)) for n in range(partitions)] * 8
        site.deployment.produce(sent)
        site.deployment.wait_until_counted()
        yield site


def drawn(page: Page, card: str, colour: str) -> int:
    """Count the pixels of a chart that have a colour of the style."""
    value = page.evaluate(
        f"getComputedStyle(document.documentElement).getPropertyValue('{colour}')"
    )
    wanted = [int(value.strip()[i : i + 2], 16) for i in (1, 3, 5)]
    count = """([card, [red, green, blue]]) => {
        const canvas = document.querySelector(`[aria-label="Comparison ${card}"] canvas`);
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4)
          if (data[i] === red && data[i + 1] === green && data[i + 2] === blue) found += 1;
        return found;
    }"""
    found: int = page.evaluate(count, [card, wanted])
    return found


def test_a_reader_of_the_first_page_finds_what_is_decided_and_since_when(
    tested: Site, visitor: Visitor
) -> None:
    page = visitor.open(tested.url)
    expect(page.get_by_role("heading", name="Comparisons")).to_be_visible()
    card = page.get_by_role("article", name="Comparison queue")
    expect(card).to_contain_text("wait: new minus old")
    expect(card.locator(".chip")).to_have_text("Decided")
    expect(card.locator(".value")).to_have_text(re.compile(r"\+(1[5-9]|2[0-5])"))
    expect(card).to_contain_text("95\u00a0% at all times")
    expect(card).to_contain_text(re.compile(r"Decided since 1.Jan.2026"))
    expect(card).to_contain_text("If both arms were equal, a difference as clear as this would")
    expect(card.locator("dl")).to_contain_text(re.compile(r"new[45]\d.*minutes · 1.600 reports"))
    wait_until(lambda: drawn(page, "queue", "--estimate") > 100, "the difference over time")
    assert drawn(page, "queue", "--muted") > 20, "the line at 0"
    label = card.locator(".history").get_attribute("aria-label")
    assert label is not None
    assert "both arms are equal at 0" in label

    ratio = page.get_by_role("article", name="Comparison times")
    expect(ratio).to_contain_text("wait: new divided by the rest")
    expect(ratio.locator(".value")).to_have_text(re.compile(r"^1\.[4-9]"))
    empty = page.get_by_role("article", name="Comparison empty")
    expect(empty.locator(".chip")).to_have_text("Waiting")
    expect(empty).to_contain_text("No reports yet.")
    expect(empty.locator(".headline")).to_be_hidden()


def test_each_category_has_its_own_decision(tested: Site, visitor: Visitor) -> None:
    page = visitor.open(tested.url)
    card = page.get_by_role("article", name="Comparison colours")
    menu = card.get_by_label("Category of colours")
    expect(card.locator(".chip")).to_have_text("Decided")
    assert menu.input_value() in {"red", "blue"}
    menu.select_option("red")
    expect(card.locator(".value")).to_have_text(re.compile(r"\+(3\d|4\d)"))
    menu.select_option("<b>green</b>")
    expect(card.locator(".chip")).to_have_text("Not decided")
    expect(card).to_contain_text("Not decided: both arms may be equal")


def test_a_metrics_page_has_its_own_comparisons(tested: Site, visitor: Visitor) -> None:
    page = visitor.open(tested.url)
    page.get_by_role("article", name="Comparison queue").get_by_role("link").click()
    expect(page.get_by_role("heading", name="wait", level=2)).to_be_visible()
    names = page.locator(".comparison h2")
    expect(names).to_have_text(["queue", "times"])
    expect(page.locator("h2").first).to_have_text("wait")
    page.goto(f"{tested.url}/#metric=colour")
    expect(names).to_have_text(["colours"])


def test_comparisons_fit_on_a_phone(tested: Site, visitor: Visitor) -> None:
    page = visitor.open(tested.url, width=PHONE, height=780)
    expect(page.get_by_role("article", name="Comparison queue")).to_be_visible()
    assert sideways(page) <= 0
