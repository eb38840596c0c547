"""The dashboard in a real browser, over a real deployment."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from aggregator.web.http.access import hashed, new_token
from tests.services.browser.conftest import HOSTILE, Site, Visitor
from tests.support.paths import ROOT

REPORTS = 30_000
EARLY, LATE = "2026-01-01T12:00", "2026-01-10T12:00"
EPSILONS = np.array([1.0, 2.0, 4.0])
MEANS = {EARLY: np.array([30.0, 30.0, 30.0]), LATE: np.array([20.0, 50.0, 80.0])}
"""Of `wait` by level: at first alike; then those who want more privacy wait less."""
PHONE = 360


def wait_of(time: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return values of `wait` and the epsilons of their owners."""
    rng = np.random.default_rng(sum(map(ord, time)))
    level = rng.integers(0, 3, REPORTS)
    return rng.normal(MEANS[time][level], 5.0), EPSILONS[level]


TRUTH = {
    "all": float(np.concatenate([wait_of(EARLY)[0], wait_of(LATE)[0]]).mean()),
    "late": float(wait_of(LATE)[0].mean()),
}


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


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("article", name=name, exact=True)


def numbers(text: str) -> list[float]:
    plain = text.replace("\N{MINUS SIGN}", "-").replace("\u202f", "")
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", plain)]


def value_and_band(view: Locator) -> tuple[float, float, float]:
    """Read what is in front of a card or a metric's page."""
    (value,) = numbers(view.locator(".figure .value").inner_text())
    lower, upper = numbers(view.locator(".limits .band").inner_text())
    return value, lower, upper


def until(condition: Callable[[], bool], page: Page, what: str, seconds: float = 30) -> None:
    """Look until the page shows it; the page lives on meanwhile."""
    for _ in range(int(seconds * 20)):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"after {seconds:g} s still not: {what}")


def sideways(page: Page) -> int:
    """Return by how many pixels the page is wider than the screen."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )


def test_values_move_and_follow_the_window_and_the_weights(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    other = visitor.open(filled.url)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    wait = card(page, "wait")
    expect(wait.locator(".history canvas")).to_be_visible()
    expect(page.locator(".operations")).to_contain_text("partitions")

    value, lower, upper = value_and_band(wait)
    assert lower <= float(wait_of(EARLY)[0].mean()) <= upper
    assert wait.locator(".notice").count() == 0

    # the second day comes, and nobody presses anything
    filled.report("wait", *wait_of(LATE), LATE, 5)
    until(lambda: value_and_band(wait)[0] > value + 5, page, "the value moves")
    expect(wait.locator(".facts")).to_contain_text("60.0k")

    # its values go with the level: a warning, a remedy, and then the band holds the truth
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
    expect(card(other, "wait").get_by_role("combobox")).to_have_value("uniform")

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
    wait.get_by_role("combobox").select_option("optimal")
    expect(notice).to_be_visible()
    until(lambda: value_and_band(wait)[1] > TRUTH["all"], page, "optimal weights again")
    expect(card(other, "wait").get_by_role("combobox")).to_have_value("optimal")


def test_a_strangers_string_is_text(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    carrier = card(page, "carrier")
    expect(carrier.locator(".figure .label")).to_have_text(HOSTILE)
    expect(carrier.get_by_role("radio", checked=True)).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0
    page.goto(f"{filled.url}/#metric=carrier")
    expect(page.locator(".detail .figure .label")).to_have_text(HOSTILE)
    page.get_by_text("Numbers of the window").click()
    expect(page.get_by_role("rowheader", name=HOSTILE, exact=True)).to_be_visible()
    page.goto(f"{filled.url}/#metric=%3Cb%3Enothing")
    expect(page.locator("main")).to_contain_text("There is no metric “<b>nothing”")
    assert page.title().startswith("<b>nothing ")
    assert page.locator("main img, main b").count() == 0


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


def test_the_wall_and_a_metric_work_by_keyboard_alone(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    carrier = card(page, "carrier")
    expect(carrier.get_by_role("radio")).to_have_count(4)

    def tab_to(what: Locator, key: str = "Tab") -> None:
        for _ in range(40):
            page.keyboard.press(key)
            if what.evaluate("element => element === document.activeElement"):
                seen = what.evaluate(
                    "element => getComputedStyle(element.matches('input[type=radio]') ?"
                    " element.nextElementSibling : element).outlineStyle"
                )
                assert seen == "solid", "the focus can be seen"
                return
        raise AssertionError(f"{what} is not reached by Tab")

    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the metrics")).to_be_focused()
    tab_to(page.locator("#window-all"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#window-90d")).to_be_checked()
    assert "window=90d" in page.url
    page.keyboard.press("ArrowRight")
    expect(page.locator("#window-all")).to_be_checked()

    tab_to(page.locator("#theme"))
    before = page.locator("html").get_attribute("data-theme")
    page.keyboard.press("Enter")
    assert page.locator("html").get_attribute("data-theme") != before

    tab_to(carrier.get_by_role("radio", checked=True))
    page.keyboard.press("ArrowDown")
    expect(carrier.get_by_role("radio").nth(1)).to_be_focused()
    expect(carrier.locator(".figure .label")).to_have_text("DL")
    page.keyboard.press("End")
    expect(carrier.locator(".figure .label")).to_have_text("UA")
    tab_to(carrier.get_by_role("combobox"))
    page.keyboard.press("u")
    expect(page.get_by_role("status")).to_have_text("carrier now has uniform weights.")
    page.keyboard.press("Home")
    expect(page.get_by_role("status")).to_have_text("carrier now has optimal weights.")

    tab_to(page.get_by_role("link", name="drift"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="drift")).to_be_visible()
    expect(page.locator("main")).to_be_focused()
    expect(page.locator(".chart canvas")).to_be_visible()
    tab_to(page.locator(".chart"))
    page.keyboard.press("Home")
    expect(page.locator("#readout")).to_contain_text("8 000 reports".replace(" ", "\u202f", 1))
    tab_to(page.get_by_text("Numbers of the history"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("columnheader", name="From (UTC)")).to_be_visible()
    expect(
        page.get_by_role("table").filter(has_text="From (UTC)").locator("tbody tr")
    ).not_to_have_count(0)
    tab_to(page.locator(".back"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(carrier).to_be_visible()


def test_a_phone_has_nothing_to_scroll_sideways(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url, width=PHONE, height=780)
    for place, ready in {
        "/": ".card canvas",
        "/#metric=carrier": ".chart canvas",
        "/#metric=drift&window=24h": ".chart canvas",
        "/try": ".question",
    }.items():
        page.goto(filled.url + place)
        expect(page.locator(ready).first).to_be_visible()
        assert sideways(page) <= 0, place
    page.goto(filled.url)
    page.get_by_text("Custom", exact=True).click()
    expect(page.get_by_label("From (UTC)")).to_have_value("2026-01-04T00:00")
    assert sideways(page) <= 0


def test_the_stream_comes_back_and_says_so(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    state = page.locator("#connection")
    value = card(page, "carrier").locator(".figure .value")
    expect(state).to_have_attribute("data-state", "live")
    expect(value).to_be_visible()
    filled.stop()
    expect(state).to_have_attribute("data-state", "reconnecting")
    expect(page.locator("#alerts")).to_contain_text("The server does not answer")
    expect(value).to_be_visible()
    filled.start()
    expect(state).to_have_attribute("data-state", "live")
    expect(page.locator("#alerts")).to_be_empty()
    filled.report("carrier", np.array(["AA"] * 2000), np.full(2000, 4.0), LATE, 6)
    expect(card(page, "carrier").locator(".facts")).to_contain_text("10.0k")
    visitor.expect(r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY|ERR_CONNECTION_RESET")


def test_a_token_is_asked_for_where_one_is_needed(
    filled: Site,
    visitor: Visitor,
    site_of: Callable[..., contextlib.AbstractContextManager[Site]],
) -> None:
    viewer, ops = new_token(), new_token()
    flags = [
        "access.anonymous=report",
        f"access.tokens.viewer={hashed(viewer)} read",
        f"access.tokens.ops={hashed(ops)} read admin",
    ]
    with site_of(filled.deployment, *flags) as guarded:
        page = visitor.open(guarded.url)
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
        expect(page.locator("#connection")).to_have_text("Live")
        expect(drift.locator(".headline")).to_be_visible()
        expect(page.locator(".notice.danger")).to_have_count(0)

        # to change the weights
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
        expect(page.get_by_role("status")).to_have_text("drift now has proportional weights.")
        expect(drift.locator(".notice.danger")).to_have_count(0)
        assert filled.deployment.store.registry.policies()["drift"] == "proportional"
        assert page.evaluate("Object.values(sessionStorage)") == [ops]
        assert page.evaluate("Object.values(localStorage)") == []
        assert page.context.cookies() == []
        visitor.expect("40[13]")


def test_words_are_explained_by_touch_and_by_keyboard(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url, 390, 844, has_touch=True)
    guide, wait = page.get_by_role("dialog", name="What the words mean"), card(page, "wait")
    sure = wait.get_by_role("button", name="95\u00a0% at all times")
    sure.tap()
    expect(guide).to_contain_text("The band covers the truth at all times")
    expect(page.get_by_label("The number and its band")).to_be_focused()
    guide.get_by_role("button", name="Close").tap()
    expect(guide).to_be_hidden()
    for word, told in (
        ("Provisional", "More reports can still arrive in this window"),
        ("worth", "Reports without privacy noise that would have the same worst-case variance"),
        ("What a privacy level is", "Each person chose a level on their own device"),
        ("Weights", "right if people's values have nothing to do with the level"),
    ):
        wait.get_by_role("button", name=word, exact=True).focus()
        page.keyboard.press("Enter")
        expect(guide).to_contain_text(told)
        page.keyboard.press("Escape")
        expect(guide).to_be_hidden()
        expect(wait.get_by_role("button", name=word, exact=True)).to_be_focused()
    page.get_by_role("button", name="Help").tap()
    assert guide.get_by_role("heading", level=3).count() == 8
    first, *_ = guide.get_by_role("heading", level=3).all_text_contents()
    assert first == "The number and its band"


def test_where_nothing_was_reported_the_page_leads_to_the_first_report(
    filled: Site, visitor: Visitor
) -> None:
    page = visitor.open(filled.url)
    silent = card(page, "silent")
    expect(silent).to_contain_text("dither produce silent --csv FILE")
    silent.get_by_role("link", name="the page “Try it”").click()
    page.wait_for_url("**/try#metric=silent")


HISTORY = """
async () => {
  const {Metric} = await import("/static/metric.js");
  const steps = [];
  window.fetch = async (path) => {
    const step = Number.parseInt(new URL(path, location.href).searchParams.get("step") ?? "0");
    if (step) steps.push(step);
    const points = Array.from({length: Math.floor(DAY / step)}, (_, i) => ({
      from: new Date(1000 * i * step).toISOString(),
      to: new Date(1000 * (i + 1) * step).toISOString(),
      status: step >= 3600 ? "final" : "too_few_reports", reports: step / 40, value: 1,
    }));
    const answer = {status: "final", reports: DAY / 40, value: 1};
    return Response.json({...answer, points, step_seconds: step});
  };
  const DAY = 86400;
  const least = {pane_seconds: 900, minimum_reports: 90};
  const definition = {name: "m", kind: "mean", shape: "number", ...least};
  const metric = new Metric(definition, {metric: "m"}, {top: 1, steps: 96, changed: () => {}});
  while (!metric.points.length) await new Promise((resolve) => setTimeout(resolve, 20));
  metric.close();
  const {points} = metric;
  return [steps.at(-1), points.length, points.every(({status}) => status === "final")];
}
"""


def test_a_history_has_steps_with_enough_reports(filled: Site, visitor: Visitor) -> None:
    """24 reports in a pane of 15 minutes, and 90 are needed: 90 in an hour, 180 in two."""
    page = visitor.open(f"{filled.url}/try")
    step, points, all_tell = page.evaluate(HISTORY)
    assert (step, points, all_tell) == (10_800, 8, True)


STEPS = """
async (panes) => {
  const {Metric} = await import("/static/metric.js");
  const asked = [];
  window.fetch = async (path) => {
    const step = new URL(path, location.href).searchParams.get("step");
    if (step) asked.push(step);
    const points = [{from: "2026-01-01", to: "2026-01-02", status: "final", reports: 1, value: 1}];
    return Response.json({status: "final", reports: 1, value: 1, points, step_seconds: 60});
  };
  for (const pane_seconds of panes) {
    const definition = {name: "m", kind: "mean", shape: "number", pane_seconds};
    const place = {metric: "m", window: "1h"};
    const metric = new Metric(definition, place, {top: 1, steps: 60, changed: () => {}});
    while (!metric.points.length) await new Promise((resolve) => setTimeout(resolve, 20));
    metric.close();
  }
  return asked;
}
"""


def test_the_steps_of_a_history_are_whole_panes_in_milliseconds(
    filled: Site, visitor: Visitor
) -> None:
    page = visitor.open(f"{filled.url}/try")
    assert page.evaluate(STEPS, [0.7, 4.1, 60]) == ["60.2s", "61.5s", "60s"]


PLACE = """
async (hash) => {
  const {place} = await import("/static/place.js");
  location.hash = hash;
  const {from, to} = place();
  return [from, to, document.getElementById("from").value];
}
"""


def test_times_of_a_link_are_in_utc_as_the_server_reads_them(
    filled: Site, visitor: Visitor
) -> None:
    hash_ = "from=2026-01-01T12:00&to=2026-01-02T00:00%2B05:45"
    page = visitor.open(f"{filled.url}/#{hash_}", timezone_id="Asia/Kathmandu")
    expected = ["2026-01-01T12:00Z", "2026-01-02T00:00+05:45", "2026-01-01T12:00"]
    assert page.evaluate(PLACE, hash_) == expected
    assert page.evaluate(PLACE, "from=2026-01-01&to=2026")[:2] == ["2026-01-01", None]


def test_the_colours_follow_the_system_until_somebody_chooses(
    filled: Site, visitor: Visitor
) -> None:
    page = visitor.open(filled.url, color_scheme="dark")
    html = page.locator("html")
    expect(html).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(html).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Use the dark colours").click()
    expect(html).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(html).to_have_attribute("data-theme", "dark")


CONTRAST = """
() => {
  const style = getComputedStyle(document.documentElement);
  const channels = (name) => {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = style.getPropertyValue(name);
    return [1, 3, 5].map((at) => parseInt(canvas.fillStyle.slice(at, at + 2), 16) / 255);
  };
  const light = (name) => channels(name)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = ["--text", "--soft", "--muted", "--estimate", "--good", "--warning", "--danger"];
  const found = {};
  for (const text of texts)
    for (const behind of ["--panel", "--raised", "--page"])
      found[`${text} on ${behind}`] = ratio(text, behind);
  found["--text on --warning-panel"] = ratio("--text", "--warning-panel");
  found["--text on --danger-panel"] = ratio("--text", "--danger-panel");
  found["--on-accent on --accent"] = ratio("--on-accent", "--accent");
  found["--soft on --line"] = ratio("--soft", "--line");
  const shapes = {};
  for (const shape of ["--estimate", "--whisker", "--control"])
    shapes[shape] = ratio(shape, "--panel");
  return {texts: found, shapes};
}
"""


def test_text_and_shapes_have_the_contrast_of_wcag_aa(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        found = page.evaluate(CONTRAST)
        assert {name: ratio for name, ratio in found["texts"].items() if ratio < 4.5} == {}
        assert {name: ratio for name, ratio in found["shapes"].items() if ratio < 3} == {}


def test_events_are_read_however_they_are_cut(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    text = (
        ': hello\r\n\r\nid: a-1\nevent: estimate\ndata: {"x":\ndata: 1}\n\nretry: 70\n\rdata: é\r\r'
    )
    found = page.evaluate(
        """async (text) => {
          const {EventParser} = await import("/static/stream.js");
          const results = new Set();
          for (let size = 1; size <= text.length; size++) {
            const events = [], retries = [];
            const parser = new EventParser((event) => events.push(event), (ms) => retries.push(ms));
            for (let at = 0; at < text.length; at += size) parser.feed(text.slice(at, at + size));
            parser.feed("\\n");
            results.add(JSON.stringify({events, retries}));
          }
          return [...results];
        }""",
        text,
    )
    assert found == [
        '{"events":[{"type":"estimate","data":"{\\"x\\":\\n1}","id":"a-1"},'
        '{"type":"message","data":"é","id":"a-1"}],"retries":[70]}'
    ]


def test_a_vector_is_randomized_in_the_browser_and_counted(filled: Site, visitor: Visitor) -> None:
    before = filled.deployment.counts()["accepted:drift"]
    page = visitor.open(f"{filled.url}/try#metric=drift")
    page.get_by_label("north").fill("3")
    page.get_by_label("east").fill("-4.5")
    page.get_by_role("button", name="Randomize and send").click()
    result = page.get_by_role("region", name="What was sent")
    expect(result).to_contain_text("Kafka has the report.")
    expect(result.locator(".kept")).to_contain_text("north 3, east \N{MINUS SIGN}4.5 km/h")
    expect(result.locator(".sent")).to_contain_text("a direction, drawn at random")
    expect(result).to_contain_text("The estimate of north in drift")
    assert filled.deployment.counts()["accepted:drift"] == before + 1


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

    page.get_by_label("Metric").select_option("wait")
    page.get_by_label("Value", exact=True).and_(page.get_by_role("spinbutton")).fill("12.5")
    page.get_by_role("button", name="Randomize and send").click()
    expect(result).to_contain_text("one bit")
    expect(result).to_contain_text("The estimate of wait")
    assert len(posted) == 2


FORMATS = """
async () => {
  const f = await import("/static/format.js");
  const share = new f.Scale("frequency", ""), delay = new f.Scale("mean", "minutes");
  const at = (text) => Date.parse(text) / 1000;
  return {
    wide: delay.interval(-3.04159, 41.2), narrow: delay.interval(12.34012, 12.34578),
    zero: delay.text(-0.04, 1), negative: delay.withUnit(-1234.5, 1), none: delay.text(null, 2),
    percent: share.withUnit(0.17123, share.digits(0.160, 0.184)),
    yes: new f.Scale("mean", "", [0, 1]).unit, of: new f.Scale("mean", "GB", [0, 1]).unit,
    rated: new f.Scale("mean", "", [0, 5]).unit,
    quantiles: ["0.5", "0.95", "0.999", "0.25"].map(f.quantileName),
    counts: [999, 9999, 56789, 2_000_000, 3.4e9].map(f.count), rates: [0, 0.25, 1500].map(f.rate),
    tiny: f.probability(3.2e-7), usual: f.probability(0.25),
    durations: [5, 90, 7200, 86400].map(f.duration),
    moment: f.moment(at("2013-03-04T14:05Z")), day: f.moment(at("2013-03-04T00:00Z")),
    stretch: f.stretch(at("2013-03-04T00:00Z"), at("2013-03-11T00:00Z")),
    all: f.stretch(null, null),
    months: f.ticks(["2013-12-01", "2014-01-01", "2014-02-01"].map(at), 28 * f.DAY),
    hours: f.ticks(["2013-12-31T22:00Z", "2014-01-01T00:00Z"].map(at), 7200),
  };
}
"""
VECTORS = """
async (vectors) => {
  const f = await import("/static/format.js");
  const of = {
    down: (x, digits) => f.bound(x, digits, -1), up: (x, digits) => f.bound(x, digits, 1),
    decimals: f.decimals, certainty: f.certainty, percent: f.percent,
    certified: f.certified, loss: f.loss,
  };
  const ascii = (x) => x.replace(/[\\u202f\\u00a0]/g, "").replace("\\u2212", "-");
  const plain = (x) => typeof x === "string" ? ascii(x) : x;
  return Object.entries(vectors).flatMap(([name, rows]) => rows
    .map((row) => [name, ...row, plain(of[name](...row.slice(0, -1)))])
    .filter((row) => row.at(-1) !== row.at(-2)));
}
"""


def test_bounds_and_probabilities_are_rounded_as_in_python(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    vectors = json.loads((ROOT / "tests" / "vectors" / "rounding.json").read_text())
    assert page.evaluate(VECTORS, vectors) == []


def test_numbers_are_as_fine_as_their_band_and_times_are_utc(
    filled: Site, visitor: Visitor
) -> None:
    page = visitor.open(filled.url, timezone_id="Asia/Kathmandu", locale="de-DE")
    found = page.evaluate(FORMATS)
    plain = {"\u202f": " ", "\u00a0": " ", "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-"}

    def told(shown: Any) -> Any:
        if isinstance(shown, list):
            return [told(one) for one in shown]
        return shown.translate(str.maketrans(plain))

    assert {name: told(shown) for name, shown in found.items()} == {
        "wide": "-4 to 42",
        "narrow": "12.3401 to 12.3458",
        "zero": "0.0",
        "negative": "-1 234.5 minutes",
        "none": "-",
        "percent": "17.1 %",
        "yes": "%",
        "of": "GB",
        "rated": "",
        "quantiles": ["median", "p95", "p99.9", "p25"],
        "counts": ["999", "9 999", "56.8k", "2.0M", "3.4G"],
        "rates": ["0", "0.3", "1 500"],
        "tiny": "3·10⁻⁷",
        "usual": "0.250",
        "durations": ["5 s", "1.5 min", "2 h", "1 d"],
        "moment": "4 Mar 2013 14:05",
        "day": "4 Mar 2013",
        "stretch": "4 Mar - 11 Mar 2013",
        "all": "everything counted so far",
        "months": ["Dec", "Jan\n2014", "Feb"],
        "hours": ["22:00\n31 Dec", "00:00\n1 Jan"],
    }


def test_what_a_page_shows_is_saved_as_a_table(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{filled.url}/#metric=carrier")
    expect(page.locator(".detail .figure")).to_be_visible()
    files = {}
    for what in ("window", "history"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Download the {what} (CSV)").click()
        files[what] = download.value
    assert [one.suggested_filename for one in files.values()] == [
        "carrier-estimate.csv",
        "carrier-series.csv",
    ]
    tables = {
        what: [*csv.DictReader(file.path().read_text().splitlines())]
        for what, file in files.items()
    }
    for rows in tables.values():
        assert {row["label"] for row in rows} == {"AA", HOSTILE, "DL", "UA"}
    assert tables["history"][0]["window_start"] == f"{EARLY}:00Z"
    expect(page.locator(".downloads .complaint")).to_be_empty()


def test_any_string_may_be_asked_of_an_open_vocabulary(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    expect(card(page, "page")).to_contain_text("You can ask for any string")
    page.get_by_role("link", name="page", exact=True).click()
    ask = page.get_by_label("Ask for any string")
    for string, share in {"/cart": 0.75, "/<b>nowhere": 0.0}.items():
        ask.fill(string)
        ask.press("Enter")
        expect(page.locator(".detail .figure .label")).to_have_text(string)
        _, lower, upper = value_and_band(page.locator(".detail"))
        assert lower <= 100 * share <= upper
        told = re.compile(f"History of page, {string}, 1 step,")
        expect(page.locator(".history")).to_have_attribute("aria-label", told)
    expect(page.get_by_role("radio").filter(has_text="/cart")).to_be_visible()


def test_what_could_not_be_counted_is_told_by_its_reason(filled: Site, visitor: Visitor) -> None:
    page = visitor.open(filled.url)
    dead = page.locator(".tile", has_text="Dead letters")
    expect(dead).to_contain_text("every report was counted")
    filled.deployment.produce([(0, b"no batch")])
    expect(dead).to_contain_text("1 malformed")
