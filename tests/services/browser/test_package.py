"""The npm packages report to a real gateway, from Node.js and a page, and have their types."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from estimators import define
from producers.gateway import Gateway
from tests.services.browser.conftest import Modules
from tests.support.paths import ROOT
from tests.support.running.broker import CARRIER, DELAY, LATE, METRICS, Broker, count
from tests.support.running.gateway_server import serving
from tests.support.running.processes import run
from tests.support.running.served import definition

if TYPE_CHECKING:
    from playwright.sync_api import Page
import shutil
from pathlib import Path

from tests.support.running import servers

SOURCE = ROOT / "producers" / "browser"
OLDEST_NODE = 20


@dataclasses.dataclass(frozen=True)
class NpmPackage:
    """A tarball, and an application that has installed it.

    Attributes
    ----------
    packed : list of dict
        Path and size of each file in the tarball.
    application : Path
        A folder with a `package.json` and `node_modules`.
    tools : Path
        The programs of the package's own development dependencies.
    """

    packed: list[dict[str, Any]]
    application: Path
    tools: Path

    def node(self, program: str, *arguments: str) -> str:
        """Run an ES module in the application's folder; return what it prints."""
        file = self.application / "program.mjs"
        file.write_text(program)
        return run(["node", file, *arguments], cwd=self.application)


def npm_package(folder: Path) -> NpmPackage:
    """Pack a copy of producers/browser, and install the tarball in a scratch folder."""
    servers.program("npm", "install Node.js with npm (Debian: npm)")
    version = run(["node", "--version"])
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"Node.js {version.strip()}: the package needs {OLDEST_NODE} or newer")
    copy, application = folder / "browser", folder / "application"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    application.mkdir()
    told = run(["npm", "pack", "--json", "--pack-destination", folder], cwd=copy)
    (listed,) = json.loads(told[told.rindex("\n[\n") :])  # installing its tools tells more
    (application / "package.json").write_text('{"private": true, "type": "module"}')
    install = ["npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]
    run([*install, folder / listed["filename"]], cwd=application)
    return NpmPackage(listed["files"], application, copy / "node_modules" / ".bin")


MOST_BYTES = 74_000
PROGRAM = """
import { Device, report } from "@dither/device";

const [url, ...definitions] = process.argv.slice(2);
const [late, delay, carrier] = definitions.map((text) => JSON.parse(text));
const answers = [
  await report(url, late, [1, 0, 1], 4),
  await report(url, delay, 12.5, 1),
  await report(url, carrier, ["AA", "US"], [1, 4]),
];
const said = await Device.open(url).catch((error) => error.name);
console.log(JSON.stringify([...answers.map(({ reports }) => reports), said]));
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> NpmPackage:
    return npm_package(tmp_path_factory.mktemp("npm"))


@pytest.fixture
def gateway(broker: Broker, topic: str) -> Iterator[str]:
    known = {metric.name: metric for metric in METRICS}
    with serving(Gateway(known, broker.config, topic)) as url:
        yield url


def test_the_versions_are_that_of_the_python_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for folder in (SOURCE, SOURCE / "opentelemetry"):
        for name in ("package.json", "package-lock.json"):
            found = json.loads((folder / name).read_text())
            assert found["version"] == project["version"], folder / name
    package = json.loads((SOURCE / "package.json").read_text())
    assert package["license"] == project["license"]
    assert "dependencies" not in package


@pytest.mark.more
def test_the_package_is_small_and_depends_on_nothing(package: NpmPackage) -> None:
    assert sum(file["size"] for file in package.packed) < MOST_BYTES
    names = {file["path"] for file in package.packed}
    assert {"package.json", "README.md", "dist/dither.js", "dist/dither.d.ts"} <= names
    assert all(re.fullmatch(r"package\.json|README\.md|dist/[\w/]+\.(js|d\.ts)", n) for n in names)
    installed = package.application / "node_modules"
    assert [each.name for each in installed.iterdir() if each.name[0] != "."] == ["@dither"]


@pytest.mark.more
def test_reports_from_node(package: NpmPackage, gateway: str, broker: Broker, topic: str) -> None:
    definitions = [json.dumps(definition(metric)) for metric in (LATE, DELAY, CARRIER)]
    assert package.node(PROGRAM, gateway, *definitions) == '[3,1,2,"StorageError"]\n'
    batches = {message.batch.metric: message.batch for message in broker.read(topic, at_least=3)}
    assert LATE.counts(count(LATE, [batches["late"]])).tolist() == [0, 0, 0, 3]
    assert DELAY.counts(count(DELAY, [batches["delay"]])).tolist() == [0, 1, 0]
    assert CARRIER.counts(count(CARRIER, [batches["carrier"]])).tolist() == [1, 1]


HISTOGRAM, GAUGE, SUM = 0, 2, 3
EXPORT = """
async ([mapped, metrics]) => {
  const { DitherMetricExporter } = await load("opentelemetry/exporter.js");
  const values = [], gathered = [], begun = [];
  const device = {
    definition: async (name) => name === "page" ? { name } : { name, range: [0, 1] },
    report: async (...given) => { values.push(given.slice(0, 3)); },
    rollUp: async (metric, how) => {
      begun.push(how);
      const add = async (value = "active") => { gathered.push(value); };
      return { add, reportEnded: async () => { begun.push("reported"); } };
    },
  };
  const exporter = new DitherMetricExporter(device, mapped);
  const exported = () => new Promise((resolve) => {
    exporter.export({ scopeMetrics: [{ metrics }] }, resolve);
  });
  await exported();
  const dropped = Object.entries(exporter.dropped)
    .map(([name, reasons]) => [name, ...Object.keys(reasons)]);
  await exporter.shutdown();
  const before = values.length + gathered.length;
  await exported();
  const temporality = ["COUNTER", "UP_DOWN_COUNTER", "OBSERVABLE_UP_DOWN_COUNTER", "HISTOGRAM"]
    .map((one) => exporter.selectAggregationTemporality(one));
  return [begun, values, gathered, dropped, values.length + gathered.length - before, temporality];
}
"""


def test_an_instrument_becomes_one_value_and_its_attributes_do_not_leave(device: Modules) -> None:
    def data(name: str, kind: int, *points: Any, cumulative: bool = False, **more: Any) -> Any:
        """Each point is its value, the second at which it ended, and its attributes."""
        listed = [
            {"value": value, "endTime": [end, 0], "attributes": attributes}
            for value, end, attributes in points
        ]
        about = {"descriptor": {"name": name}, "dataPoints": listed, **more}
        return {**about, "dataPointType": kind, "aggregationTemporality": int(cumulative)}

    user = {"user": "secret"}
    times = {"count": 3, "sum": 12, "min": 1, "max": 9}
    counted: dict[str, Any] = {"isMonotonic": True}
    metrics = [
        data("counter", SUM, (2, 1, user), (3, 1, {}), **counted),
        data("level", SUM, (7, 1, {}), (-2, 1, user), cumulative=True),
        data("gauge", GAUGE, (9, 2, {}), (4, 1, {})),
        *(data(f"times {of}", HISTOGRAM, (times, 1, user)) for of in ("mean", "count", "largest")),
        data("views", SUM, (1, 1, {"page": "home"} | user), (3, 1, {"page": "help"}), **counted),
        data("opened", SUM, (1, 1, {}), **counted),
        data("idle", SUM, (0, 1, {}), **counted),
        data("added", GAUGE, (1, 1, {})),
        data("since the start", SUM, (5, 1, {}), cumulative=True, **counted),
        data("unmapped", SUM, (1, 1, user), **counted),
        data("wrong", SUM, (1, 1, {}), **counted),
        data("unlabelled", SUM, (1, 1, user), **counted),
    ]
    number: dict[str, Any] = {"metric": "number", "epsilon": 1}
    page: dict[str, Any] = {"metric": "page", "epsilon": 2, "category": "page"}
    active, summed = ({"how": how, "window": "1d", "of": "sum"} for how in ("active", "sum"))
    mapped = dict.fromkeys(("counter", "level", "gauge", "since the start"), number)
    mapped |= {f"times {of}": number | {"of": of} for of in ("mean", "count", "largest")}
    mapped |= {
        "opened": number | active,
        "idle": number | active,
        "added": number | summed | {"of": "sum"},
    }
    mapped |= {"views": page, "unlabelled": page, "wrong": {"metric": "page", "epsilon": 2}}
    begun, values, gathered, dropped, late, temporality = device.evaluate(EXPORT, [mapped, metrics])
    at_the_start = ["active", "active", "sum", "reported", "reported", "reported"]
    assert begun == at_the_start, "a report at an export would tell that something was measured"
    assert values == [*(["number", one, 1] for one in (5, 5, 9, 4, 3, 9)), ["page", "help", 2]]
    assert gathered == ["active"]
    assert dropped == [
        ["added", "not_additive"],
        ["since the start", "temporality"],
        ["unmapped", "unmapped"],
        ["wrong", "TypeError"],
        ["unlabelled", "no_attribute"],
    ]
    assert late == 0, "what is shut down reports nothing"
    assert temporality == [0, 1, 1, 0]


APP = """
import { Device } from "@dither/device";
import { DitherMetricExporter, type Mapped } from "@dither/opentelemetry";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";

async function app(): Promise<unknown> {
  let now = Date.now();
  const values: [unknown, unknown][] = [];
  const device = await Device.open("", { clock: () => now });
  const report = device.report.bind(device);
  device.report = (metric, value, ...rest) => {
    values.push([metric, value]);
    return report(metric, value, ...rest);
  };
  const number: Mapped = { metric: "late", epsilon: 1 };
  const mapped: Record<string, Mapped> = {
    counter: number, level: number, gauge: number, times: number,
    views: { metric: "page", epsilon: 64, category: "page" },
    opened: { metric: "used", epsilon: 64, how: "active", window: "1d" },
  };
  const exporter = new DitherMetricExporter(device, mapped);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const provider = new MeterProvider({ readers: [reader] });
  const meter = provider.getMeter("app");
  const counter = meter.createCounter("counter");
  const level = meter.createUpDownCounter("level");
  const views = meter.createCounter("views");
  counter.add(2, { place: "a" });
  counter.add(3, { place: "b" });
  level.add(7);
  meter.createGauge("gauge").record(4);
  const times = meter.createHistogram("times");
  [9, 1, 2].forEach((value) => times.record(value));
  views.add(1, { page: "home", user: "secret" });
  views.add(3, { page: "help" });
  meter.createCounter("opened").add(1);
  await provider.forceFlush();
  const first = values.splice(0);
  counter.add(4);
  level.add(-6);
  now += 90_000_000;
  await provider.shutdown();
  await (await device.rollUp("used", "active", "1d", 64)).reportEnded();
  return [first, values, exporter.dropped];
}
Object.assign(globalThis, { app });
"""
PAGE = define(
    name="page", kind="frequency", mechanism="grr", categories=["home", "help"], levels=[64]
)
USED = dataclasses.replace(LATE, name="used", levels=[64], pane="1d", lateness="2d")
"""At epsilon = 64 a report is the value, but for a chance of 10^-28."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_page_with_the_sdk_reports_what_its_instruments_measure(
    page: Page, package: NpmPackage, broker: Broker, topic: str
) -> None:
    app, tools = package.application, package.tools.parents[1] / "opentelemetry" / "node_modules"
    (tarball,) = run(["npm", "pack", "--silent"], cwd=tools.parent).split()[-1:]
    offline = ["npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]
    run([*offline, tools.parent / tarball], cwd=app)
    (app / "node_modules" / "@opentelemetry").symlink_to(tools / "@opentelemetry")
    (app / "app.ts").write_text(APP)
    check = ["--noEmit", "--strict", "--target", "es2022", "--module", "preserve"]
    run([tools / ".bin" / "tsc", *check, "--lib", "es2023,dom", "--types", "", "app.ts"], cwd=app)
    bundled = ["--bundle", "--format=esm", "--outfile=app.js"]
    run([tools / ".bin" / "esbuild", "app.ts", *bundled], cwd=app)
    known = {metric.name: metric for metric in (LATE, PAGE, USED)}

    async def shown(_: Request) -> Response:
        loaded = "<script type=module src=app.js></script>"
        return HTMLResponse(f"<!doctype html><title>app</title>{loaded}")

    async def script(_: Request) -> Response:
        return Response((app / "app.js").read_text(), media_type="text/javascript")

    async def describe(request: Request) -> Response:
        return JSONResponse(definition(known[request.path_params["name"]]))

    beside = [Route("/", shown), Route("/app.js", script), Route("/v1/metrics/{name}", describe)]
    with serving(Gateway(known, broker.config, topic), beside) as url:
        page.goto(url.removesuffix("v1/reports"))
        page.wait_for_function("() => globalThis.app")
        first, then, dropped = page.evaluate("() => globalThis.app()")
    assert sorted(map(str, first)) == sorted(
        map(str, [*(["late", one] for one in (5, 7, 4, 4)), ["page", "help"]])
    )
    assert sorted(map(str, then)) == sorted(map(str, [["late", 4], ["late", 1]]))
    assert dropped == {}
    batches = {message.batch.metric: message.batch for message in broker.read(topic, at_least=3)}
    assert count(PAGE, [batches["page"]]).tolist() == [1, 0, 1]
    assert USED.counts(count(USED, [batches["used"]])).tolist() == [1]
    for message in broker.read(topic):
        assert b"secret" not in message.batch.SerializeToString()
