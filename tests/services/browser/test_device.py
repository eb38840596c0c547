"""A browser's device: its ledger, permanent answers, queue and roll-ups, in IndexedDB."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from estimators import LocalMetric, define
from producers import BudgetSpent, HttpReporter, Ledger, RollUp
from producers.device.roll_up import How
from producers.gateway import Gateway
from producers.gateway.problems import Problem
from producers.ledger.ledger_file import transaction
from producers.ledger.permanent_answers import repeat_or_draw
from tests.services.browser.conftest import PATIENCE, until
from tests.support.axes import CRASH, LIES, MISTAKES
from tests.support.prepared_words import PreparedWords, awkward_words
from tests.support.rows import row
from tests.support.running.broker import CARRIER, LATE, Broker
from tests.support.running.gateway_server import serving
from tests.support.running.scripted_server import ScriptedServer
from tests.support.running.served import definition, page_routes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DAY = 86_400_000
START = 20_000 * DAY
STEPS = 18
"""Reports of permanent answers, over some hours of a ledger whose period is one."""
ALL = {
    metric.name: metric
    for metric in (
        dataclasses.replace(LATE, pane="1d", lateness="2d"),
        define(
            name="clicks", kind="mean", mechanism="laplace", range=(0, 100), levels=[0.25, 1],
            pane="1d", lateness="2d",
        ),
        define(
            name="query", kind="frequency", categories="open", levels=[1, 4], pane="1d",
            lateness="2d",
        ),
        define(
            name="steps", kind="frequency", mechanism="grr", levels=[16], pane="1d", lateness="2d",
            categories=["none", "visit", "paid"],
        ),
        dataclasses.replace(CARRIER, memoized=True),
        define(
            name="speed", kind="mean", mechanism="randomized_response", memoized=True, pane="1m",
            range=(0, 120), levels=[1, 2],
        ),
        define(name="slowest", kind="maximum", range=(0, 128), levels=[1, 7], rounds=7,
               split="budget"),
        dataclasses.replace(CRASH, pane="1d"),
    )
}  # fmt: skip


class Site(ScriptedServer):
    """A page's server, and its gateway, which may answer something else first.

    Of every `deaf`-th batch Kafka has it, and the answer is an error.
    """

    def __init__(self, gateway: ASGIApp) -> None:
        super().__init__(*ALL.values())
        asked = ALL["slowest"]
        told = {"metric": asked.name, "revision": asked.revision, "number": 1, "rounds": 7}
        self.definitions["slowest/round"] = json.dumps({**told, "threshold": 64.0}).encode()
        self.gateway, self.deaf = gateway, 0

    def serve(self, name: str, served: Any) -> None:
        """Serve another definition."""
        self.definitions[name] = json.dumps(served).encode()

    def accept(self, path: str) -> ASGIApp:
        is_lost = self.deaf and len(self.posted) % self.deaf == 0

        async def behind(scope: Scope, receive: Receive, send: Send) -> None:
            async def again() -> Message:
                return {"type": "http.request", "body": self.posted[-1], "more_body": False}

            await self.gateway(scope, again, _nowhere if is_lost else send)
            if is_lost:
                await Problem(500, "lost").response("/")(scope, receive, send)

        return behind


async def _nowhere(_: Message) -> None:
    """Lose an answer."""


@pytest.fixture
def site(broker: Broker, topic: str) -> Iterator[Site]:
    gateway = Gateway(ALL, broker.config, topic)
    (route,) = [each for each in gateway.routes if each.path == "/v1/reports"]
    site = Site(route.app)
    with serving(gateway, [site.route("/posts"), *page_routes()]) as url:
        site.url = url.removesuffix("v1/reports")
        yield site


OPEN = """
async (options) => {
  window.dither ??= await import("/static/device/device.js");
  window.failures = [];
  const { now, looks, gateway = "/posts", ...others } = options;
  window.now ??= now;
  if (!looks) window.setInterval = () => 0; // a slow test takes minutes
  window.rows = async (database) => {
    const opening = indexedDB.open(database);
    await new Promise((resolve) => { opening.onsuccess = resolve; });
    const store = opening.result.transaction("kept").objectStore("kept");
    const all = [store.getAllKeys(), store.getAll()].map((request) => new Promise((resolve) => {
      request.onsuccess = () => resolve(request.result);
    }));
    const [keys, values] = await Promise.all(all);
    opening.result.close();
    return keys.map((key, i) => [key, values[i]]);
  };
  const clock = window.now === undefined ? Date.now : () => window.now;
  window.device = await dither.Device.open(gateway, {
    ...others, clock, onFailure: (failure) => window.failures.push(failure),
  });
}
"""


def opened(page: Page, site: Site | ScriptedServer, **options: Any) -> Page:
    """Return a page with an open device, as `device`.

    It looks for windows that have ended only if it is asked to, or with the option `looks`.
    """
    page.set_default_timeout(PATIENCE)
    page.goto(site.url)
    page.evaluate(OPEN, options)
    return page


def call(page: Page, script: str) -> Any:
    """Return what an expression in a page gives, or the name and the text of its error."""
    return page.evaluate(
        "async () => { try { return await (" + script + "); } "
        "catch (error) { return `${error.name}: ${error.message}`; } }"
    )


def totals(page: Page, name: str) -> list[int]:
    """Return how many reports of a metric were taken, delivered and refused, and are left."""
    found = call(page, f'device.totals("{name}")')
    return [found[key] for key in ("taken", "delivered", "refused", "left")]


ROWS = """
async (database) => JSON.stringify(
  await rows(database), (_, x) => typeof x === "bigint" ? String(x) : x,
)
"""


def stored(page: Page, database: str = "dither") -> str:
    """Return a database's rows: pairs of a key and a value, as JSON."""
    return str(page.evaluate(ROWS, database))


def gathered(page: Page, part: str = "gathered") -> list[Any]:
    """Return what roll-ups hold, or their courses."""
    return [value for key, value in json.loads(stored(page)) if key[0] == part]


def test_a_report_is_charged_and_sent(page: Page, site: Site, broker: Broker, topic: str) -> None:
    opened(page, site, budget=5, budgets={"clicks": 1})
    taken = call(page, 'device.report("late", [1, 0], [1, 2.5], { time: 1357034400000 })')
    assert taken == {"reports": 2, "denied": 0}
    assert call(page, "device.flush(60_000)") is None
    (message,) = broker.read(topic)
    assert (message.batch.metric, message.batch.time_ms) == ("late", 1_357_034_400_000)
    assert list(message.batch.levels) == [1, 2]
    said = call(page, 'device.report("late", 1, 4)')
    assert said.startswith(
        "BudgetSpent: epsilon = 4 for late: 2 is left of the budget of all metrics, 5; enough is"
    )
    assert call(page, 'device.report("clicks", 1, 1)')["reports"] == 1
    assert "is left of the budget of clicks, 1;" in call(page, 'device.report("clicks", 1, 0.3)')
    assert call(page, 'device.report("late", 2, "x")').startswith('RangeError: epsilon = "x"')
    assert call(page, 'device.report("late", null, 0.5)').startswith("TypeError: value null")
    found = call(page, "[...(await device.ledger.accounts()).values()]")
    assert [(each["metric"], each["spent"], each["left"], each["reports"]) for each in found] == [
        ("", 4, 1, 3), ("clicks", 1, 0, 1), ("late", 3, None, 2),
    ]  # fmt: skip
    assert totals(page, "late") == [2, 2, 0, 0]
    page.reload()
    page.evaluate(OPEN, {"budgets": {"clicks": 5}})
    microseconds = 'device.report("late", 1, 1, { time: Date.now() * 1000 })'
    assert call(page, microseconds).startswith("RangeError: time = ")
    assert call(page, "device.ledger.left()") == 1
    assert call(page, 'device.report("late", 1, 1, { time: 253402300799999 })')["reports"] == 1
    assert call(page, "device.ledger.left()") == 0
    assert "of the budget of all metrics, 5" in call(page, 'device.report("clicks", 1, 1)')
    assert call(page, "failures") == []


@pytest.mark.more
def test_a_charge_expires_one_period_later(page: Page, site: Site) -> None:
    opened(page, site, budget=1, period="1h", now=START)
    assert call(page, 'device.report("late", 1, 1)')["reports"] == 1
    page.evaluate("() => { now += 3_599_999; }")
    said = call(page, 'device.report("late", 1, 0.5)')
    assert "enough is free again from 2024-10-04T01:00:00.000Z" in said
    page.evaluate("() => { now += 1; }")
    assert call(page, 'device.report("late", 1, 1)')["reports"] == 1
    page.evaluate("() => { now -= 7_200_000; }")
    assert call(page, 'device.report("late", 1, 0.5)').startswith("BudgetSpent")
    assert "has a period of 3600000 ms" in call(page, 'dither.Device.open("", { period: "1d" })')


@pytest.mark.more
def test_what_waits_survives_the_page_and_is_posted_as_it_was(page: Page, site: Site) -> None:
    site.answers += [
        Problem(503, "Kafka is away", retry_after=600).response("/"),
        HTMLResponse("<p>Log in", 200),
    ]
    opened(page, site)
    call(page, 'device.report("late", 1, 1)')
    page.wait_for_function("failures.length > 0")
    failure = call(page, "failures[0]")
    assert (failure["kind"], failure["status"], failure["metric"]) == ("delivery", 503, "late")
    assert 600_000 <= failure["retryIn"] <= 750_000
    opened(page, site)  # a new page knows until when the gateway wants no posts
    call(page, 'device.report("clicks", 0, 1)')
    assert call(page, "device.flush(200)").startswith("DeliveryError: not acknowledged")
    assert len(site.posted) == 1
    page.evaluate("() => { const later = Date.now() + 750_000; Date.now = () => later; }")
    assert call(page, "device.flush(60_000)") is None
    late = [batch.SerializeToString() for batch in site.batches if batch.metric == "late"]
    assert (len(late), len(set(late))) == (3, 1)
    assert call(page, 'device.totals("late")')["left"] == 0


def test_a_batch_that_fails_by_itself_keeps_no_other_waiting(page: Page, site: Site) -> None:
    site.failing["late"] = Problem(404, "no").response("/")
    site.serve("late", definition(ALL["late"]) | {"max_batch_reports": 1})
    opened(page, site)
    call(page, 'device.report("late", 1, 1)')
    page.wait_for_function("failures.length > 0")
    for value in range(3):
        call(page, f'device.report("clicks", {value}, 1)')
    page.wait_for_function('device.totals("clicks").then(({left}) => left === 0)')
    assert totals(page, "late") == [1, 0, 0, 1]
    assert {each["metric"] for each in call(page, "failures")} == {"late"}
    assert call(page, "device.flush(200)").startswith("DeliveryError: not acknowledged")
    # one that fails for all is not asked for each: a second without posts follows two batches
    before = len(site.moments)
    assert call(page, 'device.report("late", Array(7).fill(1), 1)')["reports"] == 7
    until(lambda: len(site.moments) > before + 3, page, "others are posted")
    assert site.moments[before + 3] - site.moments[before] >= 1
    site.failing.clear()
    assert call(page, "device.flush(60_000)") is None
    assert totals(page, "late") == [8, 8, 0, 0]


CHANGE = """
(change) => new Promise((resolve, reject) => {
  const opening = indexedDB.open("dither", 1);
  opening.onsuccess = () => {
    const transaction = opening.result.transaction("kept", "readwrite");
    const rows = transaction.objectStore("kept").openCursor(IDBKeyRange.bound(["batch"], ["batch", []]));
    rows.onsuccess = () => rows.result && rows.result.update({ ...rows.result.value, ...change });
    transaction.oncomplete = () => { opening.result.close(); resolve(); };
    transaction.onabort = () => reject(transaction.error);
  };
})
"""  # noqa: E501


@pytest.mark.more
def test_a_batch_that_failed_for_a_week_is_given_up_and_told_of(page: Page, site: Site) -> None:
    """Only in the gateway's own words: a proxy's page, or silence, gives up nothing."""
    site.failing["late"] = HTMLResponse("no", 404)
    opened(page, site)
    call(page, 'device.report("late", [1, 0], 1)')
    page.wait_for_function("failures.length > 0")
    ago = call(page, "Date.now()") - 7 * DAY
    page.goto(site.url)  # where nothing is posted
    page.evaluate(CHANGE, {"errors": 18, "failing": ago})
    page.evaluate(OPEN, {})
    for kind, found in (("delivery", [2, 0, 0, 2]), ("refused", [2, 0, 2, 0])):
        page.wait_for_function("failures.length > 0")  # after the first, the pause is an hour
        failure = call(page, "failures.pop()")
        assert (failure["kind"], failure["status"]) == (kind, 404)
        assert totals(page, "late") == found
        site.failing["late"] = Problem(404, "no").response("/")
        page.evaluate("() => { dispatchEvent(new Event('online')); }")


@pytest.mark.more
def test_kafka_has_what_is_told_sent(page: Page, site: Site, broker: Broker, topic: str) -> None:
    """Answers get lost, pages end, and batches are posted again: each is counted once."""
    site.deaf = 3
    opened(page, site)
    taken = 0
    for size in (1, 2, 3):
        page.evaluate(
            """(size) => Promise.all(Array.from({ length: 4 }, (_, i) =>
              device.report("late", Array(size + i % 2).fill(i % 2), 1)))""",
            size,
        )
        taken += 4 * size + 2
        page.goto("about:blank")
        opened(page, site)
    page.evaluate(
        """async () => {
          for (let i = 0; i < 600; i++) {
            dispatchEvent(new Event("online"));
            if ((await device.totals("late")).left === 0) return;
            await new Promise((resolve) => setTimeout(resolve, 100));
          }
        }"""
    )
    assert totals(page, "late") == [taken, taken, 0, 0]
    arrived = broker.read(topic, at_least=12)
    reports = {message.key: len(message.batch.levels) for message in arrived}
    assert (len(reports), sum(reports.values())) == (12, taken)
    assert len(arrived) > len(reports), "nothing was posted again: the test is too tame"


@pytest.mark.more
def test_a_full_browser_stores_nothing_by_half_and_goes_on_sending(page: Page, site: Site) -> None:
    browser, room = page.context.new_cdp_session(page), {"quotaSize": 1_000_000}
    browser.send("Storage.overrideQuotaForOrigin", {"origin": site.url.rstrip("/"), **room})
    site.failing["query"] = Problem(404, "no").response("/")
    opened(page, site, budget=2)
    call(page, 'device.report("query", "a", 1)')
    page.wait_for_function("failures.length > 0")
    page.evaluate("async () => { window.longest = await device.rollUp('query', 'last', '1d', 1); }")
    assert call(page, 'longest.add("b")') is None
    said = call(page, 'longest.add("x".repeat(4_000_000))')
    assert said.startswith("StorageError: the browser stores nothing ("), said
    assert "Quota" in said
    assert said.endswith("; nothing was reported")
    site.failing.clear()
    assert call(page, "device.flush(60_000)") is None
    assert call(page, 'device.totals("query")')["delivered"] == 1
    assert call(page, "device.ledger.left()") == 1
    assert gathered(page) == ["b"]


def test_a_round_is_answered_and_charged_once_despite_lies(page: Page, site: Site) -> None:
    opened(page, site, budget=7)
    assert call(page, 'device.report("slowest", 100, 7)').startswith("TypeError: slowest is asked")
    assert call(page, 'device.answer("slowest", 100, 7)') is True
    assert call(page, 'device.answer("slowest", 100, 7)') is False
    metric = ALL["slowest"]
    told = {"metric": metric.name, "revision": metric.revision, "number": 2, "rounds": 7}
    answers = [
        call(page, f'device.answer("slowest", 50, 7, {json.dumps(told | changed)})')
        for changed in (
            {"threshold": 32.0},
            {"threshold": 96.0},  # the same round, about something else
            {"number": 1, "threshold": 64.0},  # one that is over
            {"number": 8, "threshold": 32.0},
            {"threshold": 33.0},
            {"revision": metric.revision + 1, "threshold": 32.0},
        )
    ]
    assert answers[:3] == [True, False, False]
    assert all(each.startswith(("RangeError: round", "TypeError: round")) for each in answers[3:])
    assert call(page, "device.ledger.left()") == 5
    assert call(page, "device.flush(60_000)") is None
    assert [(one.metric, one.round) for one in site.batches] == [("slowest", 1), ("slowest", 2)]


@pytest.mark.more
def test_pages_of_one_browser_share_what_waits_and_what_was_spent(
    chromium: Browser, site: Site, broker: Broker, topic: str
) -> None:
    with chromium.new_context() as context:
        pages = [opened(context.new_page(), site, budget=12) for _ in range(2)]
        for page in pages:
            page.evaluate(
                """() => { window.done = Promise.allSettled(
                  Array.from({ length: 8 }, () => device.report("late", 1, 1))); }"""
            )
        found = [call(page, "(await done).map(({ status }) => status)") for page in pages]
        assert sum(statuses.count("fulfilled") for statuses in found) == 12
        for page in pages:
            assert call(page, "device.flush(60_000)") is None
        assert call(pages[0], 'device.totals("late")')["delivered"] == 12
    assert len({message.key for message in broker.read(topic, at_least=12)}) == 12


@pytest.mark.more
def test_a_batch_that_is_refused_thrice_is_given_up_and_counted(page: Page, site: Site) -> None:
    site.answers += [Problem(400, "no").response("/") for _ in range(3)]
    opened(page, site)
    call(page, 'device.report("late", [1, 0], 1)')
    for count in (1, 2, 3):  # a network that comes back ends a pause
        page.wait_for_function(f"failures.length >= {count}")
        page.evaluate("() => { dispatchEvent(new Event('online')); }")
    *_, failure = call(page, "failures")
    assert (failure["kind"], failure["reports"], failure["detail"]) == ("refused", 2, "400: no")
    assert totals(page, "late") == [2, 0, 2, 0]


@pytest.mark.more
def test_a_network_that_comes_back_during_a_post_ends_the_pause_after_it(
    page: Page, site: Site
) -> None:
    """The pauses after twelve failures would take minutes."""
    opened(page, site)
    page.evaluate(
        """(failing) => { const post = fetch; globalThis.fetch = (...words) => {
          if (words[1]?.method !== "POST" || failing-- < 1) return post(...words);
          dispatchEvent(new Event("online"));
          throw new TypeError("no network");
        }; }""",
        12,
    )
    call(page, 'device.report("late", 1, 1)')
    assert call(page, "device.flush(60_000)") is None
    assert len(call(page, "failures")) == 12


@dataclasses.dataclass
class Late:
    """Answers when it is told to, as if nothing could be decoded."""

    told: threading.Event = dataclasses.field(default_factory=threading.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while not self.told.is_set():
            await asyncio.sleep(0.05)
        await Problem(400, "no").response("/")(scope, receive, send)


@pytest.mark.more
def test_a_redirect_is_not_followed_and_silence_is_not_waited_for(page: Page, site: Site) -> None:
    silent = Late()
    site.answers += [RedirectResponse("/posts/v1/reports", 307), silent]
    page.clock.install()
    opened(page, site)
    call(page, 'device.report("late", 1, 1)')
    page.wait_for_function("failures.length > 0")
    assert len(site.posted) == 1
    page.clock.run_for(2_000)
    until(lambda: len(site.posted) == 2, page, "it is posted again")
    page.clock.run_for(60_000)
    page.wait_for_function("failures.length === 2")
    silent.told.set()
    assert [each["status"] for each in call(page, "failures")] == [0, 0]
    assert "no answer for 60000 ms" in call(page, "failures")[1]["detail"]


@pytest.mark.more
def test_a_batch_that_one_page_has_sent_is_not_refused_again(chromium: Browser, site: Site) -> None:
    """Over plain HTTP pages have no locks, and send at once."""
    late = Late()
    site.answers.append(late)
    with chromium.new_context() as context:
        context.add_init_script(
            "Object.defineProperty(Navigator.prototype, 'locks', { value: undefined });"
        )
        one = opened(context.new_page(), site)
        call(one, 'device.report("late", 1, 1)')
        until(lambda: bool(site.posted), one, "it is posted")
        assert call(opened(context.new_page(), site), "device.flush(60_000)") is None
        late.told.set()
        one.wait_for_function("failures.length > 0")
        assert call(one, "device.flush(60_000)") is None
        assert totals(one, "late") == [1, 1, 0, 0]


@pytest.mark.more
def test_a_definition_of_no_use_loses_no_report_and_fills_no_memory(page: Page, site: Site) -> None:
    opened(page, site)
    for name, served, said in (
        ("carrier", {"categories": 10**9}, "carrier.categories: expected at most 1048576"),
        ("clicks", {"description": "a" * 2**22}, "clicks: expected an answer of at most 4194304"),
        ("query", {"revision": 7}, "revision 7 of query: expected"),
    ):
        site.serve(name, definition(ALL[name]) | served)
        with row(name):
            assert said in call(page, f'device.report("{name}", 1, 1)')
    site.serve("late", definition(ALL["late"]) | {"max_batch_reports": "many"})
    assert call(page, 'device.report("late", [1, 0, 1], 1)')["reports"] == 3
    assert call(page, "device.flush(60_000)") is None
    assert [len(batch.levels) for batch in site.batches] == [3]


@pytest.mark.more
def test_a_definition_is_kept_and_another_one_is_refused(page: Page, site: Site) -> None:
    opened(page, site)
    call(page, 'device.report("late", 1, 1)')
    shipped = definition(dataclasses.replace(ALL["late"], pane="2d"))
    site.serve("late", shipped)
    opened(page, site)
    assert call(page, 'device.report("late", 1, 1)')["reports"] == 1  # what it meant at first
    page.wait_for_function("failures.length > 0")
    assert call(page, "failures")[0]["kind"] == "definition"
    assert call(page, 'device.report("late", 1, 1)').startswith("DefinitionChanged: the definition")
    refused = page.evaluate("(one) => device.report(one, 1, 1).catch(({name}) => name)", shipped)
    assert refused == "DefinitionChanged"


@pytest.mark.more
def test_a_clock_beyond_the_calendar_is_told_and_harms_nothing(page: Page, site: Site) -> None:
    for now in (253_402_300_800_000, 1e300):
        opened(page, site, now=now)
        for use in ('device.report("late", 1, 1)', "device.ledger.accounts()"):
            with row(now, use):
                assert "expected a time before the year 10000: set the clock" in call(page, use)
    opened(page, site)
    assert call(page, 'device.report("late", 1, 1)')["reports"] == 1


def test_no_value_is_stored_but_what_a_roll_up_gathers(page: Page, site: Site) -> None:
    site.answers += [Problem(503, "away", retry_after=3600).response("/")]
    opened(page, site, now=START)
    call(page, 'device.report("query", "4321-secret", 4)')
    call(page, 'device.report("clicks", 43.21, 1)')
    assert "4321" not in (found := stored(page))
    assert "43.21" not in found
    last = 'window.last ??= await device.rollUp("query", "last", "1d", 4)'
    assert call(page, f'({last}).add("4321-secret")') is None
    assert "4321" in stored(page)
    page.evaluate("() => { now += 2 * 86_400_000 - 1; }")
    assert call(page, f"({last}).reportEnded()") == 1
    assert "4321" not in stored(page)


def test_the_furthest_step_of_a_day_is_reported_or_the_first_one(page: Page, site: Site) -> None:
    """In any order; what is stored is a name, as in Python, and so is what is reported."""
    opened(page, site, now=START, budget=100)
    steps = 'window.steps ??= await device.rollUp("steps", "furthest", "1d", 16, {nothing: "none"})'
    for step in ('"paid"', "1"):
        assert call(page, f"({steps}).add({step})") is None
    assert gathered(page) == ["paid"]
    assert "one of none, paid, visit" in call(page, 'steps.add("payed")')
    page.evaluate("(hours) => { now += hours * 3_600_000; }", 25)
    call(page, "steps.add(0)")
    page.evaluate("(hours) => { now += hours * 3_600_000; }", 24)
    assert call(page, "steps.reportEnded()") == 2
    call(page, "device.flush(60_000)")
    reports = {batch.time_ms: batch.values for batch in site.batches}
    assert [reports[START + day * DAY - 1] for day in (1, 2)] == [b"\2", b"\0"]


def test_flags_of_a_day_are_one_category_of_the_axes(page: Page, site: Site) -> None:
    """What is stored and sent is that of Python, and so is what is refused."""
    opened(page, site, now=START, budget=1000)
    nothing = json.dumps({"nothing": CRASH.labels[0]})
    flags = f'window.flags ??= await device.rollUp("crash", "flags", "1d", 16, {nothing})'
    for flag in ("crashed", "used_x", "crashed"):
        assert call(page, f'({flags}).add("{flag}")') is None
    assert gathered(page) == [CRASH.labels[3]]
    page.evaluate("(hours) => { now += hours * 3_600_000; }", 25)
    assert call(page, 'flags.add("used_x")') is None
    for made in (2, 1):
        page.evaluate("(hours) => { now += hours * 3_600_000; }", 24)
        assert call(page, "flags.reportEnded()") == made
    values = f'{{ crashed: "yes", used_x: "no" }}, 16, {{ time: {START + 9 * DAY} }}'
    assert call(page, f'device.report("crash", {values})')["reports"] == 1
    call(page, "device.flush(60_000)")
    reports = {(batch.time_ms - START) // DAY: batch.values for batch in site.batches}
    assert reports == {0: b"\3", 1: b"\2", 2: b"\0", 9: b"\1"}
    last = 'await device.rollUp("crash", "last", "1d", 16)'
    assert call(page, f'({last}).add({{ crashed: "yes", used_x: "no" }})') is None
    assert gathered(page) == [CRASH.labels[1]]
    for value, words in MISTAKES:
        with row(value):
            given = json.dumps(value)
            assert call(page, f'device.report("crash", {given}, 16)') == f"TypeError: {words}"
            assert call(page, f"({last}).add({given})") == f"TypeError: {words}"
    words = "flag crash of crash: expected one of used_x, crashed"
    assert call(page, 'flags.add("crash")') == f"TypeError: {words}"
    words = "TypeError: how = flags for steps: expected axes with two values each"
    assert call(page, 'device.rollUp("steps", "flags", "1d", 16)') == words
    for axes in LIES:
        with row(axes):
            lie = definition(ALL["crash"]) | {"axes": axes}
            words = "TypeError: axes of crash: expected those whose product is its categories"
            assert call(page, f"device.report({json.dumps(lie)}, 0, 16)") == words


CLICKS = 'async () => { window.clicks = await device.rollUp("clicks", "count", "1d", 1); }'


def test_a_window_is_reported_and_charged_once(page: Page, site: Site) -> None:
    opened(page, site, now=START + 5, budget=1)
    page.evaluate(CLICKS)
    for _ in range(17):
        call(page, "clicks.add()")
    assert call(page, "clicks.reportEnded()") == 0
    assert gathered(page) == [17]
    page.evaluate("(hours) => { now += hours * 3_600_000; }", 25)
    assert "2 reports may fall into a period" in call(page, "failures")[0]["detail"]
    found = call(page, "Promise.all([clicks.reportEnded(), clicks.reportEnded(), clicks.add()])")
    assert sorted(found[:2]) == [0, 1]
    call(page, "device.flush(60_000)")
    (batch,) = site.batches
    assert batch.time_ms == START + DAY - 1
    assert call(page, "device.ledger.left()") == 0
    page.evaluate("(hours) => { now += hours * 3_600_000; }", 24)
    assert call(page, "clicks.reportEnded()") == 1
    for days in (6, 1):  # of the last two days there is budget for one at a time
        page.evaluate("(days) => { now += days * 86_400_000; }", days)
        assert call(page, "clicks.reportEnded()").startswith("BudgetSpent")
        assert call(page, "clicks.reportEnded()").startswith("BudgetSpent")
        assert call(page, "clicks.missed()") == 4
    call(page, "device.flush(60_000)")
    assert sorted((batch.time_ms + 1 - START) // DAY for batch in site.batches) == [1, 2, 7, 8]
    page.evaluate("(days) => { now += days * 86_400_000; }", 1)
    call(page, 'device.report("late", 1, 1)')
    courses = []
    for _ in range(3):
        assert call(page, "clicks.reportEnded()").startswith("BudgetSpent")
        courses += gathered(page, "gathering")
    assert courses == [courses[0]] * 3, "a failure draws another delay"
    assert courses[0]["due"] == [START + 8 * DAY, START + 9 * DAY]


def test_a_page_reports_each_minute_what_is_over(page: Page, site: Site) -> None:
    page.clock.install(time=START / 1000)
    opened(page, site, looks=True)
    call(page, 'device.rollUp("clicks", "count", "1d", 1)')
    page.clock.set_system_time((START + DAY) / 1000 + 3600)
    page.clock.run_for(60_000)
    page.wait_for_function("device.totals('clicks').then(({ taken }) => taken === 1)")


GATHER = """
async ([how, steps, history]) => {
  const [metric, nothing] =
    how === "flags" ? ["crash", "used_x=no, crashed=no"] : ["clicks", undefined];
  window.now = 1_728_000_000_000;
  window.known = (window.known ?? 0) + 1;
  const seen = [];
  const told = ({ kind }) => kind === "roll-up" && seen.push(kind);
  const begin = async () => {
    const options = { clock: () => now, database: `device ${known}`, onFailure: told };
    window.device = await dither.Device.open("/posts", options);
    window.gathering = await device.rollUp(metric, how, "1d", 16, { nothing });
  };
  const add = async (times) => {
    const added = { largest: (i) => i, flags: (i) => ["crashed", "used_x"][i % 2] }[how];
    for (let i = 0; i < times; i++) await gathering.add(added?.(i));
  };
  await begin();
  for (const [i, [hours, action]] of steps.entries()) {
    now += hours * 3_600_000;
    await add(history[2 * i] ?? history[0]);
    if (action === "look") await gathering.reportEnded();
    if (action === "open") {
      device.close();
      await begin();
    }
    await add(history[2 * i + 1] ?? history[1]);
    seen.push((await device.totals(metric)).taken);
  }
  device.close();
  return seen;
}
"""
MOMENTS = [
    (10, "look"), (16, "look"), (8, ""), (17, "open"), (1, "look"), (50, "look"), (9000, "look"),
    (-9000, ""), (24, "look"), (25, "look"), (30, "open"), (-1, "look"), (60, "look"),
]  # fmt: skip
"""Hours that pass, and what happens then; no look comes in the hour after a window's end."""


VALUED = [[1, 0], [0, 1], [3, 2]]
RARE = [[0, 0], [1, *[0] * 25], [*[0] * 14, 2, *[0] * 11]]


@pytest.mark.parametrize(
    ("how", "histories"),
    [
        ("count", VALUED + RARE),
        pytest.param("active", RARE, marks=pytest.mark.more),
        pytest.param("largest", VALUED, marks=pytest.mark.more),
        pytest.param("flags", RARE, marks=pytest.mark.more),
    ],
)
def test_reports_come_at_the_same_moments_whether_and_whenever_something_is_added(
    page: Page, site: Site, how: str, histories: list[list[int]]
) -> None:
    """A history says how often something is added before and after each moment."""
    opened(page, site)
    first, *others = [page.evaluate(GATHER, [how, MOMENTS, each]) for each in histories]
    assert first[-1] >= 5
    assert others == [first] * len(others)


@pytest.mark.more
def test_a_clock_that_went_a_year_ahead_and_back_stops_no_roll_up(page: Page, site: Site) -> None:
    """Each window is reported and charged at most once, and those of the present are reported."""
    opened(page, site, now=START, budget=100)
    page.evaluate(CLICKS)

    def passes(days: float) -> None:
        page.evaluate("(days) => { now += days * 86_400_000; }", days)

    call(page, "clicks.add()")
    passes(365 + 1 / 24)
    call(page, "clicks.add()")
    assert call(page, "clicks.reportEnded()") == 2
    passes(-365)
    call(page, "clicks.add()")
    assert call(page, "clicks.reportEnded()") == 0
    assert gathered(page) == [2]
    assert [each["kind"] for each in call(page, "failures")] == ["roll-up"]
    for _ in range(5):
        passes(1)
        call(page, "clicks.reportEnded()")
    passes(361)
    call(page, "clicks.reportEnded()")
    call(page, "device.flush(60_000)")
    ends = [(batch.time_ms + 1 - START) // DAY for batch in site.batches]
    assert ends[:7] == [364, 365, 1, 2, 3, 4, 5]
    assert len(set(ends)) == len(ends), "a window was reported twice"
    accounts = call(page, "[...(await device.ledger.accounts()).values()]")
    assert accounts[0]["everReports"] == len(ends)


@pytest.mark.more
def test_what_cannot_be_used_is_an_error_that_says_so(page: Page, site: Site) -> None:
    opened(page, site)  # and then localStorage is denied
    page.evaluate("Object.defineProperty(window, 'localStorage', { get: () => eval('throw 1') })")
    for script, said in (
        ('device.rollUp("clicks", "mean", "1d", 1)', "how = mean: expected one of count"),
        ('device.rollUp("clicks", "count", "90m", 1)', "window = 90m: expected a multiple"),
        ('device.rollUp("query", "sum", "1d", 1)', "expected a metric of numbers"),
        ('device.rollUp("query", "furthest", "1d", 1)', "a frequency of listed categories"),
        ('device.rollUp("steps", "furthest", "1d", 16)', "nothing = undefined for how = furthest"),
        ('device.rollUp("speed", "last", "1m", 1)', "metric speed has no lateness"),
        ('device.rollUp("slowest", "last", "1d", 1)', "is asked in rounds"),
        ('(await device.rollUp("clicks", "sum", "1d", 1)).add(Infinity)', "a finite number"),
        ('device.report("clicks", 1, 1, { permanent: 2 })', "expected a metric that is memoized"),
        ('device.report("late", 1, 1, { time: "2026-01-01" })', 'time = "2026-01-01": expected'),
        ('device.report("late", 1, 1, { time: 253402300800000 })', "before the year 10000"),
        ('dither.Device.open("", { budget: 0.00001 })', "at most 4 decimal digits"),
        ('dither.Device.open("", { turn: "1d" })', "expected both, or neither"),
        ('dither.Device.open("", { turn: "23h", tickets: { a: 1 } })', "at least the period"),
        ('dither.Device.open("", { turn: "1d", tickets: { a: 0.5 } })', "whole numbers above 0"),
        ('dither.Device.open("", { turn: "1d", tickets: {} })', "tickets = {}: expected whole"),
        ('dither.Device.open("", { turn: "1d", tickets: { A: 1 } })', "names of metrics, as in"),
        ('dither.Device.open("", { turn: "1d", tickets: null })', "tickets = null: expected names"),
        ('dither.Device.open("", { turn: "1d", tickets: [] })', "tickets = []: expected whole"),
    ):
        with row(script):
            assert said in call(page, script)
    for given in ("undefined", '"reports.example.org"', '"ftp://x"', '"http://u:p@x"', '"//x:0"'):
        said = call(page, f"dither.Device.open({given})")
        assert said.startswith("TypeError: gateway = "), given
        assert "u:p" not in said
    for storage in ("null", "undefined", "(() => { throw new DOMException(); })()"):
        page.evaluate(
            "(storage) => Object.defineProperty(globalThis, 'indexedDB', "
            "{ get: () => eval(storage), configurable: true })",
            storage,
        )
        said = call(page, 'dither.Device.open("")')
        assert said.startswith("StorageError: the database dither cannot be opened"), storage


WORDS = """
(words) => {
  const prepared = words.map((word) => BigInt(word));
  const original = crypto.getRandomValues.bind(crypto);
  crypto.getRandomValues = (array) => {
    if (!(array instanceof BigUint64Array)) return original(array);
    array.set(prepared.splice(0, array.length));
    return array;
  };
  window.rest = () => prepared.length;
}
"""


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "permanent", "changes"), [("carrier", 5.5, 2), ("speed", None, 0)]
)
def test_permanent_answers_are_those_of_python(
    page: Page, site: Site, tmp_path: Path, name: str, permanent: float | None, changes: int
) -> None:
    """The same words, values and times: the same bytes, and the same charges."""
    metric, generator = LocalMetric.require(ALL[name]), np.random.default_rng(20261126)
    words = PreparedWords(awkward_words(generator, [2**62], 4000))
    shown = [str(word) for word in words.words.tolist()]
    opened(page, site, now=START, budget=60, period="1h")
    page.evaluate(WORDS, shown)
    now, steps = START, []
    values = generator.choice([1, 2, 5] if name == "carrier" else [20, 55, 100], STEPS).tolist()
    gaps = generator.choice([60_000, 600_000, 4_000_000], STEPS).tolist()
    ledger = Ledger(tmp_path / "ledger", 60, "1h", clock=lambda: now / 1000)
    expected = []
    for value, gap in zip(values, gaps, strict=True):
        now += gap
        steps.append([now, value])
        level, at = np.array([1], dtype=np.uint8), np.array([now])
        exact = None if permanent is None else Fraction(str(permanent))
        report = repeat_or_draw(ledger, metric, np.array([value]), level, at, exact, changes, words)
        expected.append(metric.randomizer.encode(report).hex())
    page.evaluate(
        """async ([name, steps, options]) => {
          for (const [time, value] of steps) {
            now = time;
            await device.report(name, value, 4, options);
          }
        }""",
        [name, steps, {"changes": changes} | ({"permanent": permanent} if permanent else {})],
    )
    assert call(page, "device.flush(60_000)") is None
    found = sorted((batch.time_ms, batch.values.hex()) for batch in site.batches)
    assert [report for _, report in found] == expected
    assert call(page, "rest()") == len(shown) - words.used
    account = call(page, f'(await device.ledger.accounts()).get("{name}")')
    python = ledger.accounts()[name]
    assert (account["spent"], account["everSpent"], account["reports"], account["everReports"]) == (
        float(python.spent), float(python.ever_spent), python.reports, python.ever_reports,
    )  # fmt: skip
    again = call(page, f'device.report("{name}", 1, 4)')
    assert again.startswith(f"AlreadyAnswered: this device already answered {name}, in the pane")


LOTTERY: dict[str, Any] = {
    "budget": 1, "period": "20h", "turn": "1d", "tickets": {"query": 2, "late": 1, "clicks": 3}
}  # fmt: skip
WAYS: dict[str, How] = {"late": "active", "clicks": "count", "query": "last"}
PLAY = """
async ([ways, moments]) => {
  const rolls = {};
  for (const [name, how] of ways) rolls[name] = await device.rollUp(name, how, "1d", 2);
  for (const [i, moment] of moments.entries()) {
    now = moment;
    await rolls.clicks.add();
    if (i % 3 === 0) await rolls.query.add("abc");
    for (const [name] of ways) await rolls[name].reportEnded().catch(() => 0);
  }
}
"""


def test_a_lottery_draws_and_pays_as_in_python(page: Page, site: Site, tmp_path: Path) -> None:
    """The same words and moments: the same draws, the same rows of turns, the same accounts."""
    now, tickets = START, LOTTERY["tickets"]
    words = PreparedWords(awkward_words(np.random.default_rng(20261129), [2**62], 200))
    words.words[::3] = 2**64 - 1  # which is drawn again
    starts = [START - DAY * (day % 40) for day in range(60)]
    ledger = Ledger(tmp_path / "draws", clock=lambda: now / 1000, **LOTTERY)
    drawn = [ledger.drawn_turn(start, words).metric for start in starts]
    opened(page, site, now=START, **LOTTERY)
    page.evaluate(WORDS, [str(word) for word in words.words.tolist()])
    found = page.evaluate("(starts) => device.ledger.drawnTurns(starts)", starts)
    assert [turn["metric"] for turn in found] == drawn
    assert call(page, "rest()") == 200 - words.used

    opened(page, site, database="played", now=START, **LOTTERY)
    moments = [START + hour * 3_600_000 for hour in range(2, 24 * 9, 6)]
    page.evaluate(PLAY, [list(WAYS.items()), moments])
    rows = json.loads(stored(page, "played"))
    turns = {key[1]: value for key, value in rows if key[0] == "turn"}
    first = {"clicks": 0, "late": 3, "query": 4}
    assert sorted(tickets) == list(first)

    def draw(start: int) -> str:
        word = PreparedWords(np.array([first[turns[start]["metric"]]], dtype=np.uint64))
        return ledger.drawn_turn(start, word).metric

    ledger = Ledger(tmp_path / "ledger", clock=lambda: now / 1000, **LOTTERY)
    with contextlib.ExitStack() as closing:
        rolls = {}
        assert draw(START) == turns[START]["metric"]
        for name, how in WAYS.items():
            reporter = HttpReporter(ALL[name], "http://127.0.0.1:9", queue=tmp_path / name)
            closing.callback(reporter.close, 0)
            rolls[name] = RollUp(reporter, how, "1d", 2, ledger=ledger, clock=lambda: now / 1000)
        for i, now in enumerate(moments):
            draw(now - now % DAY)
            rolls["clicks"].add()
            if i % 3 == 0:
                rolls["query"].add("abc")
            for name in WAYS:
                with contextlib.suppress(BudgetSpent):
                    rolls[name].report_ended()
    with transaction(ledger.path, write=False) as database:
        turns_of_python = database.execute("SELECT start_ms, metric, is_paid FROM turns").fetchall()
    assert {
        start: {"metric": metric, "isPaid": bool(paid)} for start, metric, paid in turns_of_python
    } == turns
    assert len([turn for turn in turns.values() if turn["isPaid"]]) >= 7
    accounts = call(page, "[...(await device.ledger.accounts()).values()]")
    expected = {name: (a.ever_spent, a.ever_reports) for name, a in ledger.accounts().items()}
    assert {a["metric"]: (a["everSpent"], a["everReports"]) for a in accounts} == expected
    assert call(page, "device.ledger.lottery()") == {
        "turn": DAY, "tickets": dict(sorted(tickets.items())), "drawn": turns[max(turns)]["metric"]
    }  # fmt: skip


LATE_LOOKS = """
async ([name, how, options, epsilon, value]) => {
  const roll = await device.rollUp(name, how, "1d", epsilon, options);
  if (value !== null) await roll.add(value);
  const looks = [];
  for (const hours of [50, 6, 6, 9]) {
    now += hours * 3_600_000;
    looks.push(await roll.reportEnded().then(() => "", (error) => error.name));
  }
  const {everSpent, everReports} = (await device.ledger.accounts()).get("");
  return [looks, everSpent, everReports];
}
"""


@pytest.mark.more
def test_a_lottery_in_a_browser_pays_whether_anything_happened(page: Page, site: Site) -> None:
    played: dict[tuple[Any, ...], Any] = {}
    for name, how, options, budget, value in (
        ("late", "last", {}, 1, 1),
        ("steps", "furthest", {"nothing": "none"}, 16, "paid"),
    ):
        tickets = {"tickets": {name: 1}, "budget": budget}
        for given in (None, value):
            opened(page, site, database=f"{name} {given}", now=START, **LOTTERY | tickets)
            played[name, given] = page.evaluate(LATE_LOOKS, [name, how, options, budget, given])
        assert played[name, None][:2] == played[name, value][:2]
        assert played[name, value][1] == 2 * budget, "both turns are paid"
    assert played["steps", None][2] == 2, "a turn without a step has the first one"


ADVERSARY = """
async ([histories, steps, hour]) => {
  const faults = [], total = { excess: 0, variance: 0, paid: 0, answers: 0 };
  const ways = { late: "active", clicks: "count", query: "last" };
  const shipped = {};
  for (const name in ways) shipped[name] = await (await fetch(`/posts/v1/metrics/${name}`)).json();
  for (let history = 0; history < histories; history++) {
    let state = history + 1, now = 20000 * 24 * hour, tickets = { late: 1, clicks: 2, query: 1 };
    const pick = (list) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return list[Math.floor((state / 2 ** 32) * list.length)];
    };
    const database = `adversary ${history}`, charges = new Map(), drawn = new Map();
    const open = async () => {
      const device = await dither.Device.open("/nowhere", {
        database, budget: pick([0.25, 1, 1]), period: "20h", turn: "1d", tickets, clock: () => now,
      });
      const rolls = {};
      for (const name in tickets) {
        const made = device.rollUp(shipped[name], ways[name], "1d", 1);
        rolls[name] = await made.catch(() => undefined); // it may have no level in the budget
      }
      return { device, rolls };
    };
    const pages = [await open(), await open()];
    const act = async ({ device, rolls }) => {
      const some = Object.entries(rolls).filter(([, roll]) => roll !== undefined);
      const [name, roll] = pick(some) ?? [];
      await roll?.add(name === "query" ? "abc" : undefined).catch(() => 0);
      if (pick([0, 0, 1])) await device.report(shipped.clicks, 1, 1).catch(() => 0);
      const end = (roll) => roll.reportEnded().then((n) => { total.answers += n; }, () => 0);
      for (const [, each] of some) await end(each);
    };
    for (let step = 0; step < steps; step++) {
      const guess = pick(Object.keys(ways)), action = pick(["look", "look", "restart", "tickets"]);
      now += hour * pick([0, 1, 13, 20, 21, 24, 30, 49, 80, -3, -49]);
      if (action === "tickets") {
        tickets = { clicks: pick([1, 5]), [pick(["late", "query"])]: pick([1, 5]) };
      }
      if (action !== "look") {
        pages.shift().device.close();
        pages.push(await open());
      }
      await Promise.all(pages.map(act)); // two pages in any order of their transactions
      for (const [key, value] of await rows(database)) {
        if (key[0] === "spent") charges.set(key.join(), [key[1], value.parts]);
        if (key[0] !== "turn") continue;
        const before = drawn.get(key[1]);
        drawn.set(key[1], value);
        if (before && (before.metric !== value.metric || before.isPaid > value.isPaid)) {
          faults.push(`another draw in history ${history}`);
        }
        if (before || action === "tickets") continue;
        const chance = (tickets[guess] ?? 0) / Object.values(tickets).reduce((a, b) => a + b);
        total.excess += (value.metric === guess) - chance;
        total.variance += chance * (1 - chance);
      }
    }
    for (const [end] of charges.values()) {
      const period = [...charges.values()].filter(([at]) => at > end - 20 * hour && at <= end);
      if (period.reduce((sum, [, parts]) => sum + parts, 0) > 10_000) {
        faults.push(`more than the budget in history ${history}`);
      }
    }
    total.paid += charges.size;
    if (charges.size !== [...drawn.values()].filter((turn) => turn.isPaid).length) {
      faults.push(`charges that are not for turns in history ${history}`);
    }
    pages.forEach(({ device }) => device.close());
  }
  return { ...total, faults };
}
"""


@pytest.mark.more
def test_an_adversary_of_a_browser_neither_exceeds_the_budget_nor_foresees_a_draw(
    page: Page, site: Site
) -> None:
    """Pages that act at once, clocks, restarts, tickets and budgets.

    The excess of right guesses exceeds 4.9 deviations with a probability of 10^-6.
    """
    opened(page, site, now=START)
    found = page.evaluate(ADVERSARY, [40, 12, 3_600_000])
    assert found["faults"] == []
    assert found["paid"] > found["answers"] > 40
    assert abs(found["excess"]) < 4.9 * found["variance"] ** 0.5


def test_a_lottery_in_a_browser_pays_for_nothing_else(page: Page, site: Site) -> None:
    opened(page, site, now=START, **LOTTERY | {"tickets": {"clicks": 1}})
    nothing = "TypeError: this ledger has a lottery, so it pays for nothing but the metric"
    page.evaluate("async () => { window.clicks = await device.rollUp('clicks', 'sum', '1d', 2); }")
    for script, said in (
        ('device.report("late", 1, 1)', nothing),
        ('device.report("clicks", 1, 1)', nothing),
        ('device.report("carrier", 1, 1)', nothing),
        ('device.answer("slowest", 5, 1)', nothing),
        ('device.rollUp("late", "active", "1d", 1)', "metric late has no tickets"),
        ('device.rollUp("clicks", "sum", "2d", 1)', "expected the turn of the ledger's lottery"),
    ):
        with row(script):
            assert said in call(page, script)
    page.evaluate("() => { now += 365 * 86_400_000; }")
    assert call(page, "clicks.reportEnded()") == 1
    page.evaluate("() => { now -= 365 * 86_400_000; }")
    assert "expected a turn of the last 62 days" in call(page, "clicks.add(1)")
    assert call(page, "device.ledger.left()") == 0
