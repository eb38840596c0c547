"""The npm package reports to a real gateway, from Node.js and from Chromium, and has its types."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from producers.gateway import Gateway
from tests.support.paths import ROOT
from tests.support.running.broker import CARRIER, DELAY, LATE, METRICS, Broker, count
from tests.support.running.gateway_server import serving
from tests.support.running.npm_package import SOURCE, NpmPackage, npm_package, run
from tests.support.running.served import definition

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_BYTES = 60_000
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
TYPED = """
import {
  type Account, type Definition, type Failure, type PostOptions, BudgetSpent, DeliveryError, Device,
  denyRule, randomize, report,
} from "@dither/device";

const definition: Definition = await (await fetch("/v1/metrics/late")).json();
const options: PostOptions = { attempts: 3 };
const rule: (text: string) => boolean = denyRule({ presets: ["email"] });
try {
  const answer = await report("/v1/reports", definition, [1, 0], 0.5, options);
  const reports: number = answer.reports;
  const bytes: Uint8Array = randomize(definition, 1, 0.5).report;
  console.log(reports, bytes.length, rule("a@b.org"));
} catch (error) {
  if (error instanceof DeliveryError) console.log(error.status, error.body.length);
}
const failures: Failure[] = [];
const device = await Device.open("", { budget: 2, onFailure: (failure) => failures.push(failure) });
try {
  const { denied }: { denied: number } = await device.report("late", [1, 0], 0.5, { time: 7 });
  const accounts: Map<string, Account> = await device.ledger.accounts();
  const clicks = await device.rollUp("clicks", "count", "1d", 1);
  await clicks.add();
  const reported: number = await clicks.reportEnded();
  console.log(denied, accounts.size, reported, (await device.totals("late")).left);
} catch (error) {
  if (error instanceof BudgetSpent) console.log(error.left, error.freeAt?.toISOString());
}
// @ts-expect-error: a window has a length
await device.rollUp("clicks", "count");
// @ts-expect-error: the epsilon is no text
await report("/v1/reports", definition, 1, "0.5");
// @ts-expect-error: a definition has levels
randomize({ name: "late", mechanism: "grr", revision: 1 }, 1, 1);
"""
CHECK = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--types", ""]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> NpmPackage:
    return npm_package(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic()


@pytest.fixture
def gateway(broker: Broker, topic: str, package: NpmPackage) -> Iterator[str]:
    """A gateway, beside a page and the installed module."""
    installed = package.application / "node_modules" / "@dither" / "device" / "dist"

    async def page(_: Request) -> Response:
        return HTMLResponse("<!doctype html><title>shop</title>")

    async def module(_: Request) -> Response:
        return Response((installed / "dither.js").read_bytes(), media_type="text/javascript")

    beside = [Route("/", page), Route("/dither.js", module)]
    known = {metric.name: metric for metric in METRICS}
    with serving(Gateway(known, broker.config, topic), beside) as url:
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
def test_the_sources_and_a_program_have_their_types(package: NpmPackage) -> None:
    """Packing has checked the sources; what is declared is enough for a strict program."""
    (package.application / "program.ts").write_text(TYPED)
    run([str(package.tools / "tsc"), *CHECK, "program.ts"], package.application)


@pytest.mark.more
def test_it_reports_from_node(
    package: NpmPackage, gateway: str, broker: Broker, topic: str
) -> None:
    definitions = [json.dumps(definition(metric)) for metric in (LATE, DELAY, CARRIER)]
    assert package.node(PROGRAM, gateway, *definitions) == '[3,1,2,"StorageError"]\n'
    batches = {message.batch.metric: message.batch for message in broker.read(topic, at_least=3)}
    assert LATE.counts(count(LATE, [batches["late"]])).tolist() == [0, 0, 0, 3]
    assert DELAY.counts(count(DELAY, [batches["delay"]])).tolist() == [0, 1, 0]
    assert CARRIER.counts(count(CARRIER, [batches["carrier"]])).tolist() == [1, 1]


@pytest.mark.slow
def test_it_reports_from_a_page(page: Page, gateway: str, broker: Broker, topic: str) -> None:
    page.goto(gateway.removesuffix("v1/reports"))
    found = page.evaluate(
        """async (definition) => {
          const { Device } = await import("/dither.js");
          const device = await Device.open("", { budget: 4 });
          const { reports } = await device.report(definition, [-5, 180], 2);
          await device.flush();
          return [reports, await device.ledger.left()];
        }""",
        definition(DELAY),
    )
    (message,) = broker.read(topic)
    assert (found, message.batch.metric, len(message.batch.levels)) == ([2, 0], "delay", 2)
