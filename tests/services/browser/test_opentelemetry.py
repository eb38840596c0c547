"""An app with the OpenTelemetry SDK, bundled for Chromium, reports what it measures, randomized."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from estimators import define
from producers.gateway import Gateway
from tests.support.running.broker import Broker, count
from tests.support.running.gateway_server import serving
from tests.support.running.npm_package import npm_package, run
from tests.support.running.served import definition

if TYPE_CHECKING:
    from playwright.sync_api import Page

NUMBER = define(
    name="number", kind="mean", mechanism="laplace", range=(-100, 100), levels=[1], lateness="2d"
)
PAGE = define(
    name="page", kind="frequency", mechanism="grr", categories=["home", "help"], levels=[64]
)
USED = define(
    name="used",
    kind="mean",
    mechanism="randomized_response",
    range=(0, 1),
    levels=[64],
    pane="1d",
    lateness="2d",
)
"""At epsilon = 64 a report is the value, but for a chance of 10^-28."""
ALL = {metric.name: metric for metric in (NUMBER, PAGE, USED)}
NUMBERS = ("counter", "level", "gauge", "mean", "count", "largest", "observed")
APP = """
import { Device } from "@dither/device";
import { DitherMetricExporter, type Mapped } from "@dither/opentelemetry";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";

const DAY = 86_400_000;

async function app(names: string[]): Promise<unknown> {
  let now = Date.now();
  const values: [unknown, unknown][] = [];
  const failures: string[] = [];
  const device = await Device.open("", {
    clock: () => now, onFailure: (failure) => failures.push(failure.detail),
  });
  const report = device.report.bind(device);
  device.report = (metric, value, ...rest) => {
    values.push([metric, value]);
    return report(metric, value, ...rest);
  };
  const mapped: Record<string, Mapped> = {
    views: { metric: "page", epsilon: 64, category: "page" },
    opened: { metric: "used", epsilon: 64, how: "active", window: "1d" },
    added: { metric: "number", epsilon: 1, how: "sum", window: "1d" },
    wrong: { metric: "page", epsilon: 64 },
  };
  for (const name of names) {
    const of = ["count", "largest"].includes(name) ? (name as "count" | "largest") : "mean";
    mapped[name] = { metric: "number", epsilon: 1, of };
  }
  const exporter = new DitherMetricExporter(device, mapped);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const provider = new MeterProvider({ readers: [reader] });
  const meter = provider.getMeter("app");
  const counter = meter.createCounter("counter");
  const level = meter.createUpDownCounter("level");
  const gauge = meter.createGauge("gauge");
  const histograms = ["mean", "count", "largest"].map((name) => meter.createHistogram(name));
  const views = meter.createCounter("views");
  const totals = [3, 10, 10, 10];
  meter.createObservableCounter("observed").addCallback((r) => r.observe(totals.shift() ?? 10));

  const exported = async () => {
    values.length = 0;
    await provider.forceFlush();
    return [...values];
  };
  counter.add(2, { place: "a" });
  counter.add(3, { place: "b" });
  level.add(7, { place: "a" });
  level.add(-2, { place: "b" });
  gauge.record(9, { place: "a" });
  gauge.record(4, { place: "a" });
  for (const each of histograms) [9, 1, 2].forEach((value) => each.record(value, { value }));
  views.add(1, { page: "home", user: "secret" });
  views.add(3, { page: "help" });
  meter.createCounter("opened").add(1);
  meter.createGauge("added").record(1);
  meter.createCounter("wrong").add(1);
  meter.createCounter("unmapped").add(1, { user: "secret" });
  const first = await exported();
  const second = await exported();
  counter.add(4);
  level.add(-6);
  now += DAY + 3_600_000;
  const third = await exported();
  await provider.shutdown();
  return {
    first, second, third, reported: exporter.reported, dropped: exporter.dropped, failures,
  };
}
Object.assign(globalThis, { app });
"""
CHECK = ["--noEmit", "--strict", "--target", "es2022", "--module", "preserve", "--lib"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An app that has installed both packages and the SDK, checked and bundled."""
    folder = tmp_path_factory.mktemp("npm")
    package = npm_package(folder)
    source = folder / "browser" / "opentelemetry"
    (tarball,) = run(["npm", "pack", "--silent"], source).split()[-1:]
    app, tools = package.application, source / "node_modules" / ".bin"
    offline = ["npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]
    run([*offline, str(source / tarball)], app)
    (app / "node_modules" / "@opentelemetry").symlink_to(source / "node_modules" / "@opentelemetry")
    (app / "app.ts").write_text(APP)
    run([str(tools / "tsc"), *CHECK, "es2023,dom", "--types", "", "app.ts"], app)
    run([str(tools / "esbuild"), "app.ts", "--bundle", "--format=esm", "--outfile=app.js"], app)
    return (app / "app.js").read_text()


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


@pytest.fixture
def gateway(broker: Broker, bundle: str) -> Iterator[tuple[str, str]]:
    topic = broker.topic()

    async def page(_: Request) -> Response:
        return HTMLResponse(
            "<!doctype html><title>app</title><script type=module src=app.js></script>"
        )

    async def script(_: Request) -> Response:
        return Response(bundle, media_type="text/javascript")

    async def describe(request: Request) -> Response:
        return JSONResponse(definition(ALL[request.path_params["name"]]))

    beside = [
        Route("/", page),
        Route("/app.js", script),
        Route("/v1/metrics/{name}", describe),
    ]
    with serving(Gateway(ALL, broker.config, topic), beside) as url:
        yield url.removesuffix("v1/reports"), topic


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_instrument_means_in_a_browser_what_it_means_in_python(
    page: Page, gateway: tuple[str, str], broker: Broker
) -> None:
    url, topic = gateway
    page.goto(url)
    page.wait_for_function("() => globalThis.app")
    found = page.evaluate("(names) => globalThis.app(names)", [*NUMBERS])
    number, pages = "number", ["page", "help"]
    assert sorted(found["first"], key=str) == sorted(
        [[number, value] for value in (5, 5, 4, 4, 3, 9, 3)] + [pages], key=str
    )
    assert sorted(found["second"], key=str) == sorted([[number, 5], [number, 7]], key=str)
    assert sorted(found["third"], key=str) == sorted(
        [[number, 4], [number, -1], [number, 0]], key=str
    )
    assert found["dropped"] == {
        "added": {"not_additive": 1},
        "unmapped": {"unmapped": 1},
        "wrong": {"TypeError": 1},
    }
    assert found["reported"]["opened"] == 1
    batches = {message.batch.metric: message.batch for message in broker.read(topic, at_least=3)}
    assert count(PAGE, [batches["page"]]).tolist() == [1, 0, 1]
    assert USED.counts(count(USED, [batches["used"]])).tolist() == [1]
    for message in broker.read(topic):
        assert b"secret" not in message.batch.SerializeToString()
