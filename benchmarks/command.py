"""The command behind `dither bench` and `python -m benchmarks`: run the benchmarks, or some."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import structlog

from benchmarks import (
    accumulate,
    ask,
    commit,
    consume,
    count,
    discover,
    encode,
    end_to_end,
    gateway,
    growth,
    latency,
    memory,
    produce,
    publish,
    randomize,
    read,
    scrape,
    slices,
    takeover,
    users,
    window,
)
from benchmarks.machine import described
from benchmarks.measure import (
    ENOUGH_SECONDS,
    Benchmark,
    CannotRunError,
    Figure,
    NotRun,
    Outcome,
    Result,
    measure,
)
from benchmarks.peers import engines, libraries, streams
from benchmarks.places import Places
from benchmarks.record import RECORDED, Record

STAGES: dict[str, Callable[[Places], Iterator[Outcome]]] = {
    "randomize": randomize.benchmarks,
    "encode": encode.benchmarks,
    "produce": produce.benchmarks,
    "consume": consume.benchmarks,
    "count": count.benchmarks,
    "accumulate": accumulate.benchmarks,
    "commit": commit.benchmarks,
    "end to end": end_to_end.benchmarks,
    "read": read.benchmarks,
    "discover": discover.benchmarks,
    "slices": slices.benchmarks,
    "window": window.benchmarks,
    "ask": ask.benchmarks,
    "scrape": scrape.benchmarks,
    "gateway": gateway.benchmarks,
    "publish": publish.benchmarks,
    "latency": latency.benchmarks,
    "memory": memory.benchmarks,
    "takeover": takeover.benchmarks,
    "growth": growth.benchmarks,
    "peers": libraries.benchmarks,
    "users": users.benchmarks,
    "streams": streams.benchmarks,
    "engines": engines.benchmarks,
}
"""Each prepares a benchmark when its turn comes."""

QUICK_SCALE = 0.01
WIDTH = 58


@click.command()
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results to this file.",
)
@click.option("--update", is_flag=True, help="Keep the results of other benchmarks in that file.")
@click.option(
    "--only",
    default="",
    metavar="NAME",
    help="A stage (`randomize`), a part of one (`randomize/grr`), or a part of any name.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of runs of each side.",
)
@click.option(
    "--quick", is_flag=True, help="Run once, with a hundredth of the work, to try it out."
)
@click.option(
    "--in-process", is_flag=True, help="Use librdkafka's broker even if Apache Kafka is available."
)
@click.option("--list", "listing", is_flag=True, help="List the stages and what they measure.")
def bench(
    file: Path | None,
    update: bool,
    only: str,
    rounds: int,
    quick: bool,
    in_process: bool,
    listing: bool,
) -> None:
    """Benchmark every stage against a baseline, in turns in this process.

    A ratio of 1 is the baseline's rate; brackets show the lowest and the highest of all rounds. The
    stages `peers`, `users` and `streams` compare with other libraries, each in its own environment,
    which is created when it is first needed; `engines` are built with Maven. Benchmarks that cannot
    run are listed with the reason.
    """
    if listing:
        for name, stage in STAGES.items():
            told = (__import__(stage.__module__, fromlist=["__doc__"]).__doc__ or "").split("\n")[0]
            click.echo(f"{name:12} {told}")
        return
    known = [*STAGES, *Record.read(RECORDED).names]
    if only.split("/")[0] not in STAGES and not any(only in name for name in known):
        raise click.UsageError(
            f"--only {only}: expected a stage (--list names them), what begins with one and a "
            "slash, or a part of a recorded name"
        )
    logger = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    try:
        record = _run(only, 1 if quick else rounds, quick=quick, in_process=in_process)
    finally:
        structlog.configure(**logger)
    if not record.names:
        raise click.UsageError(f"no benchmark has {only!r} in its name; --list names the stages")
    if file is not None:
        kept = Record.read(file) if update and file.exists() else Record()
        if only in STAGES:  # what has gone from it since is not kept
            kept = kept.without(only)
        file.write_text(json.dumps((kept | record).as_dict(), indent=1) + "\n")


def _run(only: str, rounds: int, *, quick: bool, in_process: bool) -> Record:
    record, stage = Record(), only.split("/")[0]

    def wanted(name: str) -> bool:
        return (only == stage and stage in STAGES) or only in name

    click.echo(f"{'benchmark':{WIDTH}} {'ours':>8} {'baseline':>8} unit        ratio")
    with ExitStack() as stack:
        places = Places(stack, QUICK_SCALE if quick else 1.0, wanted, in_process=in_process)
        for name in [stage] if stage in STAGES else STAGES:
            for outcome in STAGES[name](places):
                if not wanted(outcome.name):
                    continue
                if isinstance(outcome, Figure):
                    record.figures[outcome.name] = outcome
                    click.echo(f"{outcome.name:{WIDTH}} {outcome.value:8.3g} {outcome.unit}")
                elif isinstance(outcome, Benchmark):
                    try:
                        result = measure(outcome, rounds, 0 if quick else ENOUGH_SECONDS)
                    except CannotRunError as error:
                        outcome = NotRun(outcome.name, str(error))
                    else:
                        record.results[outcome.name] = result
                        click.echo(_line(outcome.name, result))
                if isinstance(outcome, NotRun):
                    record.not_run[outcome.name] = outcome.reason
                    click.echo(f"{outcome.name:{WIDTH}} not run: {outcome.reason}")
        if "kafka" in places.__dict__ and not places.is_real:
            click.echo("on librdkafka's in-process broker, not on Apache Kafka")
        record.machine = described(places)
    return record


def _line(name: str, result: Result) -> str:
    return (
        f"{name:{WIDTH}} {short(result.ours):>8} {short(result.baseline):>8} {result.unit:11} "
        f"{result.ratio:.3g} [{result.lowest:.3g}, {result.highest:.3g}]"
    )


def short(rate: float) -> str:
    """Return a rate with three digits.

    Examples
    --------
    >>> short(1_234_567), short(12)
    ('1.23M', '12')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}"
    return f"{rate:.3g}"
