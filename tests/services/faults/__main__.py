"""`make faults`: random schedules of faults against real workers, brokers and Redis."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue

from deploy.kafka import launcher
from tests.services.faults.arena import Arena, Lane
from tests.services.faults.play import Outcome, play
from tests.services.faults.schedules import KINDS, draw


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.services.faults", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (default: 0)")
    parser.add_argument("--schedule", type=int, help="play the schedule of this seed alone")
    parser.add_argument("--lanes", type=int, default=3, help="how many at a time (default: 3)")
    asked = parser.parse_args()
    if lacking := launcher.missing():
        print(f"Apache Kafka cannot run here: {lacking}", file=sys.stderr)
        return 2
    if asked.schedule is None:
        seeds = list(range(asked.seed, asked.seed + asked.schedules))
    else:
        seeds = [asked.schedule]
        print(*draw(asked.schedule).faults, sep="\n")
    folder = Path(tempfile.mkdtemp(prefix="dither-faults-"))
    began = time.monotonic()
    with Arena(folder, min(asked.lanes, len(seeds))) as arena:
        print(
            f"three brokers are there after {time.monotonic() - began:.1f} s; in {folder}",
            flush=True,
        )
        outcomes = run(arena, seeds)
    print(table(outcomes, time.monotonic() - began))
    return int(any(outcome.problems for outcome in outcomes))


def run(arena: Arena, seeds: list[int]) -> list[Outcome]:
    """Play schedules, one in each lane at a time, telling how it goes."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    outcomes: list[Outcome] = []

    def work(lane: Lane) -> None:
        while True:
            try:
                outcome = play(lane, draw(waiting.get_nowait()))
            except Empty:
                return
            outcomes.append(outcome)
            tell(outcome, len(outcomes), len(seeds))

    threads = [threading.Thread(target=work, args=[lane]) for lane in arena.lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def tell(outcome: Outcome, done: int, of: int) -> None:
    """Print a line about a schedule, and what was wrong."""
    verdict = "FAILED" if outcome.problems else "ok"
    faults = ", ".join(sorted(outcome.faults.elements()))
    far = ", brokers far" if outcome.schedule.round_trip else ""
    print(
        f"{done}/{of} seed {outcome.schedule.seed}: {verdict}{far}, {outcome.messages} messages, "
        f"{outcome.owners} takeovers, {outcome.finals} finals after {outcome.final_seconds:.1f} s, "
        f"{outcome.seconds:.1f} s; {faults}",
        flush=True,
    )
    for problem in outcome.problems:
        print(f"    {problem}", flush=True)


def table(outcomes: list[Outcome], seconds: float) -> str:
    """Return what happened, by kind of fault, and what came of it."""
    faults = sum((outcome.faults for outcome in outcomes), Counter[str]())
    wide = max(map(len, KINDS))
    failed = sorted(outcome.schedule.seed for outcome in outcomes if outcome.problems)
    counted = {
        name: sum(getattr(outcome, name) for outcome in outcomes)
        for name in ("messages", "reports", "dead", "owners", "restarted", "torn", "finals")
    }
    longest = max((outcome.final_seconds for outcome in outcomes), default=0.0)
    return "\n".join(
        [
            f"{len(outcomes)} schedules in {seconds / 60:.1f} minutes, {faults.total():,} faults:",
            *(f"  {kind:{wide}} {faults[kind]:6,}" for kind in KINDS),
            *(f"{number:,} {name}" for name, number in counted.items()),
            f"every pane had its final event within {longest:.1f} s after the last fault",
            f"{len(failed)} schedules with a difference: seeds {failed}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
