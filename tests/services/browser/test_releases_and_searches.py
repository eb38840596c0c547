"""Metrics that are collected in trust, and minimum and maximum, as the dashboard shows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aggregator.features.rounds.plan import SearchPlan
from estimators import SearchMetric
from estimators.exact.randomness import SeededBits
from producers.wire.batch import encode_batch
from tests.services.browser.conftest import Site, Visitor, card, expect, until, value_and_band
from tests.support.events import coordinating
from tests.support.reports import searching
from tests.support.reports.trusted import definitions
from tests.support.running.deployment import Deployment

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.more

METRICS = definitions([0.1, 1, 4], [1], pane="1h") + searching.METRICS.replace("[metrics]", "")
FLAGS = ("aggregate.idle=300ms", "publish.interval=200ms", "publish.lease=2s")
HOURS = [f"2026-01-01T{hour:02}:10" for hour in range(3)]
BARS = ".search-interval:not([hidden])"
LEVELS = np.repeat([0.1, 1.0, 4.0], [600, 800, 600])
"""So many that one run in ten million draws a noise that is larger than the bounds."""


def answer(deployment: Deployment, number: int) -> None:
    """Let as many devices answer the open round as close it: half of them hold 45."""
    metric = SearchMetric.require(deployment.metrics["longest"])
    sums = deployment.reader().sums
    asked = SearchPlan(sums, metric).open_round(deployment.store.registry.rounds())
    assert asked is not None
    assert asked.number == number
    assert asked.threshold is not None
    values, level = searching.VALUES[:200], [1] * 200
    answers = metric.search.answer(values, level, asked.threshold, SeededBits(number))
    deployment.produce([(0, encode_batch(metric, level, answers, 0, number=number))])


def headline(view: Locator) -> tuple[str, str]:
    """Read what is in front of a search, and what is said of it."""
    figure = " ".join(view.locator(".figure").inner_text().split())
    return figure, view.locator(".limits").inner_text().strip()


def intervals(search: Locator) -> list[tuple[float, float]]:
    """Return the rows' intervals, in minutes, from where they are drawn."""
    found = search.locator(BARS).evaluate_all(
        "bars => bars.map(({style}) => [style.left, style.width.match(/([\\d.]+)%/)[1]])"
    )
    places = [(0.64 * float(left.rstrip("%")), 0.64 * float(width)) for left, width in found]
    return [(round(low, 3), round(low + width, 3)) for low, width in places]


def report_wages(site: Site, hour: int, wage: float) -> None:
    """Let people report what they earned in an hour; it is released soon after."""
    site.report("wage", np.full(LEVELS.size, wage), LEVELS, HOURS[hour], 10 + hour)


def test_of_a_trusted_metric_releases_alone_are_shown(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site.url)
    wage = card(page, "wage")
    expect(wage).to_contain_text("No release yet")
    expect(wage.locator(".chip").first).to_have_text("Trusted")
    expect(wage.locator(".headline")).to_be_hidden()
    expect(page.locator("#promise")).to_contain_text("except for metrics marked Trusted")

    report_wages(site, 0, 20.0)
    expect(wage.locator(".headline")).to_be_visible()
    value, lower, upper = value_and_band(wage)
    assert lower < 20 < upper
    assert (value, upper - lower) != (20.0, 0.0), "it is not the sum that is shown"
    expect(wage.get_by_title(re.compile("2026 00:00 \N{EN DASH} 01:00"))).to_be_visible()
    expect(wage.locator(".history canvas")).to_be_visible()

    # a second pane, and nobody presses anything; what was released stays in the history
    report_wages(site, 1, 60.0)
    until(lambda: value_and_band(wage)[1] < 60 < value_and_band(wage)[2], page, "it moves")
    expect(wage.locator(".history")).to_have_attribute("aria-label", re.compile("2 steps"))
    page.locator("label[for=window-1h]").click()
    expect(wage.locator(".delta")).to_have_text(
        re.compile(r"\+[34]\d.* against the release an hour before \(\+[23]\d.* to \+[45]\d")
    )
    page.locator("label[for=window-all]").click()

    # whoever looks again sees the same numbers
    shown = value_and_band(wage)
    page.reload()
    expect(wage.locator(".headline")).to_be_visible()
    until(lambda: value_and_band(wage) == shown, page, "the release is repeated")


OWN = """
async (own) => {
  const { fingerprintOf } = await import("/static/dither.js");
  const definition = await (await fetch("/v1/metrics/longest")).json();
  const turn = { fingerprint: fingerprintOf(definition), own, answered: 0 };
  localStorage.setItem("dither:longest", JSON.stringify(turn));
}
"""


def answer_in_a_browser(site: Site, visitor: Visitor) -> None:
    """Answer the second round at `/try`, where it is the browser's own, and only then."""
    page = visitor.open(f"{site.url}/try#metric=longest")
    expect(page.locator(".description")).to_contain_text("It is asked in 4 rounds")
    send, result = page.get_by_role("button", name="Randomize and send"), page.locator(".result")
    page.evaluate(OWN, 3)
    send.click()
    expect(result).to_contain_text("Nothing was sent")
    page.evaluate(OWN, 2)
    send.click()
    expect(result).to_contain_text("Kafka has the report.")
    expect(result.locator(".sent")).to_contain_text(re.compile(r"(yes|no)\s+Round 2 of 4"))
    expect(result).to_contain_text("is it at least 48 minutes?")
    send.click()
    expect(result).to_contain_text("Nothing was sent")


def test_a_search_converges_while_one_watches(site: Site, visitor: Visitor) -> None:
    deployment = site.deployment
    page = visitor.open(site.url)
    other = visitor.open(f"{site.url}/#metric=longest")
    longest = card(page, "longest")
    expect(longest).to_contain_text("No round is open yet")
    expect(longest).to_contain_text("dither coordinate")
    with coordinating(deployment):
        search = longest.locator(".search")
        expect(search).to_contain_text("Round 1 of 4: is it at least 32")
        expect(longest.locator(".chip")).to_have_text("First round")
        expect(longest).to_contain_text("The first round is open")
        answer(deployment, 1)
        expect(search).to_contain_text("Round 2 of 4: is it at least 48")
        expect(longest.locator(".chip")).to_have_text("Searching")
        assert intervals(search) == [(0, 64), (32, 64)]
        assert headline(longest) == (
            "at least 32 minutes",
            "99.9999\N{NO-BREAK SPACE}% in all rounds at once",
        )
        expect(search).to_contain_text("Somebody's value is at least 32\N{NO-BREAK SPACE}minutes")
        expect(search).to_contain_text("99.9999\N{NO-BREAK SPACE}%, in all rounds at once")
        answer_in_a_browser(site, visitor)
        for number in (2, 3, 4):
            answer(deployment, number)
            expect(search.locator(BARS)).to_have_count(number + 1)
        expect(search).to_contain_text("All 4 rounds are decided.")
        expect(longest.locator(".chip")).to_have_text("Decided")
        assert intervals(search)[-1] == searching.FOUND
        certain = headline(longest)[0]
        assert certain == f"at least {searching.FOUND[0]:g} minutes", "not what rounds have left"
        expect(search).to_contain_text("It is not a confidence interval")
        assert headline(other.locator(".detail"))[0] == certain
        expect(other.locator(".detail .search")).to_contain_text("All 4 rounds are decided.")
        assert intervals(other.locator(".detail .search")) == intervals(search)
        expect(other.locator(".chart")).to_be_hidden()
        expect(other.locator(".detail .policy")).to_be_hidden()
