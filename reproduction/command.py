"""`dither reproduce`: the papers' tables and figures, from the product's own estimators."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from pathlib import Path

import click

from aggregator.errors import DitherError
from aggregator.terminal.estimate_text import table
from estimators.errors import meant
from reproduction.experiments import EXPERIMENTS, Experiment, Number, Outcome
from reproduction.plotting import draw
from reproduction.running import outcomes, read_all

DATA_HELP = "Published records instead of stand-ins; `flights` for those of the demo."
JOBS_HELP = "With `all`: number of experiments at a time."
PLOT_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
VERDICTS = {True: "agrees", False: "DIFFERS", None: ""}


@click.command(context_settings={"show_default": True})
@click.argument("name", required=False)
@click.option(
    "--runs", type=click.IntRange(2), help="Repetitions, instead of the experiment's own."
)
@click.option("--quick", is_flag=True, help="Use few repetitions: faster, with larger errors.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, help="Seed for everything that is drawn."
)
@click.option("--data", "places", multiple=True, metavar="FILE", help=DATA_HELP)
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help=JOBS_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per experiment.")
@click.option("--plot", type=PLOT_FILE, help="Draw the figure as PNG (needs matplotlib).")
def reproduce(
    name: str | None,
    runs: int | None,
    quick: bool,
    seed: int,
    places: tuple[str, ...],
    jobs: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Run one of the papers' experiments, or `all`; without a name, list them.

    Every number is shown with its Monte Carlo standard error beside the paper's. The exit code is 1
    if a number differs by more than the docs allow beyond three standard errors, or if a claim
    fails. The same seed and number of runs give the same numbers.
    """
    if name is None:
        rows = [
            (key, experiment.source, experiment.title) for key, experiment in EXPERIMENTS.items()
        ]
        click.echo(table(("name", "source", "what it shows"), rows))
        return
    if name != "all" and name not in EXPERIMENTS:
        raise DitherError(f"no experiment {name!r}: {meant(name, EXPERIMENTS)}")
    if name == "all" and plot is not None:
        raise DitherError("--plot draws one experiment: name it, instead of `all`")
    names = list(EXPERIMENTS) if name == "all" else [name]
    records = read_all(places, names)
    usual = {key: EXPERIMENTS[key].quick if quick else EXPERIMENTS[key].runs for key in names}
    repeats = {key: runs or usual[key] for key in names}
    disagree = []
    for key, outcome in outcomes(repeats, seed, records, jobs):
        experiment = EXPERIMENTS[key]
        _show(key, experiment, outcome, repeats[key], seed, as_json=as_json)
        if plot is not None:
            draw(outcome, f"{key}: {experiment.title}", plot)
        if not outcome.agrees:
            disagree.append(key)
    if disagree:
        click.echo(f"not as expected: {', '.join(disagree)}", err=True)
        sys.exit(1)


def _show(
    key: str, experiment: Experiment, outcome: Outcome, runs: int, seed: int, *, as_json: bool
) -> None:
    if as_json:
        described = dataclasses.asdict(outcome) | {
            "name": key,
            "title": experiment.title,
            "source": experiment.source,
            "data": outcome.data or experiment.data,
            "runs": runs,
            "seed": seed,
            "agrees": outcome.agrees,
            "numbers": [dataclasses.asdict(n) | {"agrees": n.agrees} for n in outcome.numbers],
        }
        click.echo(json.dumps(described))
        return
    data = outcome.data or experiment.data
    click.echo(f"{key}: {experiment.title}\n{experiment.source}. Data: {data}.")
    click.echo(f"runs: {runs}, seed: {seed}\n")
    if outcome.numbers:
        heads = ("", "ours", "error", "paper", "ratio", "")
        click.echo(table(heads, [_row(number) for number in outcome.numbers]) + "\n")
    for claim in outcome.claims:
        click.echo(f"{'holds' if claim.holds else 'FAILS'}: {claim.name} ({claim.measured})")
    for note in outcome.notes:
        click.echo(note)
    click.echo("")


def _row(number: Number) -> tuple[str, ...]:
    paper = ratio = ""
    if number.paper is not None:
        paper, ratio = f"{number.paper:.4g}", f"{number.ours / number.paper:.3f}"
    ours, error = _with_error(number.ours, number.error)
    return number.name, ours, error, paper, ratio, VERDICTS[number.agrees]


def _with_error(value: float, error: float) -> tuple[str, str]:
    """Return a value to the second digit of its error, but at most to five digits."""
    if not error:
        return f"{value:.4g}", "exact"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if value and digits > (max_digits := 4 - math.floor(math.log10(abs(value)))):
        return f"{value:.{max(0, max_digits)}f}", f"{error:.0e}"
    return f"{value:.{digits}f}", f"{error:.{digits}f}"
