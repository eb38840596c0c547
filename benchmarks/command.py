"""The command behind `dither bench` and `python -m benchmarks`: run the benchmarks, or some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec
import structlog

from benchmarks import computing, gateway, growth, live, stored, through_kafka  # noqa: F401
from benchmarks.measure import (
    MIN_SECONDS,
    STAGES,
    Benchmark,
    CannotRunError,
    Figure,
    NotRun,
    Outcome,
    measure,
)
from benchmarks.peers import engines, libraries, users  # noqa: F401
from benchmarks.places import Places
from benchmarks.record import RECORDED, Measured, Record, short

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
        record = previous.updated(record, only)
        file.write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n")


def _run(only: str, rounds: int, *, quick: bool, in_process: bool) -> Record:
    record, stage = Record(), only.split("/")[0]

    def is_wanted(name: str) -> bool:
        return (only == stage and stage in STAGES) or only in name

    click.echo(f"{'benchmark':{NAME_WIDTH}} {'ours':>8} {'baseline':>8} unit        ratio")
    with ExitStack() as stack:
        places = Places(stack, QUICK_SCALE if quick else 1.0, is_wanted, in_process=in_process)
        for name in [stage] if stage in STAGES else STAGES:
            for outcome in _outcomes(name, places):
                if is_wanted(outcome.name):
                    text = _measured(outcome, record, rounds, 0 if quick else MIN_SECONDS)
                    click.echo(f"{outcome.name:{NAME_WIDTH}} {text}")
        if "kafka" in places.__dict__ and not places.is_real:
            click.echo("on librdkafka's in-process broker, not on Apache Kafka")
        record.machine = places.machine
    return record


def _outcomes(stage: str, places: Places) -> Iterator[Outcome]:
    try:
        yield from STAGES[stage](places)
    except CannotRunError as error:
        yield NotRun(stage, str(error))


def _measured(outcome: Outcome, record: Record, rounds: int, seconds: float) -> str:
    """Measure a benchmark; record the outcome of a stage, and return it as text.

    The parameters `rounds` and `seconds` are those of :func:`benchmarks.measure.measure`.
    """
    name = outcome.name
    if isinstance(outcome, Benchmark):
        try:
            result, (low, high) = measure(outcome, rounds, seconds)
        except CannotRunError as error:
            outcome = NotRun(name, str(error))
        else:
            record.benchmarks[name], record.spread[name] = result, (low, high)
            sides = f"{short(result.ours):>8} {short(result.baseline):>8} {result.unit:11}"
            return f"{sides} {result.ratio:.3g} [{low:.3g}, {high:.3g}]"
    if isinstance(outcome, Figure):
        record.figures[name] = Measured(outcome.value, outcome.unit)
        return f"{outcome.value:8.3g} {outcome.unit}"
    record.not_run[name] = outcome.reason
    return f"not run: {outcome.reason}"
