"""Take the dashboard's pictures in docs/images: `python -m deploy.screenshots`.

It replays the flights as `dither demo` does, and takes the pictures when the year is over.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, Request, ViewportSize, sync_playwright

from aggregator.config.settings import load_settings
from aggregator.local.demo import Demonstration

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PICTURES: dict[str, tuple[int, int, Literal["light", "dark"], str]] = {
    "desktop-light": (1440, 1300, "light", ""),
    "phone-dark": (390, 844, "dark", "#metric=late"),
    "desktop-dark": (1440, 1300, "dark", ""),
    "phone-light": (390, 844, "light", ""),
    "metric-light": (1600, 1000, "light", "#metric=late"),
    "funnel-light": (1100, 860, "light", "#metric=journey"),
    "table-light": (1100, 860, "light", "#metric=caught_up"),
}
REPLAY_SECONDS = 200.0
SETTLING_MS = 5_000
PATIENCE_MS = 180_000
"""How many milliseconds a page has to begin reading, and to show its charts."""
READY_SCRIPT = """(whole) => {
  const charts = [...document.querySelectorAll(".history")].filter((one) =>
    one.checkVisibility() && (whole || one.getBoundingClientRect().top < innerHeight));
  const numbers = [...document.querySelectorAll("#operations dd.big")];
  return charts.length && charts.every((one) => one.querySelector("canvas"))
    && numbers.every((one) => /[0-9]/.test(one.textContent));
}"""

SEARCHES_SCRIPT = """(unready) => {
  const searches = [...document.querySelectorAll(".found .unit")];
  return searches.length && !searches.some((one) => one.textContent.match(unready));
}"""


def take(browser: Browser, url: str, folder: Path) -> None:
    """Take all pictures of a server, one after the other."""
    for name, (width, height, scheme, fragment) in PICTURES.items():
        viewport: ViewportSize = {"width": width, "height": height}
        with browser.new_context(viewport=viewport, color_scheme=scheme) as context:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            pending = pending_requests(page)
            page.goto(url + fragment)
            page.wait_for_timeout(SETTLING_MS)
            is_full_page = name.startswith("desktop")
            if is_full_page:  # cards read only what is on the screen
                page_height = page.evaluate("document.documentElement.scrollHeight")
                page.set_viewport_size({"width": width, "height": page_height})
                page.wait_for_timeout(SETTLING_MS)
                page.wait_for_function(SEARCHES_SCRIPT, arg="Reading")
                for button in page.get_by_text("Find strings").all():
                    if button.is_visible():  # the next page has what was found
                        button.click()
                page.mouse.move(0, 0)
                page.wait_for_function(SEARCHES_SCRIPT, arg="Reading|earch")
            while any(request.url.startswith(f"{url}v1/metrics/") for request in pending):
                page.wait_for_timeout(SETTLING_MS)
            page.wait_for_function(READY_SCRIPT, arg=is_full_page, timeout=PATIENCE_MS)
            page.screenshot(path=folder / f"{name}.png", full_page=is_full_page)
        sys.stdout.write(f"{folder / name}.png\n")


def pending_requests(page: Page) -> set[Request]:
    """Return the set of a page's requests without an answer; the set stays up to date."""
    pending: set[Request] = set()
    page.on("request", lambda request: pending.add(request))
    page.on("requestfinished", lambda request: pending.discard(request))
    page.on("requestfailed", lambda request: pending.discard(request))
    return pending


def main() -> None:
    """Replay the flights, and take the pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not on the PATH: install it (Debian: chromium)")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Demonstration(load_settings(), REPLAY_SECONDS, workers=1, seed=2013) as demonstration:
        demonstration.run()
        demonstration.finish()
        with sync_playwright() as playwright:
            launched = playwright.chromium.launch
            with launched(executable_path=chromium, args=["--no-sandbox"]) as browser:
                take(browser, demonstration.url, IMAGES)


if __name__ == "__main__":
    main()
