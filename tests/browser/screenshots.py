"""Take the pictures of the dashboard in docs/images: `python -m tests.browser.screenshots`.

It replays the flights as `dither demo` does, and looks at them in the middle of the year.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from aggregator.demonstration import Demonstration, View
from aggregator.settings import load_settings

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PICTURES: dict[str, tuple[int, int, Literal["light", "dark"], str]] = {
    "desktop-light": (1600, 1000, "light", ""),
    "desktop-dark": (1600, 1000, "dark", ""),
    "phone-light": (390, 844, "light", ""),
    "phone-dark": (390, 844, "dark", "#metric=carrier"),
    "metric-light": (1600, 1000, "light", "#metric=late"),
}
REPLAY_SECONDS = 240.0
LOOK_AFTER = 110.0
WATCH = 30_000
PATIENCE = 60_000
"""Milliseconds: how long the pages watch the reports come in, and wait for their charts."""
READY = """() => {
  const charts = [...document.querySelectorAll(".history")];
  return charts.length && charts.every((one) => one.querySelector("canvas"));
}"""


def take(browser: Browser, url: str, folder: Path) -> None:
    """Take all pictures of a server."""
    pages = {}
    for name, (width, height, scheme, place) in PICTURES.items():
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(url + place)
        pages[name] = page
    for page in pages.values():
        page.wait_for_function(READY, timeout=PATIENCE)
    page.wait_for_timeout(WATCH)
    for name, page in pages.items():
        page.screenshot(path=folder / f"{name}.png")
        sys.stdout.write(f"{folder / name}.png\n")


def main() -> None:
    """Replay, look, and write the pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not on the PATH: install it (Debian: chromium)")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Demonstration(load_settings(), REPLAY_SECONDS, workers=1, seed=2013) as demonstration:
        left = [IMAGES]

        def look(view: View) -> None:
            if view.seconds > LOOK_AFTER and left:
                with sync_playwright() as playwright:
                    launch = playwright.chromium.launch
                    browser = launch(executable_path=chromium, args=["--no-sandbox"])
                    take(browser, demonstration.url, left.pop())
                    browser.close()

        demonstration.run(look)


if __name__ == "__main__":
    main()
