"""What `dither serve` spends while reports arrive and people look at the dashboard."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.timestamps import iso
from benchmarks.measure import CannotRunError, Figure, stage
from benchmarks.metrics import reports_of
from benchmarks.places import Places
from benchmarks.steady import processor_seconds
from benchmarks.workers import meanwhile, served, workers
from estimators import define
from producers.wire.batch import encode_randomized

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FEW_METRICS, MANY_METRICS = 12, 270
PAGES = 3
HISTORY_HOURS = 7 * 24
HOUR_MS = 3_600_000
BATCH_REPORTS = 50
SETTLING_SECONDS, MEASURED_SECONDS = 30.0, 60.0
LEVELS = (1, 2, 4)
QUESTIONS: Sequence[Mapping[str, Any]] = (
    {"kind": "mean", "mechanism": "windows", "range": (-60, 180)},
    {"kind": "frequency", "mechanism": "hadamard_response", "categories": 20},
    {"kind": "mean", "mechanism": "randomized_response", "range": (0, 1)},
    {"kind": "distribution", "mechanism": "dyadic_hadamard", "range": (-60, 180)},
)
"""The metrics have these questions in turn, so half of the metrics are means."""
NUMBER_SCRIPT = """() => [...document.querySelectorAll(".figure .value")]
  .some((one) => /[0-9]/.test(one.textContent))"""
"""Returns whether a number is on the page."""


@stage("live")
def live(places: Places) -> Iterator[Figure]:
    """Processor time of `dither serve` while each metric has a batch a second, and people look."""
    places.need_workers()
    chromium = shutil.which("chromium")
    if chromium is None:
        raise CannotRunError("needs Chromium (Debian: chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch
        with launched(executable_path=chromium, args=["--no-sandbox"]) as browser:
            for metrics in (FEW_METRICS, places.sized(MANY_METRICS)):
                yield from _looks(places, browser, metrics)


def _looks(places: Places, browser: Browser, count: int) -> Iterator[Figure]:
    """Yield the service's processor time a minute with no page, one page and further pages."""
    metrics = [
        define(name=f"metric{n}", levels=LEVELS, pane="1h", **QUESTIONS[n % len(QUESTIONS)])
        for n in range(count)
    ]
    seconds = places.sized(round(1000 * MEASURED_SECONDS)) / 1000
    pages: list[Page] = []
    name = f"live/{count} metrics"
    topic, rng = places.topic(), np.random.default_rng(7)
    templates = [reports_of(metric, BATCH_REPORTS) for metric in metrics]

    def batches(time_ms: int) -> list[bytes]:
        """Return a batch of each metric, in any order: each for any partition."""
        payloads = []
        for number in rng.permutation(count):
            level, answers = templates[number]
            payloads.append(
                encode_randomized(metrics[number], level, answers, time_ms, os.urandom(16))
            )
        return payloads

    now_ms = time.time_ns() // 1_000_000
    history = range(now_ms - HISTORY_HOURS * HOUR_MS, now_ms, HOUR_MS)
    with workers(places, topic, metrics) as running:
        running.wait_for(places.fill(topic, itertools.chain.from_iterable(map(batches, history))))
        publishing = {"publish.enabled": True, "topics.estimates": places.topic(1)}
        publishing["publish.since"] = iso(time.time_ns() // 10**6)  # not the history
        with (
            meanwhile(places, topic, batches, 1.0),
            served(places, topic, metrics, **publishing) as (pid, _),
        ):
            published = _spent_a_minute(pid, seconds)
            yield Figure(f"{name}/nobody looks, totals are published", published, "core s/min")
        with meanwhile(places, topic, batches, 1.0), served(places, topic, metrics) as (pid, port):
            nobody = _spent_a_minute(pid, seconds)
            yield Figure(f"{name}/nobody looks", nobody, "core s/min")
            before = processor_seconds([pid])
            pages.append(_open(browser, port))
            spent = processor_seconds([pid]) - before
            yield Figure(f"{name}/until the first number of a page", spent, "core s")
            pages[0].wait_for_timeout(1000 * min(seconds, SETTLING_SECONDS))
            alone = _spent_a_minute(pid, seconds, pages[0])
            yield Figure(f"{name}/one page", alone, "core s/min")
            if count == FEW_METRICS:
                pages += [_open(browser, port) for _ in range(PAGES)]
                pages[0].wait_for_timeout(1000 * min(seconds, SETTLING_SECONDS))
                together = _spent_a_minute(pid, seconds, pages[0])
                yield Figure(f"{name}/a further page", (together - alone) / PAGES, "core s/min")
    for page in pages:
        page.context.close()


def _open(browser: Browser, port: int) -> Page:
    """Open the first page in a context of its own, and wait for its first number."""
    page = browser.new_context(reduced_motion="reduce").new_page()
    page.goto(f"http://127.0.0.1:{port}/")
    page.wait_for_function(NUMBER_SCRIPT, polling=20)
    return page


def _spent_a_minute(pid: int, seconds: float, page: Page | None = None) -> float:
    """Return the processor time of a process in a minute, while the pages continue."""
    began, before = time.monotonic(), processor_seconds([pid])
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(1000 * seconds)
    return (processor_seconds([pid]) - before) / (time.monotonic() - began) * 60
