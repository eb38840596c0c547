"""The dashboard in a real browser, over a real deployment."""

import re
from typing import Any

import numpy as np
import pytest

from aggregator.web.http.tokens import hash_token, new_token
from tests.services.browser.conftest import (
    FOLLOWS,
    HOSTILE,
    Site,
    Sites,
    Visitor,
    card,
    expect,
    numbers,
    until,
    value_and_band,
)

REPORTS = 30_000
EARLY, LATE = "2026-01-01T12:00", "2026-01-10T12:00"
EPSILONS = np.array([1.0, 2.0, 4.0])
MEANS = {EARLY: np.array([30.0, 30.0, 30.0]), LATE: np.array([20.0, 50.0, 80.0])}
"""Of `wait` by level: at first alike; then those who want more privacy wait less."""


def wait_of(time: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return values of `wait` and the epsilons of their owners."""
    rng = np.random.default_rng(sum(map(ord, time)))
    level = rng.integers(0, 3, REPORTS)
    return rng.normal(MEANS[time][level], 5.0), EPSILONS[level]


TRUTH = {
    "all": float(np.concatenate([wait_of(EARLY)[0], wait_of(LATE)[0]]).mean()),
    "late": float(wait_of(LATE)[0].mean()),
}
CONNECTED = re.compile("live|idle")
"""The state of a connected page; it is idle if the last report is some time ago."""


@pytest.fixture(scope="module")
def filled(site: Site) -> Site:
    """All metrics with reports, those of `wait` for the first of two days."""
    rng = np.random.default_rng(7)
    epsilons = np.full(8000, 4.0)
    names = rng.choice(["AA", HOSTILE, "DL", "UA"], 8000, p=[0.15, 0.5, 0.25, 0.1])
    site.report("carrier", names, epsilons, EARLY, 1)
    site.report("drift", rng.normal((4.0, -2.0), 1.0, (8000, 2)), epsilons, EARLY, 2)
    pages = np.array(["/cart"] * 6000 + ["/"] * 2000, dtype=object)
    site.report("page", pages, epsilons, EARLY, 8)
    site.report("few", np.full(380, 0.5), np.full(380, 1.0), EARLY, 3)
    site.report("wait", *wait_of(EARLY), EARLY, 4)
    return site


def test_values_move_and_a_strangers_string_is_text(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    expect(page.locator("#connection")).to_have_attribute("data-state", CONNECTED)
    wait, carrier = card(page, "wait"), card(page, "carrier")
    expect(wait.locator(".history canvas")).to_be_visible()
    expect(wait.locator(".figure")).to_contain_text("minutes")
    expect(page.locator(".operations")).to_contain_text("partitions")
    value, lower, upper = value_and_band(wait)
    assert lower <= float(wait_of(EARLY)[0].mean()) <= upper
    assert lower < value < upper
    assert wait.locator(".notice").count() == 0
    expect(carrier.locator(".figure .label")).to_have_text(HOSTILE)
    expect(carrier.get_by_role("radio", checked=True)).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0
    share, lower, upper = value_and_band(carrier)
    assert lower < share < upper
    assert lower < 50 < upper

    # the second day comes, and nobody presses anything
    filled.report("wait", *wait_of(LATE), LATE, 5)
    until(lambda: value_and_band(wait)[0] > value + 5, page, "the value moves")
    expect(wait.get_by_title(re.compile("60.000 reports"))).to_be_visible()

    page.goto(f"{filled.url}/#metric=carrier")
    expect(page.locator(".detail .figure .label")).to_have_text(HOSTILE)
    page.get_by_text("All numbers as a table").click()
    expect(page.get_by_role("rowheader", name=HOSTILE, exact=True)).to_be_visible()
    page.goto(f"{filled.url}/#metric=%3Cb%3Enothing")
    expect(page.locator("main")).to_contain_text("There is no metric “<b>nothing”")
    assert page.title().startswith("<b>nothing ")
    assert page.locator("main img, main b").count() == 0


@pytest.mark.more
def test_values_follow_the_window_and_the_weights(filled: Site, visitor: Visitor) -> None:
    if filled.deployment.counts()["accepted:wait"] == REPORTS:  # the test above did not run
        filled.report("wait", *wait_of(LATE), LATE, 5)
    page, other = visitor.open(filled.url), visitor.open(f"{filled.url}/#metric=wait")
    flag = card(page, "wait").get_by_role("link", name="depends on the level")
    expect(card(page, "wait").get_by_title(re.compile("60.000 reports"))).to_be_visible()

    # its values go with the level: a warning, a remedy, and then the band holds the truth
    flag.click()
    wait = card(page, "wait")
    for shown in (page, other):
        shown.get_by_text("What this rests on").click()
    notice = wait.locator(".notice.warning")
    expect(notice).to_contain_text("The values depend on the privacy level")
    _, lower, _ = value_and_band(wait)
    assert lower > TRUTH["all"], "with optimal weights the less private count more"
    private = wait.get_by_role("listitem").first
    expect(private).to_have_text(re.compile("ε = 1: 33.% of the reports, 12.% of the weight"))
    notice.get_by_role("button", name="Use uniform").click()
    expect(notice).to_have_count(0)
    expect(private).to_have_text(re.compile("ε = 1: 33.% of the reports, 33.% of the weight"))
    until(lambda: value_and_band(wait)[1] <= TRUTH["all"], page, "the weights take effect")
    value, lower, upper = value_and_band(wait)
    assert lower <= TRUTH["all"] <= upper
    assert filled.deployment.store.registry.policies() == {"wait": "uniform"}
    expect(card(other, "wait").get_by_label("Weights of wait")).to_have_value("uniform")

    # the last day alone
    page.get_by_text("24 h", exact=True).click()
    until(lambda: value_and_band(wait)[0] > value + 5, page, "the window takes effect")
    _, lower, upper = value_and_band(wait)
    assert lower <= TRUTH["late"] <= upper
    expect(wait.locator(".about")).to_contain_text("Jan 2026")
    assert "window=24h" in page.url
    page.go_back()
    until(lambda: value_and_band(wait)[0] == value, page, "back is everything again")

    # from there to there
    page.get_by_text("Custom", exact=True).click()
    page.get_by_label("From (UTC)").fill("2026-01-10T00:00")
    page.get_by_label("To (UTC)").fill("2026-01-11T00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    until(lambda: value_and_band(wait)[0] > value + 5, page, "the custom window takes effect")
    _, lower, upper = value_and_band(wait)
    assert lower <= TRUTH["late"] <= upper

    # other weights from the list, seen by everybody
    page.get_by_text("All", exact=True).click()
    wait.get_by_label("Weights of wait").select_option("optimal")
    expect(notice).to_be_visible()
    until(lambda: value_and_band(wait)[1] > TRUTH["all"], page, "optimal weights again")
    expect(card(other, "wait").get_by_label("Weights of wait")).to_have_value("optimal")


@pytest.mark.more
def test_what_is_not_known_yet_says_how_far_it_is(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    few, silent = card(page, "few"), card(page, "silent")
    expect(few).to_contain_text("620 more reports until an estimate is shown")
    expect(few).to_contain_text("Too few reports")
    expect(few.get_by_role("progressbar")).to_be_visible()
    expect(silent).to_contain_text("No reports yet")
    for view in (few, silent):
        expect(view.locator(".headline")).to_be_hidden()
        expect(view.locator(".history")).to_be_hidden()
    expect(silent).to_contain_text("dither produce silent --csv FILE")
    dead = page.locator(".tile", has_text="Dead letters")
    expect(dead).to_contain_text("every report was counted")
    filled.deployment.produce([(0, b"no batch")])
    expect(dead).to_contain_text("1 malformed")
    silent.get_by_role("link", name="the page “Try it”").click()
    page.wait_for_url("**/try#metric=silent")


@pytest.mark.more
def test_the_stream_comes_back_and_says_so(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    state = page.locator("#connection")
    value = card(page, "carrier").locator(".figure .value")
    expect(state).to_have_attribute("data-state", CONNECTED)
    expect(value).to_be_visible()
    filled.stop()
    expect(state).to_have_attribute("data-state", "reconnecting")
    expect(page.locator("#alerts")).to_contain_text("The server does not answer")
    expect(value).to_be_visible()
    filled.start()
    expect(state).to_have_attribute("data-state", CONNECTED)
    expect(page.locator("#alerts")).to_be_empty()
    filled.report("carrier", np.array(["AA"] * 2000), np.full(2000, 4.0), LATE, 6)
    changed = card(page, "carrier").get_by_title(re.compile("10.000 reports"))
    expect(changed).to_be_visible()
    visitor.expect(r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY|ERR_CONNECTION_RESET")


@pytest.mark.more
def test_a_token_is_asked_for_where_needed(filled: Site, visitor: Visitor, site_of: Sites) -> None:
    viewer, ops = new_token(), new_token()
    flags = [
        "access.anonymous=report",
        f"access.tokens.viewer={hash_token(viewer)} read",
        f"access.tokens.ops={hash_token(ops)} read admin",
    ]
    with site_of(filled.deployment, *flags) as guarded:
        page = visitor.open(f"{guarded.url}/#metric=drift")
        drift, dialog = card(page, "drift"), page.get_by_role("dialog", name="Access token")

        def give(token: str) -> None:
            dialog.get_by_label("Token").fill(token)
            dialog.get_by_role("button", name="Use it").click()

        # to look
        expect(dialog).to_contain_text("scope read")
        dialog.get_by_role("button", name="Cancel").click()
        expect(page.locator("#connection")).to_have_text("No access")
        page.get_by_role("button", name="Enter a token").click()
        give(viewer)
        expect(page.locator("#connection")).to_have_text(FOLLOWS)
        expect(drift.locator(".headline")).to_be_visible()
        expect(page.locator(".notice.danger")).to_have_count(0)

        # to change the weights
        page.get_by_text("What this rests on").click()
        choice, change = drift.get_by_role("combobox"), drift.get_by_role("button", name="Change")
        expect(drift.locator(".policy")).to_contain_text("optimal")
        expect(choice).to_be_hidden()
        change.click()
        expect(dialog).to_contain_text("scope admin")
        dialog.get_by_role("button", name="Cancel").click()
        expect(choice).to_be_hidden()
        change.click()
        give("dither_wrong")
        expect(dialog).to_contain_text("does not know the token")
        give(ops)
        choice.select_option("proportional")
        expect(page.get_by_role("log")).to_contain_text("drift now has proportional weights.")
        expect(drift.locator(".notice.danger")).to_have_count(0)
        assert filled.deployment.store.registry.policies()["drift"] == "proportional"
        assert page.evaluate("Object.values(sessionStorage)") == [ops]
        assert page.evaluate("Object.values(localStorage)") == []
        assert page.context.cookies() == []
        visitor.expect("40[13]")


@pytest.mark.more
def test_a_value_is_randomized_in_the_browser_and_counted(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{filled.url}/try#metric=carrier")
    posted: list[bytes] = []
    page.on(
        "request",
        lambda r: posted.append(r.post_data_buffer or b"") if r.method == "POST" else None,
    )
    before = filled.deployment.counts()["accepted:carrier"]
    expect(page.get_by_label("Metric")).to_have_value("carrier")
    names = page.get_by_label("Metric").locator("option").all_text_contents()
    assert sorted(names) == sorted(filled.deployment.metrics)
    assert page.locator("option[disabled]").count() == 0
    page.get_by_label("Value").select_option(HOSTILE)
    page.get_by_text("ε 2", exact=True).click()
    expect(page.locator("main")).to_contain_text("at most e^2 = 7.39 times as likely")
    page.get_by_role("button", name="Randomize and send").click()
    result = page.get_by_role("region", name="What was sent")
    expect(result).to_contain_text("Kafka has the report.")
    expect(result.locator(".kept")).to_contain_text(HOSTILE)
    expect(result.locator(".sent")).to_contain_text("the time of this replay")
    expect(result.locator(".bits i")).to_have_count(4)
    expect(result).to_contain_text("Its history on the dashboard")
    counts = [
        int(numbers(text)[0])
        for text in result.locator(".move .sides .note").all_inner_texts()
        if "reports" in text
    ]
    assert counts == [before, before + 1]
    assert len(posted) == 1
    assert HOSTILE.encode() not in posted[0]
    assert filled.deployment.counts()["accepted:carrier"] == before + 1

    before = filled.deployment.counts()["accepted:drift"]
    page.get_by_label("Metric").select_option("drift")
    page.get_by_label("north").fill("3")
    page.get_by_label("east").fill("-4.5")
    page.get_by_role("button", name="Randomize and send").click()
    expect(result.locator(".kept")).to_contain_text("north 3, east \N{MINUS SIGN}4.5 km/h")
    expect(result.locator(".sent")).to_contain_text("a direction, drawn at random")
    expect(result).to_contain_text("The estimate of north in drift")
    assert len(posted) == 2
    assert filled.deployment.counts()["accepted:drift"] == before + 1
