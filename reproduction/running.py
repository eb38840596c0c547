"""Runs experiments on published records, several at a time, and shows their progress."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait

import click

from aggregator.errors import DitherError
from reproduction.datasets import read_records
from reproduction.experiments import EXPERIMENTS, Outcome
from reproduction.outcome import Tick
from reproduction.records import Records

LOOK_SECONDS = 0.5
STEPS_SHOWN = 1_000


def read_all(places: Sequence[str], names: Sequence[str]) -> Records:
    """Read the records at `places` for the experiments with these names.

    Raises
    ------
    DitherError
        If none of the experiments takes the records of a file, or a file cannot be read.
    """
    records = Records()
    takes = {part for name in names for part in EXPERIMENTS[name].takes}
    for place in places:
        read = read_records(place)
        if not read.held & takes:
            able = [
                key for key, experiment in EXPERIMENTS.items() if read.held & set(experiment.takes)
            ]
            raise DitherError(
                f"--data {place} ({read.told[0]}): {' and '.join(names)} cannot be run on it; "
                f"{' and '.join(able)} can"
            )
        records = records.joined(read)
    return records


def outcomes(
    repeats: Mapping[str, int], seed: int, records: Records, jobs: int
) -> Iterator[tuple[str, Outcome]]:
    """Run experiments, several at a time, and yield their outcomes in order.

    The numbers are the same for every number of jobs: each experiment has its own generators.

    Parameters
    ----------
    repeats : mapping of str to int
        The number of runs of each experiment, by its key.
    seed : int
        The seed of all experiments.
    records : Records
        The records, for experiments that take some.
    jobs : int
        The number of processes.
    """
    if len(repeats) == 1 or jobs == 1:
        for key, runs in repeats.items():
            with _progress(key) as tick:
                outcome = run(key, runs, seed, records, tick)
            yield key, outcome
        return
    # spawned, since a fork would copy the threads of this process
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _end_with_parent) as pool:
        futures = {key: pool.submit(run, key, runs, seed, records) for key, runs in repeats.items()}
        for key, future in futures.items():
            with _progress(f"{len(futures)} experiments") as tick:
                while not wait([future], LOOK_SECONDS).done:
                    tick(sum(finished.done() for finished in futures.values()) / len(futures))
            yield key, future.result()


@contextlib.contextmanager
def _progress(label: str) -> Iterator[Tick]:
    """Show on a terminal the finished share and the remaining time."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=STEPS_SHOWN, label=label, file=sys.stderr, hidden=hidden) as bar:
        yield lambda share: bar.update(round(STEPS_SHOWN * share) - bar.pos)


def _end_with_parent() -> None:
    """End this process when its parent ends, because the queue between them does not show that."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, name="parent", daemon=True).start()


def run(
    key: str, runs: int, seed: int, records: Records, tick: Tick = lambda share: None
) -> Outcome:
    """Run an experiment, on the records if it takes any of them, and return its outcome.

    Parameters
    ----------
    key : str
        One of :data:`reproduction.experiments.EXPERIMENTS`.
    runs : int
        The number of runs.
    seed : int
        The same seed and runs give the same numbers.
    records : Records
        Used if the experiment takes some of them.
    tick : Tick
        Called with the share that is done.
    """
    experiment = EXPERIMENTS[key]
    taken = [records] if records.held & set(experiment.takes) else []
    return experiment.run(runs, seed, tick, *taken)
