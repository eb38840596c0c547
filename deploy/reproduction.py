"""Run the commands of docs/reproduction.md again, and replace their output and figures.

``python deploy/reproduction.py`` runs all of them, which takes hours; ``... NAME NAME`` runs some.
Each block is written as soon as its command has ended, so the program may be interrupted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
BLOCK = re.compile(
    r"```\n\$ dither reproduce (?P<name>[\w-]+)(?P<options>.*)\n(?P<printed>[^`]*)```"
)
WRITING = threading.Lock()


def image(name: str) -> Path:
    """Return the path of an experiment's figure."""
    return PAGE.parent / "images" / "reproduction" / f"{name}.png"


def again(name: str, options: list[str]) -> str:
    """Run a command, with its figure if the page shows one, and return what it prints."""
    plot = ["--plot", str(image(name))] if f"reproduction/{name}.png" in PAGE.read_text() else []
    command = [sys.executable, "-m", "aggregator", "reproduce", name, *options, *plot]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}, and it said nothing")
    return done.stdout.rstrip("\n")


def renew(block: re.Match[str]) -> None:
    """Replace a block of the page by what its command prints now."""
    name, options = block["name"], block["options"]
    printed = again(name, options.split())
    with WRITING:
        page = PAGE.read_text()
        head = f"```\n$ dither reproduce {name}{options}\n"
        text_before, separator, text_after = page.partition(head)
        if not separator:
            raise RuntimeError(f"{PAGE}: the block of {name} has gone")
        PAGE.write_text(f"{text_before}{head}{printed}\n```{text_after.partition('```')[2]}")
    print(f"{name}: {'NOT AS EXPECTED' if 'DIFFERS' in printed or 'FAILS' in printed else 'done'}")


def main() -> None:
    """Renew all blocks, or those named on the command line."""
    blocks = list(BLOCK.finditer(PAGE.read_text()))
    names = [block["name"] for block in blocks]
    wanted = sys.argv[1:] or names
    if missing := set(wanted) - set(names):
        sys.exit(f"{PAGE} has no block of {', '.join(sorted(missing))}; it has {', '.join(names)}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(renew, (block for block in blocks if block["name"] in wanted)))


if __name__ == "__main__":
    main()
