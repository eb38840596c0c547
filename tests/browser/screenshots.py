"""Take the pictures of the dashboard in docs/images: `python -m tests.browser.screenshots`.

It replays the flights as `dither demo` does and looks at them when the year is over.
"""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from aggregator.demonstration import Demonstration
from aggregator.settings import load_settings

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DESKTOP, PHONE = (1600, 1000), (390, 844)
PICTURES = {
    "dashboard-light": (DESKTOP, "light", ""),
    "dashboard-dark": (DESKTOP, "dark", ""),
    "dashboard-phone-light": (PHONE, "light", ""),
    "dashboard-phone-dark": (PHONE, "dark", ""),
    "metric-light": (DESKTOP, "light", "#metric=carrier"),
    "metric-dark": (DESKTOP, "dark", "#metric=late&window=90d"),
}
REPLAY_SECONDS = 30.0
PATIENCE = 60_000
SAMPLES = 15_000
"""Milliseconds that the first page watches the rate of reports."""


def take(browser: Browser, url: str, folder: Path) -> None:
    """Take all pictures of a server."""
    for name, (size, scheme, place) in PICTURES.items():
        viewport = {"width": size[0], "height": size[1]}
        context = browser.new_context(viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url + place)
        page.wait_for_function(
            "() => { const all = [...document.querySelectorAll('.history')];"
            " return all.length && all.every((one) => one.querySelector('canvas')); }",
            timeout=PATIENCE,
        )
        page.wait_for_timeout(SAMPLES)
        page.screenshot(path=folder / f"{name}.png")
        context.close()
        print(folder / f"{name}.png")


def main() -> None:
    """Replay, look, and write the pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not on the PATH: install it (Debian: chromium)")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Demonstration(load_settings(), REPLAY_SECONDS, workers=1, seed=2013) as demonstration:
        demonstration.run(lambda _: None)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser, demonstration.url, IMAGES)
            browser.close()


if __name__ == "__main__":
    main()
