"""What depends on attributes of devices, as the dashboard shows it: slices, comparisons, alarms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute
from tests.services.browser.conftest import Site, Sites, Visitor, card, expect, numbers
from tests.support.reports.messages import batch
from tests.support.running.npm_files import npm_file

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.more

MEAN = (
    'kind = "mean", mechanism = "randomized_response", range = [0, 100], levels = [4], pane = "1h"'
)
AXE = "axe-core@4.10.2"  # under the MPL 2.0; fetched for this test alone
AXE_SHA256 = "9ea2d2d6917da998122bdacfd3b473e31ead53f4b87146c716a12edf89158100"
VIOLATIONS = """async (options) => (await axe.run(options ?? {})).violations.map(
  ({id, nodes}) => `${id}: ${nodes.map((node) => node.html).join("; ").slice(0, 300)}`)"""
UNIT = 'kind = "mean", range = [0, 1], levels = [1]'
ARMS = 'where = { variant = "new" }, start = 2026-01-01T00:00:00Z'
START = "start = 2026-01-01T12:00:00Z"
LOOKS = f'every = "1h", {START}, baseline = "12h", false_alarms = "1/365d"'
METRICS = f"""
[attributes]
country = ["DE", "FR", "US"]
variant = ["new", "old"]
version = ["11", "12"]
[metrics]
distance = {{unit = "km", {MEAN}, minimum_reports = 200, by = ["country", "version"]}}
carrier = {{kind = "frequency", mechanism = "rappor", categories = ["AA", "DL"], levels = [4], \
pane = "1h", minimum_reports = 200, by = ["country"]}}
wait = {{unit = "minutes", {MEAN}, lateness = "1m", by = ["country"]}}
pause = {{unit = "minutes", {MEAN}, lateness = "1m", by = ["variant"]}}
colour = {{kind = "frequency", mechanism = "grr", categories = ["red", "blue", "<b>green</b>"], \
levels = [4], pane = "1h", lateness = "1m", by = ["variant"]}}
plain = {{{UNIT}}}
{"".join(f"quiet_{number} = {{{UNIT}}}" + chr(10) for number in range(5))}\
unknown = {{title = "Nobody knows{"W" * 500}", group = "\\u202eOdd", {UNIT}, \
by = ["variant"]}}
[comparisons]
queue = {{metric = "pause", {ARMS}, against = {{ variant = "old" }}, split = "1:1"}}
colours = {{metric = "colour", {ARMS}, against = "rest"}}
empty = {{title = "\\u202eNobody waits", \
metric = "unknown", {ARMS}, against = {{ variant = "old" }}}}
[alarms]
line = {{metric = "wait", {LOOKS}, direction = "up"}}
by_country = {{metric = "wait", by = ["country"], {LOOKS}}}
"""
HOUR = 3_600_000
TIME = 1_767_225_600_000  # 2026-01-01T00:00
MEANS = {"DE": 30, "FR": 80, "US": 55, "GB": 10}
REPORTS = {"DE": 4000, "FR": 2000, "US": 100, "GB": 1000}


@pytest.fixture(scope="module")
def reported(site_of_metrics: Sites) -> Iterator[Site]:
    """A site where FR waits longer from 18:00 on, and people pause longer with the new variant."""
    with site_of_metrics(METRICS) as site:
        defined, rng = site.deployment.metrics, np.random.default_rng(5)
        partitions = site.deployment.partitions
        sent: list[tuple[int, bytes]] = []

        def send(metric: str, values: Any, hour: int, **attributes: str) -> None:
            about = [Attribute(name=name, value=value) for name, value in attributes.items()]
            fields: dict[str, Any] = {"time_ms": TIME + hour * HOUR, "seed": len(sent) + 1}
            one = batch(defined[metric], values.tolist(), 4, attributes=about, **fields)
            sent.append((hour % partitions, one.SerializeToString()))

        def drawn(mean: float, count: int) -> Any:
            return np.clip(rng.normal(mean, 5, count), 0, 100)

        for number, (country, mean) in enumerate(MEANS.items()):
            hour, count = 12 + number % 2 * 24, REPORTS[country]
            send("distance", drawn(mean, count), hour, country=country, version="11")
            carriers = rng.choice([0, 1], count, p=[0.8, 0.2])
            send("carrier", carriers, hour, country=country)
        for hour in range(20):
            send("wait", drawn(20, 400), hour, country="DE")
            send("wait", drawn(60 if hour >= 18 else 20, 400), hour, country="FR")
        for hour in range(8):
            for variant, mean, shares in (
                ("new", 50, [0.6, 0.2, 0.2]),
                ("old", 30, [0.2, 0.6, 0.2]),
            ):
                send("pause", drawn(mean, 200), hour, variant=variant)
                send("colour", rng.choice(3, 200, p=shares), hour, variant=variant)
        for name, hours in (("wait", 20), ("pause", 8), ("colour", 8), ("distance", 37)):
            end = TIME + hours * HOUR + defined[name].lateness_ms
            sent += [(n, heartbeat(defined[name], end)) for n in range(partitions)] * 8
        site.deployment.produce(sent)
        site.deployment.wait_until_counted()
        yield site


def names(slices: Locator) -> list[str]:
    return slices.locator(".slice-row .name").all_inner_texts()


def test_slices_are_sorted_by_value_with_bounds_for_all(reported: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{reported.url}/#metric=distance")
    heading, menu = page.get_by_role("heading", name="Slices"), page.get_by_label("By", exact=True)
    slices = page.locator("section.panel").filter(has=heading)
    expect(menu).to_have_value("country")
    menu.select_option("nothing")
    expect(slices).to_contain_text("Choose an attribute of devices to compare.")
    expect(slices.get_by_role("listitem")).to_have_count(0)
    menu.select_option("country")
    expect(slices.get_by_role("list", name="distance by country")).to_be_visible()
    assert names(slices) == ["FR", "DE", "other", "US"]
    assert "by=country" in page.url
    expect(page.get_by_role("log")).to_contain_text("4 slices by country.")
    expect(slices).to_contain_text("bounds hold for all 5 slices at once, shown or not, with 95")
    expect(slices).to_contain_text("all reports are in slices")
    few = slices.get_by_role("listitem").last
    expect(few).to_have_text(re.compile("UStoo few reports100.reports"))
    expect(few.locator(".point")).to_be_hidden()
    for place, country in enumerate(("FR", "DE", "GB")):
        one = slices.get_by_role("listitem").nth(place)
        lower, upper, reports = numbers(one.locator(".about").inner_text())
        assert lower <= MEANS[country] <= upper
        assert reports == REPORTS[country]

    charts = slices.get_by_role("article")
    expect(charts.locator("h4")).to_have_text(["DE", "FR", "other"])
    expect(charts.locator("canvas")).to_have_count(3)
    expect(slices).to_contain_text("Not drawn: 1.")

    menu.select_option("country,version")
    expect(charts).to_have_count(0)
    expect(slices.get_by_role("list", name="distance by country, version")).to_be_visible()
    assert names(slices) == ["FR · 11", "DE · 11", "other · 11", "US · 11"]
    page.go_back()
    expect(slices.get_by_role("list", name="distance by country", exact=True)).to_be_visible()
    expect(menu).to_have_value("country")

    whole = page.locator(".lede .value").inner_text()
    slices.get_by_role("list").get_by_role("link", name="DE", exact=True).click()
    page.wait_for_url(re.compile("where=country%3DDE"))
    expect(page.locator(".only")).to_contain_text("Only devices with country = DE")
    expect(page.locator(".lede .value")).not_to_have_text(whole)
    lower, upper = numbers(page.locator(".lede .band").inner_text())
    assert lower <= MEANS["DE"] <= upper
    expect(page.locator(".chart")).to_contain_text("grey: all devices")
    page.get_by_role("link", name="Show all").click()
    expect(page.locator(".lede .value")).to_have_text(whole)

    # the category in front is the one that is sliced
    page.goto(f"{reported.url}/#metric=carrier&by=country")
    for category, low, high in (("AA", 60, 100), ("DL", 0, 40)):
        page.get_by_role("radio", name=category).click()
        expect(slices.get_by_role("list", name=f"carrier, {category} by country")).to_be_visible()
        shares = numbers(slices.locator(".number").first.inner_text())
        assert all(low < value < high for value in shares)


def test_a_card_says_what_has_changed_and_is_filtered(reported: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{reported.url}/#window=24h")
    distance = card(page, "distance")
    expect(distance.locator(".delta")).to_contain_text("against the 24 hours before")
    told = distance.locator(".delta").inner_text().replace("24 hours", "")
    assert told[0] in "+\N{MINUS SIGN}"
    amount, lower, upper = numbers(told)
    truth = (80 * 2000 + 10 * 1000) / 3000 - (30 * 4000 + 55 * 100) / 4100
    assert 0 < lower < min(truth, amount) < max(truth, amount) < upper
    promise = distance.get_by_role("button", name="km").get_attribute("title")
    assert "holds with 95" in str(promise)
    assert "for all metrics and periods together, at one look" in str(promise)
    only_changed = page.get_by_role("button", name="Show only what has changed")
    only_changed.click()
    expect(page.locator(".changes")).to_contain_text(re.compile("[1-9] of 12 metrics have changed"))
    expect(card(page, "plain")).to_be_hidden()
    expect(distance).to_be_visible()
    assert page.url.endswith("#window=24h&changed=only")
    with page.expect_request(re.compile("/v1/events")) as stream:
        page.reload()
    assert stream.value.url.count("metric=") > 1, "the first stream has what is on the screen"
    expect(card(page, "plain")).to_be_hidden()
    only_changed.click()
    expect(card(page, "plain")).to_be_visible()
    page.get_by_text("All", exact=True).click()
    expect(card(page, "wait").locator(".delta")).to_have_text(
        "no evidence of a change in the last hour, against the hour before"
    )

    headings = page.locator("summary:visible h2")
    expect(headings).to_have_text(["Odd 1 metric", "Other metrics 11 metrics"])
    assert page.evaluate("document.documentElement.scrollWidth") == 1280, "a long title is cut"
    page.keyboard.press("/")
    page.keyboard.type("nobody")
    expect(headings).to_have_text(["Odd 1 metric"])
    expect(page.get_by_role("article", name="distance")).to_be_hidden()
    expect(page.get_by_role("article", name="Comparison empty")).to_be_visible()
    expect(page.get_by_role("article", name="Comparison queue")).to_be_hidden()
    assert page.url.endswith("#q=nobody")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Nobody knows", level=2)).to_be_visible()


def test_a_chart_is_read_and_zoomed_by_mouse_and_keys(reported: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{reported.url}/#metric=wait")
    chart, tip = page.locator(".chart"), page.locator(".history.large .tip")
    page.locator(".history.large canvas").wait_for()
    box = page.locator(".history.large .u-over").bounding_box()
    assert box is not None
    x, y, width = box["x"], box["y"] + box["height"] / 2, box["width"]
    page.mouse.move(x + 0.97 * width, y)
    expect(tip).to_have_text(re.compile("19:00 . 20:00: .*minutes, between .* and .* · 800"))
    page.mouse.move(x + 0.57 * width, y)
    page.mouse.down()
    page.mouse.move(x + 0.82 * width, y, steps=3)
    page.mouse.up()
    page.wait_for_url(re.compile("from=2026-01-01T11.*&to=2026-01-01T1[67]"))
    steps = page.locator(".history.large")
    expect(steps).to_have_attribute("aria-label", re.compile("History of wait, [56] steps"))
    chart.focus()
    chart.press("Home")
    expect(tip).to_contain_text("11:00")
    expect(page.locator("#readout")).to_contain_text("11:00")
    chart.press("+")
    expect(steps).to_have_attribute("aria-label", re.compile("History of wait, [23] steps"))
    chart.press("-")
    expect(steps).to_have_attribute("aria-label", re.compile("History of wait, 20 steps"))
    assert page.url.endswith("#metric=wait")
    with page.expect_request(re.compile("/v1/events")) as stream:
        page.reload()
    assert stream.value.url.endswith("?top=20&metric=wait"), "nobody sees the others"


def test_a_comparison_says_what_is_decided_and_since_when(reported: Site, visitor: Visitor) -> None:
    page = visitor.open(reported.url)
    expect(page.get_by_role("heading", name="Comparisons")).to_be_visible()
    card = page.get_by_role("article", name="Comparison queue")
    expect(card.get_by_role("heading")).to_have_text("pause: new against old")
    titled = page.get_by_role("article", name="Comparison empty").get_by_role("heading")
    expect(titled).to_have_text("Nobody waits")  # without the character that turns it round
    expect(card.locator(".chip")).to_have_text(re.compile("Decided 1.Jan.2026"))
    expect(card.locator(".figure")).to_have_text(re.compile(r"new is higher by(1[5-9]|2[0-5])"))
    expect(card.locator(".band")).to_contain_text("minutes, at all times")
    expect(card).to_contain_text(re.compile(r"Decided on 1.Jan.2026.*: new was above old, by"))
    expect(card).to_contain_text("If both were equal, a difference as clear as this would")
    expect(card.locator("dl")).to_contain_text(re.compile(r"new[45]\d.*minutes · 1.600 reports"))
    label = card.locator(".history").get_attribute("aria-label")
    assert "both arms are equal at 0" in str(label)

    empty = page.get_by_role("article", name="Comparison empty")
    expect(empty.locator(".chip")).to_have_text("Waiting")
    expect(empty).to_contain_text("No reports yet.")
    expect(empty.locator(".headline")).to_be_hidden()

    colours = page.get_by_role("article", name="Comparison colours")
    menu = colours.get_by_label("Category of colours")
    menu.select_option("red")
    expect(colours.locator(".chip")).to_contain_text("Decided")
    expect(colours.locator(".value")).to_have_text(re.compile(r"^(3\d|4\d)"))
    menu.select_option("<b>green</b>")
    expect(colours.locator(".chip")).to_have_text("Not decided")
    expect(colours).to_contain_text("Not decided: both may be equal")

    card.get_by_role("link").click()
    expect(page.get_by_role("heading", name="pause", level=2)).to_be_visible()
    expect(page.locator(".comparison code")).to_have_text(["queue"])


def test_an_alarm_says_what_moved_and_leads_to_the_chart(reported: Site, visitor: Visitor) -> None:
    page = visitor.open(reported.url)
    flag = card(page, "wait").get_by_role("link", name="alarm")
    expect(flag).to_have_text(re.compile("alarm since 1.Jan.* 1[78]:00"))
    card(page, "wait").get_by_role("link", name="wait", exact=True).click()
    alarms = page.locator("section.alarms:visible")
    expect(alarms.get_by_role("heading", name="What has moved")).to_be_visible()
    expect(alarms.get_by_role("heading", level=4)).to_have_text(["line", "by_country by country"])
    line = alarms.locator("tr", has=page.get_by_role("cell", name="FR", exact=True))
    expect(line).to_have_count(1)
    moved = re.compile(r"1.Jan.* 18:00.*FRpeak \+[34]\d.*from 2\d.* to [56]\d.*minutes")
    expect(line).to_have_text(moved)
    expect(alarms).to_contain_text("the last look raised an alarm")
    expect(alarms).to_contain_text("All alarms together: at most 2.0 false alarms a year expected.")
    expect(page.locator(".history.large canvas")).to_be_visible()
    line.get_by_role("link", name="show").click()
    page.wait_for_url(re.compile("from=2026-01-01T1"))
    expect(page.locator(".history.large")).to_have_attribute(
        "aria-label", re.compile("History of wait, [1-9] step")
    )
    page.goto(f"{reported.url}/#metric=plain")
    expect(page.get_by_role("heading", name="plain", level=2)).to_be_visible()
    expect(page.locator("section.alarms:visible")).to_have_count(0)


def test_axe_finds_nothing_on_any_page(reported: Site, visitor: Visitor) -> None:
    source = npm_file(AXE, AXE_SHA256, "axe.min.js", "install Node.js with npm (Debian: npm)")
    contrast = "color-contrast"  # all that differs in the dark; a width does not change it
    wide, narrow = (1280, 3000), (390, 6000)  # so tall that every card is on screen
    looks: tuple[tuple[Literal["light", "dark"], tuple[int, int], Any], ...] = (
        ("light", wide, None),
        ("dark", wide, {"runOnly": [contrast]}),
        ("light", narrow, {"rules": {contrast: {"enabled": False}}}),
    )
    found: dict[str, Any] = {}
    page = visitor.open(f"{reported.url}/", has_touch=True)
    page.evaluate(source.read_text())
    for fragment in (
        "",
        "#metric=distance&window=24h",
        "#metric=distance&where=country=DE",
        "#metric=wait",
        "#metric=colour",
        "#metric=unknown",
    ):
        page.evaluate("(fragment) => { location.hash = fragment; }", fragment)
        for scheme, (width, height), asked in looks:
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(100)
            expect(page.get_by_text("Reading").locator("visible=true")).to_have_count(0)
            page.evaluate(
                "document.querySelectorAll('main details').forEach((fold) => { fold.open = true; })"
            )
            found[f"{scheme} {width} {fragment}"] = page.evaluate(VIOLATIONS, asked)
            scrolls = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not scrolls, f"{width} {fragment} scrolls sideways"
    page.locator("#connection").click()
    page.get_by_role("button", name="Help").click()
    found["operations and help"] = page.evaluate(VIOLATIONS)
    page = visitor.open(f"{reported.url}/try")
    page.evaluate(source.read_text())
    found["try"] = page.evaluate(VIOLATIONS)
    assert {name: violations for name, violations in found.items() if violations} == {}
