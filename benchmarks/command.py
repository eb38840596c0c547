"""The command behind `dither bench` and `python -m benchmarks`: run the benchmarks, or some."""

from __future__ import annotations

import importlib
import json
from contextlib import ExitStack
from pathlib import Path

import click
import structlog

from benchmarks.machine import described
from benchmarks.measure import (
    MIN_SECONDS,
    STAGES,
    Benchmark,
    CannotRunError,
    Figure,
    NotRun,
    Result,
    measure,
)
from benchmarks.places import Places
from benchmarks.record import RECORDED, Record

for _module in (
    *("computing", "growth", "stored", "through_kafka", "gateway", "live"),
    *("peers.libraries", "peers.users", "peers.engines"),
):
    importlib.import_module(f"benchmarks.{_module}")  # registers its stages
QUICK_SCALE = 0.01
NAME_WIDTH = 58
OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)
ONLY_HELP = "A stage (`randomize`), a part of one (`randomize/grr`), or a part of any name."
KAFKA_HELP = "Use librdkafka's broker even if Apache Kafka is available."


@click.command()
@click.option("--json", "file", type=OUTPUT_FILE, help="Write the results to this file.")
@click.option("--update", is_flag=True, help="Keep the results of other benchmarks in that file.")
@click.option("--only", default="", show_default=False, metavar="NAME", help=ONLY_HELP)
@click.option("--rounds", type=click.IntRange(1), default=5, help="Runs of each side.")
@click.option("--quick", is_flag=True, help="Run once, with a hundredth of the work, to try it.")
@click.option("--in-process", is_flag=True, help=KAFKA_HELP)
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
    stages `peers` and `users` compare with other libraries, each in its own environment,
    which is created when it is first needed; `engines` are built with Maven. Benchmarks that cannot
    run are listed with the reason.
    """
    if listing:
        for name, function in STAGES.items():
            click.echo(f"{name:12} {(function.__doc__ or '').partition(chr(10))[0]}")
        return
    names = [*STAGES, *Record.read(RECORDED).names]
    if only.split("/")[0] not in STAGES and not any(only in name for name in names):
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
        previous = Record.read(file) if update and file.exists() else Record()
        if only in STAGES:  # without what the stage does not measure any more
            previous = previous.without(only)
        file.write_text(json.dumps((previous | record).as_dict(), indent=1) + "\n")


def _run(only: str, rounds: int, *, quick: bool, in_process: bool) -> Record:
    record, stage = Record(), only.split("/")[0]

    def is_wanted(name: str) -> bool:
        return (only == stage and stage in STAGES) or only in name

    click.echo(f"{'benchmark':{NAME_WIDTH}} {'ours':>8} {'baseline':>8} unit        ratio")
    with ExitStack() as stack:
        places = Places(stack, QUICK_SCALE if quick else 1.0, is_wanted, in_process=in_process)
        for name in [stage] if stage in STAGES else STAGES:
            for outcome in STAGES[name](places):
                if not is_wanted(outcome.name):
                    continue
                if isinstance(outcome, Benchmark):
                    try:
                        result = measure(outcome, rounds, 0 if quick else MIN_SECONDS)
                    except CannotRunError as error:
                        outcome = NotRun(outcome.name, str(error))
                    else:
                        record.results[outcome.name] = result
                        shown = _result_text(result)
                if isinstance(outcome, Figure):
                    record.figures[outcome.name] = outcome
                    shown = f"{outcome.value:8.3g} {outcome.unit}"
                if isinstance(outcome, NotRun):
                    record.not_run[outcome.name] = outcome.reason
                    shown = f"not run: {outcome.reason}"
                click.echo(f"{outcome.name:{NAME_WIDTH}} {shown}")
        if "kafka" in places.__dict__ and not places.is_real:
            click.echo("on librdkafka's in-process broker, not on Apache Kafka")
        record.machine = described(places)
    return record


def _result_text(result: Result) -> str:
    return (
        f"{short(result.ours):>8} {short(result.baseline):>8} {result.unit:11} "
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
