"""Take the dashboard's pictures in docs/images: `python -m deploy.screenshots`.

It replays the flights as `dither demo` does, and looks at them in the middle of the year.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from aggregator.config.settings import load_settings
from aggregator.local.demo import Demonstration
from aggregator.local.demo_view import View

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
REPLAY_SECONDS = 500.0
LOOK_AFTER = 200.0
WATCH_MS = 15_000
PATIENCE_MS = 180_000
"""Milliseconds: how long a page watches the reports come in, and waits for its charts."""
READY_SCRIPT = """(whole) => {
  const charts = [...document.querySelectorAll(".history")].filter((one) =>
    one.checkVisibility() && (whole || one.getBoundingClientRect().top < innerHeight));
  const numbers = [...document.querySelectorAll("#operations dd.big")];
  return charts.length && charts.every((one) => one.querySelector("canvas"))
    && numbers.every((one) => /[0-9]/.test(one.textContent));
}"""


def take(browser: Browser, url: str, folder: Path) -> None:
    """Take all pictures of a server, one after the other."""
    for name, (width, height, scheme, fragment) in PICTURES.items():
        viewport: ViewportSize = {"width": width, "height": height}
        with browser.new_context(viewport=viewport, color_scheme=scheme) as context:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.goto(url + fragment)
            page.wait_for_timeout(WATCH_MS)
            is_full_page = name.startswith("desktop")
            page.wait_for_function(READY_SCRIPT, arg=is_full_page, timeout=PATIENCE_MS)
            page.screenshot(path=folder / f"{name}.png", full_page=is_full_page)
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
