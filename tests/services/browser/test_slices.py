"""A metric by attributes of devices, as its page shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from producers.wire.reports_pb2 import Attribute
from tests.services.browser.conftest import Site, Visitor
from tests.services.browser.test_dashboard import PHONE, numbers, sideways
from tests.support.reports.messages import batch

METRICS = """
[attributes]
country = ["DE", "FR", "US"]
version = ["11", "12"]

[metrics.wait]
unit = "minutes"
kind = "mean"
mechanism = "randomized_response"
range = [0, 100]
levels = [4]
pane = "1h"
minimum_reports = 200
by = ["country", "version"]

[metrics.carrier]
kind = "frequency"
mechanism = "rappor"
categories = ["AA", "DL"]
levels = [4]
pane = "1h"
minimum_reports = 200
by = ["country"]

[metrics.plain]
kind = "mean"
mechanism = "laplace"
range = [0, 1]
levels = [1]
"""
HOUR = 3_600_000
TIME = 1_767_268_800_000  # 2026-01-01T12:00
MEANS = {"DE": 30, "FR": 80, "US": 55, "GB": 10}
REPORTS = {"DE": 4000, "FR": 2000, "US": 100, "GB": 1000}
HERE = "/#metric=wait"


@pytest.fixture(scope="module")
def sliced(
    site_of_metrics: Callable[..., AbstractContextManager[Site]],
) -> Iterator[Site]:
    """A site where devices of four countries have reported, and of one too few."""
    with site_of_metrics(METRICS) as site:
        defined = site.deployment.metrics
        rng = np.random.default_rng(11)
        sent: list[tuple[int, bytes]] = []
        for seed, country in enumerate(MEANS):
            attributes = [Attribute(name="country", value=country)]
            waits = np.clip(rng.normal(MEANS[country], 5.0, REPORTS[country]), 0, 100).tolist()
            versions = [*attributes, Attribute(name="version", value="11")]
            carriers = rng.choice([0, 1], REPORTS[country], p=[0.8, 0.2]).tolist()
            fields: dict[str, Any] = {"epsilon": 4.0, "time_ms": TIME + seed % 2 * 24 * HOUR}
            one = batch(defined["wait"], waits, seed=seed, attributes=versions, **fields)
            other = batch(
                defined["carrier"], carriers, seed=100 + seed, attributes=attributes, **fields
            )
            sent += [(0, one.SerializeToString()), (0, other.SerializeToString())]
        site.deployment.produce(sent)
        site.deployment.wait_until_counted()
        yield site


def panel(view: Page) -> Locator:
    return view.locator("section.panel").filter(has=view.get_by_role("heading", name="Slices"))


def names(slices: Locator) -> list[str]:
    return slices.locator(".slice-row .name").all_inner_texts()


def test_slices_are_sorted_by_value_with_bounds_that_hold_at_once(
    sliced: Site, visitor: Visitor
) -> None:
    page = visitor.open(sliced.url + HERE)
    slices, menu = panel(page), page.get_by_label("By", exact=True)
    expect(slices).to_contain_text("Choose an attribute of devices to compare.")
    expect(slices.get_by_role("listitem")).to_have_count(0)
    menu.select_option("country")
    expect(slices.get_by_role("list", name="wait by country")).to_be_visible()
    assert names(slices) == ["FR", "DE", "other", "US"]
    assert "by=country" in page.url
    expect(page.get_by_role("status")).to_have_text("4 slices by country.")
    expect(slices).to_contain_text("bounds hold for all 5 at once with 95")
    expect(slices).to_contain_text("all reports are in slices")
    few = slices.get_by_role("listitem").last
    expect(few).to_have_text(re.compile("UStoo few reports100.reports"))
    expect(few.locator(".point")).to_be_hidden()
    for place, country in enumerate(("FR", "DE", "GB")):
        row = slices.get_by_role("listitem").nth(place)
        text = row.locator(".about").inner_text()
        lower, upper, reports = numbers(text)
        assert lower <= MEANS[country] <= upper
        assert reports == REPORTS[country]
        places = row.locator(".whisker, .point").evaluate_all(
            "all => all.flatMap((one) => ['x1', 'cx', 'x2'].map((at) => one.getAttribute(at)))"
        )
        left, right, _, _, _, _, middle = (float(at.rstrip("%")) for at in places if at)
        assert left < middle < right

    menu.select_option("country,version")
    expect(slices.get_by_role("list", name="wait by country, version")).to_be_visible()
    assert names(slices) == ["FR · 11", "DE · 11", "other · 11", "US · 11"]
    expect(slices).to_contain_text("bounds hold for all 20 at once")
    page.go_back()
    expect(slices.get_by_role("list", name="wait by country", exact=True)).to_be_visible()
    expect(menu).to_have_value("country")
    page.get_by_text("24 h", exact=True).click()
    expect(slices).to_contain_text("2 Jan 2026".replace(" ", "\u00a0"))
    expect(slices.get_by_role("listitem")).to_have_count(2)
    page.locator(".back").click()
    expect(page.locator(".card")).to_have_count(3)
    assert "by=" not in page.url


def test_the_category_in_front_is_the_one_that_is_sliced(sliced: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{sliced.url}/#metric=carrier&by=country")
    slices = panel(page)
    expect(slices.get_by_role("list", name="carrier, AA by country")).to_be_visible()
    assert all(value > 60 for value in numbers(slices.locator(".number").first.inner_text()))
    page.get_by_role("radio", name="DL").click()
    expect(slices.get_by_role("list", name="carrier, DL by country")).to_be_visible()
    assert all(value < 40 for value in numbers(slices.locator(".number").first.inner_text()))


def test_a_metric_without_attributes_has_no_menu(sliced: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{sliced.url}/#metric=plain&by=country")
    expect(page.get_by_role("heading", name="plain")).to_be_visible()
    expect(page.get_by_label("By", exact=True)).to_have_count(0)


def test_slices_work_by_keyboard_on_a_phone_and_in_both_colours(
    sliced: Site, visitor: Visitor
) -> None:
    page = visitor.open(sliced.url + HERE, width=PHONE, height=780)
    slices, menu = panel(page), page.get_by_label("By", exact=True)
    expect(menu).to_be_visible()
    for _ in range(40):
        page.keyboard.press("Tab")
        if menu.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("c")
    expect(slices.get_by_role("listitem")).to_have_count(4)
    expect(menu).to_be_focused()
    assert sideways(page) <= 0
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        colours = slices.locator(".number").evaluate_all(
            "all => all.map((one) => getComputedStyle(one).color)"
        )
        assert len({*colours[:3]}) == 1
        assert colours[3] != colours[0], "too few reports: grey"
