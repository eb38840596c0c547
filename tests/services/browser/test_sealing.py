"""What a page seals opens in Python; its device has the rules of the reporter in Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import Response

from estimators import define
from estimators.metrics.loading import definition_of
from producers.gateway.problems import Problem
from producers.sealing import CrowdLabel, decode_post, key_hash
from tests.services.browser.conftest import Modules
from tests.services.browser.test_device import DAY, START, call, totals
from tests.services.browser.test_device import opened as opened_device
from tests.support.reports.crowds import opened as opened_reports
from tests.support.rows import row
from tests.support.running.scripted_server import KEY, OTHER_KEY, PRIVATE, ScriptedServer
from tests.support.running.served import definition, page_routes
from tests.support.running.served_application import served_plainly

if TYPE_CHECKING:
    from playwright.sync_api import Page

LATE = define(
    name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[2],
    pane="1d", lateness="1d", crowd={"minimum": 1000, "wait": "12h"},
)  # fmt: skip
PLAIN = define(name="plain", kind="mean", mechanism="laplace", range=(0, 1), levels=[1], pane="1d")


SEAL = """
async ([definition, start, report, digits]) => {
  const { publicKeyOf, sealedPost } = await load("sealing.js");
  const key = publicKeyOf(digits);
  return hex(await sealedPost(definition, start, Uint8Array.from(report), key));
}
"""


def test_what_is_sealed_in_javascript_opens_in_python(device: Modules) -> None:
    """Python opens the standard's example, too: tests/unit/producers/test_sealing.py."""
    hashed = key_hash(bytes.fromhex(KEY))
    metrics = [LATE, define(name="m", **definition_of(LATE) | {"pane": "1h"})]
    for metric, width, start in itertools.product(metrics, (1, 700), (0, START)):
        report = bytes(i % 251 for i in range(width))
        with row(metric.name, width, start):
            given = [definition(metric), start, list(report), KEY.upper()]
            label, sealed = decode_post(bytes.fromhex(device.evaluate(SEAL, given)))
            assert label == CrowdLabel(hashed, metric.fingerprint, start, metric.name)
            assert opened_reports(sealed, label, PRIVATE) == [report]


def test_a_page_without_a_device_reports_nothing_unsealed(device: Modules) -> None:
    for script in (
        'dither.report("http://127.0.0.1:9/v1/reports", given, 1, 2)',
        "dither.encodeBatch(given, [0], [Uint8Array.of(1)])",
    ):
        with row(script):
            said = device.error_of(f"async (given) => {script}", definition(LATE))
            assert "metric late has a crowd: expected a device that seals" in said


# -- The device -----------------------------------------------------------------------------------


@pytest.fixture
def relay() -> Iterator[ScriptedServer]:
    server, gateway = ScriptedServer(LATE, PLAIN), ScriptedServer(LATE, PLAIN)
    routes = [*page_routes(), server.route("/relay"), gateway.route("/gateway")]
    with served_plainly(Starlette(routes=routes)) as server.url:
        yield server
    assert not gateway.posted
    assert not gateway.asked or gateway.asked == ["metrics/late"]


def opened(page: Page, relay: ScriptedServer, **options: Any) -> Page:
    own = {"relay": f"{relay.url}/relay", "key": KEY, "now": START, "gateway": "/gateway"}
    return opened_device(page, relay, **own | options)


def test_a_device_seals_once_a_pane_for_the_relay_alone(page: Page, relay: ScriptedServer) -> None:
    relay.answers = [
        Response(status_code=503, headers={"Retry-After": "1"}),
        Problem(500, "broken").response("/"),
        Response("<html>", 202),  # a login page's
    ]
    opened(page, relay, budget=100, token="secret")  # noqa: S106
    assert call(page, 'device.report("late", 1, 2)') == {"reports": 1, "denied": 0}
    assert call(page, 'device.report("late", 0, 2)').startswith("AlreadyAnswered")
    assert call(page, "device.flush(60_000)") is None
    assert len(relay.posted) == 4
    assert len(set(relay.posted)) == 1
    assert not any("authorization" in headers for headers in relay.headers)
    assert set(relay.asked) == {"key", "metrics/late", "sealed"}
    statuses = [400, 409, 410, 413, 415]
    relay.answers = [Problem(status, "no").response("/") for status in statuses]
    page.evaluate("() => { failures.length = 0; }")
    for _ in statuses:
        page.evaluate(f"() => {{ now += {DAY}; }}")
        assert call(page, 'device.report("late", 0, 2)')["reports"] == 1
        assert call(page, "device.flush(60_000)") is None
    assert totals(page, "late") == [6, 1, 5, 0]
    assert [each["status"] for each in call(page, "failures")] == statuses
    assert len({len(body) for body in relay.posted}) == 1
    assert len(relay.opened) == 9
    assert call(page, 'device.ledger.accounts().then((all) => all.get("late").everSpent)') == 6 * 2
    assert call(page, 'device.report("plain", 0, 1)').startswith("TypeError: metric plain of the")


def test_what_a_device_cannot_hide_it_does_not_report(page: Page, relay: ScriptedServer) -> None:
    opened(page, relay)
    for how in ("last", "largest"):
        with row(how):
            said = call(page, f'device.rollUp("late", "{how}", "1d", 2)')
            assert "no value may decide whether a window is reported" in said
    for options, told in (
        ("{ relay: 'http://relay.example' }", "expected both, or neither"),
        ("{ relay: '', key: 'ab' }", "relay = : expected an address"),
        ("{ relay: 'http://relay.example', key: 'ab' }", "64 hexadecimal digits"),
    ):
        with row(options):
            assert told in call(page, f'dither.Device.open("/gateway", {options})')
    weaker = definition_of(LATE) | {"crowd": {"minimum": 100, "wait": "12h"}}
    relay.definitions["late"] = msgspec.json.encode(definition(define(name="late", **weaker)))
    page.evaluate("(definition) => { window.own = definition; }", definition(LATE))
    call(page, "device.definition(own)")
    page.wait_for_function("failures.length > 0")
    assert call(page, "device.report(own, 1, 2)").startswith("DefinitionChanged: the definition")
    relay.key = OTHER_KEY
    opened(page, relay, database="another")
    assert f"for key {OTHER_KEY}: expected the page's" in call(page, 'device.report("late", 1, 2)')
    opened(page, relay, database="third", key="00" * 32)
    relay.key = "00" * 32
    assert "sealing fails" in call(page, 'device.report("late", 1, 2)')
    relay.key = KEY
    opened(page, relay, database="fourth")
    page.evaluate(
        """() => {
          const missing = new DOMException("no X25519", "NotSupportedError");
          crypto.subtle.generateKey = () => Promise.reject(missing);
        }"""
    )
    said = call(page, 'device.report("late", 1, 2)')
    assert "expected a page over https, a browser with X25519" in said
    plain = 'dither.Device.open("/gateway", { database: "fifth" })'
    said = call(page, f'{plain}.then((device) => device.report("late", 1, 2))')
    assert "metric late has a crowd: expected a device that seals" in said
    assert call(page, "device.ledger.accounts().then((all) => all.get('').everSpent)") == 0
    assert not relay.posted


@pytest.mark.more
def test_a_roll_up_waits_for_half_the_time_of_a_crowd(page: Page, relay: ScriptedServer) -> None:
    opened(page, relay, budget=100)
    page.evaluate('async () => { window.seen = await device.rollUp("late", "active", "1d", 2); }')
    delays = []
    for day in range(1, 16):
        reports = []
        for hour in range(7):
            page.evaluate(f"() => {{ now = {START + day * DAY + hour * 3_600_000}; }}")
            reports.append(call(page, "seen.reportEnded()"))
        assert sum(reports) == 1
        delays.append(reports.index(1))
    assert max(delays) > 1  # hours; an ordinary one waits for one at most. False alarm: 6^-15
    page.evaluate(f"() => {{ now = {START + 17 * DAY + DAY // 2}; }}")
    assert call(page, "seen.reportEnded()") == 0
    assert call(page, "device.flush(60_000)") is None
    assert len(relay.opened) == 15
    panes = [decode_post(body)[0].pane_start_ms for body in relay.posted]
    assert panes == [START + day * DAY for day in range(15)]
