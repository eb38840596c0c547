"""Schedules: ``python -m tests.models.simulation --schedules 20000 --seed 0``."""

from __future__ import annotations

import multiprocessing
import sys
import time

import click

from tests.models.simulation.runs import Tally, run, story


@click.command()
@click.option("--schedules", default=1_000, show_default=True, help="How many to run.")
@click.option("--seed", default=0, show_default=True, help="The first one's seed.")
@click.option("--processes", default=1, show_default=True, help="Run them in so many processes.")
@click.option("--schedule", type=int, help="Run this one alone and print its steps.")
def main(schedules: int, seed: int, processes: int, schedule: int | None) -> None:
    """Run workers against models of Kafka and Redis that fail, as seeds decide."""
    if schedule is not None:
        outcome = run(schedule, keep_trace=True)
        click.echo("\n".join(story(outcome)))
        sys.exit(bool(outcome.violation))
    began = time.monotonic()
    tally = Tally()
    with multiprocessing.Pool(processes) as pool:
        for outcome in pool.imap_unordered(run, range(seed, seed + schedules), chunksize=20):
            tally.add(outcome)
            if outcome.violation:
                click.echo("\n".join([*story(outcome), ""]))
    click.echo("\n".join(tally.lines(time.monotonic() - began)))
    sys.exit(bool(tally.failed))


if __name__ == "__main__":
    main()
