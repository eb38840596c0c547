"""A distribution by its quantiles and hours, and strings that nobody listed, on their pages."""

import re

import numpy as np
import pytest

from tests.services.browser.conftest import (
    Site,
    Visitor,
    card,
    expect,
    numbers,
    until,
    value_and_band,
)
from tests.support.reports.messages import batch
from tests.support.running import http_client

pytestmark = pytest.mark.more

METRICS = """
[metrics]
latency = {description = "Time to first byte", kind = "distribution", range = [0, 100], \
bins = 20, unit = "ms", levels = [2, 4], pane = "1h", lateness = "1h"}
tail = {description = "Codes of aircraft", kind = "frequency", categories = "open", \
discover = true, preset = "bytes", levels = [4], pane = "1h", options = {last = 32, rows = 4}, \
deny = {presets = ["email"]}}
crash = {kind = "frequency", levels = [4], pane = "1h", categories = {used_x = ["no", "yes"], \
crashed = ["no", "yes"]}}
trip = {kind = "frequency", mechanism = "grr", levels = [16], pane = "1h", categories = \
{late = ["no", "yes"], far = ["no", "yes"], season = ["dry", "wet", "cold"]}}
page = {kind = "frequency", mechanism = "count_sketch", categories = "open", levels = [4], \
pane = "1h"}
checkout = {kind = "frequency", mechanism = "grr", categories = ["none", "visit", "cart", "paid"], \
shares = ["cart.. / visit..", "paid / cart.."], levels = [2, 4], pane = "1h"}
"""
SHARES = {"JFK": 0.5, "<b>": 0.3, "\u202e": 0.2}
PEOPLE = 20_000


def test_a_distribution_is_shown_by_its_quantiles(site: Site, visitor: Visitor) -> None:
    values = np.linspace(0, 80, PEOPLE)
    epsilons = np.where(np.arange(PEOPLE) % 2, 4.0, 2.0)
    site.report("latency", values, epsilons, "2013-01-01T10:00", 1)

    answer = http_client.get(f"{site.url}/v1/metrics/latency/estimate").json()

    page = visitor.open(site.url)
    latency = page.get_by_role("article", name="latency")
    latency.get_by_role("radio", name="p99").wait_for()
    named = [each.get_attribute("aria-label") for each in latency.get_by_role("radio").all()]
    assert [str(name).split(":")[0] for name in named] == ["median", "p90", "p99"]
    latency.get_by_role("link", name="latency").click()
    page.get_by_role("heading", name="Quantiles").wait_for()
    page.get_by_text("What this rests on").click()
    page.get_by_text("20", exact=True).first.wait_for()
    page.get_by_text("p75", exact=True).click()
    page.get_by_role("radio", name=re.compile("p75: [56]"), checked=True).wait_for()

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

    site.report("latency", values, epsilons, "2013-02-01T10:00", 3)
    february = page.locator(".months").get_by_role("link", name="Feb")
    expect(february).to_have_attribute("href", re.compile("label=0.75"))
    page.get_by_text("p90", exact=True).first.click()
    expect(february).to_have_attribute("href", re.compile("label=0.9\\b"))


def test_a_funnel_is_on_the_card_and_leads_to_steps_history(site: Site, visitor: Visitor) -> None:
    values = np.repeat([0, 1, 2, 3], PEOPLE // 4)
    epsilons = np.where(np.arange(values.size) % 2, 4.0, 2.0)
    site.report("checkout", values, epsilons, "2013-01-01T10:00", 1)
    page = visitor.open(site.url)
    checkout = card(page, "checkout")
    expect(checkout.get_by_role("radio")).to_have_count(2)
    expect(checkout.locator(".figure .label")).to_have_text("visit \u2192 cart")
    value, lower, upper = value_and_band(checkout)
    assert lower < 100 * 2 / 3 < upper
    checkout.get_by_role("link", name="checkout").click()
    page.get_by_role("heading", name="Funnel").wait_for()
    page.get_by_role("radio", name="cart \u2192 paid").click()
    expect(page.locator(".lede .label")).to_have_text("cart \u2192 paid")
    value, lower, upper = value_and_band(page.locator(".lede"))
    assert lower < 50 < upper
    expect(page.locator("#readout")).to_contain_text(f"{value:.1f}")
    page.get_by_role("radio", name="visit:").click()
    expect(page.locator("#readout")).to_contain_text("25.")


def test_two_axes_are_a_table_with_margins_or_shares_of_rows(site: Site, visitor: Visitor) -> None:
    """The numbers of the table are those of the answers; another window has other ones."""
    cells = np.repeat([0, 1, 2, 3], [9000, 1000, 6000, 4000])
    site.report("crash", cells, np.full(cells.size, 4.0), "2013-01-01T10:00", 1)
    page = visitor.open(f"{site.url}/#metric=crash")
    table = page.get_by_role("region", name="used_x and crashed")

    def shown(row: str) -> list[list[float]]:
        cells = table.get_by_role("row", name=re.compile(f"^{row} ")).get_by_role("cell")
        return [numbers(text.replace("%\n", "% ")) for text in cells.all_inner_texts()]

    def answered(*names: str) -> list[list[float]]:
        asked = {"category": [*names]} if names else {}
        answer = http_client.get(f"{site.url}/v1/metrics/crash/estimate", params=asked).json()
        columns = (answer["value"], answer["lower"], answer["upper"])
        return [[100 * x for x in triple] for triple in zip(*columns, strict=True)]

    expect(table.get_by_role("row")).to_have_count(4)
    until(lambda: len(shown("yes")[-1]) == 3, page, "the margins are there")
    no_no, no_yes, yes_no, yes_yes = answered()
    margins = answered("used_x", "crashed")
    for row, expected in (
        ("no", [no_no, no_yes, margins[0]]),
        ("yes", [yes_no, yes_yes, margins[1]]),
        ("All", margins[2:]),
    ):
        assert shown(row)[: len(expected)] == [pytest.approx(x, abs=0.02) for x in expected]
    page.get_by_label("Shares").select_option("Of each row")
    until(lambda: len(shown("yes")) == 2 and bool(shown("yes")[1]), page, "shares of rows")
    shares = answered("crashed / used_x")[1::2]
    assert shown("yes") == [pytest.approx(x, abs=0.2) for x in shares]
    assert shares[1][1] < 40 < shares[1][2]


def test_of_three_axes_any_two_are_a_table(site: Site, visitor: Visitor) -> None:
    """All numbers are one question; a share of each row is over the third axis, too."""
    cells = np.repeat([0, 4, 6, 11], [4000, 3000, 2000, 1000])
    site.report("trip", cells, np.full(cells.size, 16.0), "2013-01-01T10:00", 1)
    page = visitor.open(f"{site.url}/#metric=trip")
    page.get_by_label("Axes").select_option("late and season")
    table = page.get_by_role("region", name="late and season")
    no = table.get_by_role("row", name="no", exact=False).nth(0)
    expect(no).to_have_text(re.compile("40.*30.*0.*70", re.DOTALL))
    expect(page.locator(".two-way .note")).to_contain_text("for all numbers together")
    page.get_by_label("Shares").select_option("Of each row")
    expect(no).to_have_text(re.compile("57.*42.*0", re.DOTALL))
    expect(page.locator(".two-way .note")).to_contain_text("for all cells together")


def close_before(site: Site, time: str, seeds: range) -> None:
    """Close the panes of `tail` before a time: ten batches in each partition do."""
    time_ms = int(np.datetime64(time, "ms").astype(np.int64))
    batches = [batch(site.deployment.metrics["tail"], ["JFK"], 4, time_ms, n) for n in seeds]
    site.deployment.produce([(n % 6, b.SerializeToString()) for n, b in enumerate(batches)])
    site.deployment.wait_until_counted()


def test_strings_are_found_when_asked_for_and_may_be_watched(site: Site, visitor: Visitor) -> None:
    rng = np.random.default_rng(5)
    held = rng.choice([*SHARES], 20_000, p=[*SHARES.values()])
    site.report("tail", held, np.full(held.size, 4.0), "2013-01-01T10:00", 1)
    page = visitor.open(f"{site.url}/#metric=page")
    page.get_by_role("heading", name="page", exact=True).wait_for()
    assert page.get_by_role("button", name="Find strings").count() == 0

    page = visitor.open(f"{site.url}/#metric=tail")
    panel = page.locator(".discoveries")
    not_closed = panel.get_by_text("only panes that every partition has closed")
    expect(not_closed.or_(panel.get_by_text("3 found among"))).to_be_visible()

    close_before(site, "2013-01-02T10:00", range(60))
    panel.get_by_role("button", name="Search again").click()
    rows = panel.locator("tbody tr")
    expect(rows).to_have_count(3, timeout=60_000)
    named = [row.locator("th").inner_text() for row in rows.all()]
    assert named == ["JFK", "<b>", "\\u{202e}"]
    assert panel.locator("tbody b").count() == 0, "a stranger's string is no markup"
    expect(panel).to_contain_text("3 found among")
    expect(panel).to_contain_text("95\u00a0%, each of these is held by somebody")
    expect(panel).to_contain_text("are found nearly always")

    rows.nth(0).get_by_role("button", name="JFK").click()
    expect(page.locator(".lede .label")).to_have_text("JFK")
    assert page.url.endswith("#metric=tail&label=JFK")
    page.get_by_role("radio", name="JFK", checked=True).wait_for()

    site.report("tail", np.full(20_000, "SFO"), np.full(20_000, 4.0), "2013-01-12T10:00", 2)
    close_before(site, "2013-01-14T10:00", range(60, 120))
    page = visitor.open(site.url)
    found = card(page, "tail").locator(".found")
    expect(found).to_contain_text("3strings found")  # a look starts no search
    page.goto(f"{site.url}/#metric=tail")
    panel.page.close()
    panel = page.locator(".discoveries")
    panel.get_by_role("button", name="Search again").click()
    expect(panel.locator(".news")).to_contain_text("1 new since")
    expect(panel.locator("tr", has=page.locator(".new"))).to_contain_text("SFO")

    page = visitor.open(f"{site.url}/try#metric=tail")
    sent: list[bytes] = []
    page.on("request", lambda r: sent.append(r.url.encode() + (r.post_data_buffer or b"")))
    for text, denied in (("secret é", False), ("ann@example.org", True)):
        page.get_by_label("Value").fill(text)
        page.get_by_role("button", name="Randomize and send").click()
        result = page.get_by_role("region", name="What was sent")
        expect(result.locator(".kept")).to_contain_text(text)
        expect(result).to_contain_text("Kafka has the report.")
        expect(result).to_contain_text("does not ask how frequent your string is")
        assert ("denies it" in result.locator(".kept").inner_text()) == denied
    assert len([each for each in sent if b"/v1/reports" in each]) == 2
    assert not [each for each in sent if b"secret" in each or b"ann" in each]
