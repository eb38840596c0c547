"""The modules of browsers in Node.js, Debian's Chromium, and a running Dither to look at."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from numpy.typing import NDArray

from deploy.kafka.cluster import free_ports
from estimators.exact.randomness import SeededBits
from producers import Reporter
from tests.support.paths import ROOT
from tests.support.running import servers
from tests.support.running.broker import Broker
from tests.support.running.deployment import Deployment

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

PATIENCE = 60_000
"""Milliseconds: of a machine that has other things to do."""
FOLLOWS = re.compile("Live|Idle")
"""What the first page says while its numbers follow the reports."""
UNUSED_FEATURES = (
    # Each new window would load these: most of what a page costs.
    *("WebUIOmniboxAimPopup", "WebUIOmniboxPopup", "SpareRendererForSitePerProcess"),
    # Playwright's own choice, which ours replaces: nothing asks other hosts.
    *("HttpsUpgrades", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints"),
    "PreconnectToSearch",
)
"""What Chromium starts without."""
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
METRICS = f"""
[metrics]
wait = {{description = "Time in the queue", unit = "minutes", kind = "mean", \
mechanism = "randomized_response", range = [0, 100], levels = [1, 2, 4], pane = "1h", \
lateness = "1h"}}
carrier = {{description = "Who it was", kind = "frequency", mechanism = "rappor", \
categories = ["AA", {json.dumps(HOSTILE)}, "DL", "UA"], levels = [2, 4], pane = "1h"}}
drift = {{unit = "km/h", kind = "vector_mean", mechanism = "hemisphere", coordinates = ["north", \
"east"], radius = 10, levels = [2, 4], pane = "1h"}}
page = {{kind = "frequency", mechanism = "count_sketch", categories = "open", \
options = {{rows = 64, buckets = 32}}, levels = [4], pane = "1h"}}
few = {{kind = "mean", mechanism = "laplace", range = [0, 1], levels = [1], pane = "1h", \
minimum_reports = 1000}}
silent = {{kind = "mean", mechanism = "laplace", range = [0, 1], levels = [1]}}
"""


class Modules:
    """The modules that browsers load, in one process of Node.js."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def evaluate(self, script: str, given: object = None) -> Any:
        """Return what a function of JavaScript makes of a value; `dither` is the module."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        call = f"({script})({json.dumps(given)})"  # JavaScript has Infinity, which JSON has not
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def error_of(self, script: str, given: object = None) -> str:
        """Return the name and the message of what a function of JavaScript throws."""
        caught = f"""async (given) => {{
          try {{ return `no error, but ${{await ({script})(given)}}`; }}
          catch ({{name, message}}) {{ return `${{name}}: ${{message}}`; }}
        }}"""
        return str(self.evaluate(caught, given))


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Modules]:
    """Node.js with what `/static` serves, started once, far from UTC."""
    node = servers.program("node", "install Node.js (Debian: nodejs)")
    folder = tmp_path_factory.mktemp("static")
    for source in ("producers/browser", "aggregator/web/static"):
        skipped = shutil.ignore_patterns("node_modules", "dist", "vendor")
        shutil.copytree(ROOT / source, folder, ignore=skipped, dirs_exist_ok=True)
    command = [str(node), str(Path(__file__).with_name("modules.mjs")), str(folder)]
    pipe, nepal = subprocess.PIPE, {**os.environ, "TZ": "Asia/Kathmandu", "LC_ALL": "de_DE"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=nepal) as process:
        yield Modules(process)
        process.kill()


@pytest.fixture(scope="session")
def broker() -> Broker:
    return Broker()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic()


def expect(what: Locator) -> Any:
    """Wait until what is said next of a part of a page is so."""
    from playwright.sync_api import expect

    return expect(what)


@dataclasses.dataclass
class Running:
    """A browser, and the event loop of playwright, which stays in this thread."""

    browser: Browser
    loop: asyncio.AbstractEventLoop


@pytest.fixture(scope="session")
def running_chromium() -> Iterator[Running]:
    binary = servers.program("chromium", "install Chromium (Debian: chromium)")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(PATIENCE)
    with sync_playwright() as playwright:
        unused = f"--disable-features={','.join(UNUSED_FEATURES)}"
        browser = playwright.chromium.launch(
            executable_path=str(binary),
            args=["--no-sandbox", "--disable-gpu", unused],
            timeout=PATIENCE,
        )
        running = Running(browser, asyncio.get_running_loop())
        asyncio._set_running_loop(None)
        yield running
        asyncio._set_running_loop(running.loop)
        browser.close()


@pytest.fixture
def chromium(running_chromium: Running) -> Iterator[Browser]:
    """The browser of this process; while a test has it, no other event loop runs here."""
    asyncio._set_running_loop(running_chromium.loop)
    yield running_chromium.browser
    asyncio._set_running_loop(None)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page of its own; what it throws or logs as an error fails the test."""
    with chromium.new_context() as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        assert errors == []


@dataclasses.dataclass
class Visitor:
    """Opens pages and watches them: errors, refused content and requests to other hosts."""

    browser: Browser
    stack: contextlib.ExitStack
    errors: list[str] = dataclasses.field(default_factory=list)
    hosts: set[str] = dataclasses.field(default_factory=set)
    own: set[str] = dataclasses.field(default_factory=set)

    def open(self, url: str, **options: Any) -> Page:
        """Open a page in a context of its own: another person's browser.

        That person asks for no animations, unless `options` say otherwise: drawing them takes more
        processor time than all else that a page does.
        """
        usual: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
        usual |= {"reduced_motion": "reduce", **options}
        page = self.stack.enter_context(self.browser.new_context(**usual)).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console", lambda told: self.errors.append(told.text) if told.type == "error" else None
        )
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.own.add(urlsplit(url).netloc)
        page.goto(url)
        return page

    def expect(self, pattern: str) -> None:
        """Take out errors that a test has provoked; there has to be one."""
        expected = [error for error in self.errors if re.search(pattern, error)]
        assert expected, f"no error like {pattern!r} among {self.errors}"
        self.errors = [error for error in self.errors if error not in expected]


@pytest.fixture
def visitor(chromium: Browser) -> Iterator[Visitor]:
    """Whoever looks at the pages; at the end, nothing was wrong with any of them."""
    with contextlib.ExitStack() as stack:
        visitor = Visitor(chromium, stack)
        yield visitor
        assert visitor.errors == []
        assert visitor.hosts <= visitor.own


@dataclasses.dataclass
class Site:
    """A deployment that counts, and the server of its dashboard."""

    deployment: Deployment
    flags: list[str]
    port: int = dataclasses.field(default_factory=lambda: free_ports(1)[0])
    serving: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start `dither serve` and wait until it answers."""
        sets = [f"--set={flag}" for flag in self.flags]
        self.serving.enter_context(self.deployment.serving(*sets, port=self.port))

    def stop(self) -> None:
        """Stop the server."""
        self.serving.close()

    def report(
        self, metric: str, values: Any, epsilons: NDArray[np.float64], time: str, seed: int
    ) -> None:
        """Let devices report; the same seed makes the same reports."""
        definition = self.deployment.metrics[metric]
        config = self.deployment.properties
        options: dict[str, Any] = {"topic": self.deployment.topic, "bits": SeededBits(seed)}
        trusted = definition.sends_true_values
        with Reporter(
            definition, config, batch_reports=5000, trusted=trusted, **options
        ) as reporter:
            reporter.report(values, epsilons, np.datetime64(time))
        self.deployment.wait_until_counted()


Sites = Callable[..., contextlib.AbstractContextManager[Site]]


@pytest.fixture(scope="module")
def site_of() -> Sites:
    """How to serve a deployment, with settings of one's own."""

    @contextlib.contextmanager
    def serving(deployment: Deployment, *flags: str) -> Iterator[Site]:
        site = Site(deployment, list(flags))
        site.start()
        with site.serving:
            yield site

    return serving


@pytest.fixture(scope="module")
def site_of_metrics(
    kafka: servers.Kafka,
    redis_server: servers.Redis,
    tmp_path_factory: pytest.TempPathFactory,
    site_of: Sites,
) -> Sites:
    """How to count metrics that are defined in TOML, and serve them; anybody may do everything."""

    @contextlib.contextmanager
    def serving(definitions: str, *flags: str) -> Iterator[Site]:
        redis_server.clear()
        file = Path(tmp_path_factory.mktemp("site")) / "metrics.toml"
        file.write_text(definitions)
        deployment = Deployment(kafka, redis_server.url, file)
        everything = "access.anonymous=read,report,admin"
        with deployment.store, deployment.worker(), site_of(deployment, everything, *flags) as site:
            yield site

    return serving


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, site_of_metrics: Sites) -> Iterator[Site]:
    """A site of the module's own `METRICS`, or of these, with its `FLAGS`."""
    definitions = getattr(request.module, "METRICS", METRICS)
    with site_of_metrics(definitions, *getattr(request.module, "FLAGS", ())) as site:
        yield site


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


def until(condition: Callable[[], bool], page: Page, what: str) -> None:
    """Look until the page shows it; the page lives on meanwhile."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        page.wait_for_timeout(50)
