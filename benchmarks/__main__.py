"""`python -m benchmarks`: run them all, or some, and print the ratios."""

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
    end_to_end,
    gateway,
    publish,
    randomize,
    read,
    scrape,
)
from benchmarks.measure import Benchmark, Result, measure
from benchmarks.places import Places

Prepare = Callable[[Places], Iterator[Benchmark]]

STAGES: dict[str, Prepare] = {
    "randomize": lambda _: randomize.benchmarks(),
    "accumulate": lambda _: accumulate.benchmarks(),
    "ask": lambda _: ask.benchmarks(),
    "count": lambda _: count.benchmarks(),
    "read": lambda _: read.benchmarks(),
    "consume": consume.benchmarks,
    "commit": commit.benchmarks,
    "scrape": scrape.benchmarks,
    "end to end": end_to_end.benchmarks,
    "gateway": gateway.benchmarks,
    "publish": publish.benchmarks,
}
"""Each prepares a benchmark when its turn comes."""


@click.command()
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the results there.")
@click.option("--only", default="", metavar="NAME", help="A stage, or a part of a name.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="How often both sides run.",
)
def main(file: Path | None, only: str, rounds: int) -> None:
    """Measure every stage against a baseline, alternately in this process.

    A ratio of 1 is the baseline's rate; in brackets the lowest and the highest of all rounds.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    results: dict[str, Result] = {}
    click.echo(f"{'benchmark':42} {'ours':>10} {'baseline':>10} unit        ratio")
    with ExitStack() as stack:
        places = Places(stack)
        for name in [only] if only in STAGES else STAGES:
            for benchmark in STAGES[name](places):
                if only not in benchmark.name:
                    continue
                result = results[benchmark.name] = measure(benchmark, rounds)
                click.echo(_line(benchmark.name, result))
        if "kafka" in places.__dict__:
            where = "Apache Kafka" if places.is_real else "librdkafka's in-process broker"
            click.echo(f"on {where}")
    if file is not None:
        found = {name: result.as_dict() for name, result in results.items()}
        file.write_text(json.dumps({"benchmarks": found}, indent=2) + "\n")


def _line(name: str, result: Result) -> str:
    return (
        f"{name:42} {_short(result.ours):>10} {_short(result.baseline):>10} {result.unit:11} "
        f"{result.ratio:.3f} [{result.lowest:.3f}, {result.highest:.3f}]"
    )


def _short(rate: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}"
    return f"{rate:.3g}"


if __name__ == "__main__":
    main()
