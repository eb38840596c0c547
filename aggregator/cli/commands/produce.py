"""`dither produce`: let a population of devices report into Kafka."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from aggregator.cli import report_outcomes
from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.features.rounds.waiting_devices import Waiting
from aggregator.kafka import clients, topic_admin
from aggregator.reading.serialization import plain
from aggregator.terminal import options
from aggregator.terminal.output import progress_bar
from aggregator.timestamps import format_time
from estimators import Metric, SearchMetric
from estimators.durations import milliseconds
from estimators.metrics.kinds import KINDS
from producers.delivery.delivery_errors import DeliveryError
from producers.device.rounds import Round
from producers.populations.csv_files import NoColumnError
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Arrivals, Population
from producers.populations.produce import Produced, ReplayProgress, respond
from producers.populations.produce import produce as let_report
from producers.populations.simulated import simulate as draw
from producers.populations.tables import read_population
from producers.populations.truth import Truth, true_shares

DAY_MS = 86_400_000
REFRESH_SECONDS = 0.2
COLUMN_REMEDY = "the column with the values: --column NAME"
AXES_REMEDY = (
    "a column for each axis, in order: --column NAME --column NAME; or one with categories"
)


@click.command()
@options.metric_argument()
@click.option(
    "--csv",
    "table",
    metavar="FILE",
    help="A CSV file, plain or zipped, with one device per row (-: the standard input).",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    help="Column with the values [default: the metric's name]; one for each coordinate of a "
    "vector, and for each axis of a frequency [default: the axes' names].",
)
@click.option(
    "--attribute",
    "attributes",
    metavar="NAME=COLUMN",
    multiple=True,
    help="Column with an attribute of the devices, as in country=land; may be repeated [default: "
    "each attribute by which the metric is summed is read from a column of its name, if present].",
)
@click.option(
    "--above",
    type=float,
    metavar="VALUE",
    help="Of a column of numbers, report 1 if a number is above this one, else 0.",
)
@options.cell_options
@click.option(
    "--simulate",
    metavar="DISTRIBUTION",
    help="Draw values instead of reading a CSV file: uniform, normal:MEAN,DEVIATION, bernoulli:P "
    "or zipf:S.",
)
@click.option("--devices", default=10_000, help="Number of devices to simulate.")
@click.option(
    "--rate", default=1000.0, help="Devices per second of event time, if there is no time column."
)
@click.option(
    "--levels",
    metavar="EPSILON:SHARE,...",
    help="Share of devices that ask for each epsilon, as in 0.5:0.3,1:0.7 [default: equal shares].",
)
@click.option(
    "--speed", type=float, help="Seconds of event time per second [default: as fast as possible]."
)
@click.option(
    "--seconds", type=float, help="Instead of --speed: seconds that the whole replay takes."
)
@click.option("--seed", default=0, help="Seed for the population and for each device's epsilon.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@options.settings_options
def produce(
    settings: Settings,
    metric: str,
    table: str | None,
    columns: tuple[str, ...],
    attributes: tuple[str, ...],
    above: float | None,
    simulate: str | None,
    devices: int,
    rate: float,
    levels: str | None,
    speed: float | None,
    seconds: float | None,
    seed: int,
    as_json: bool,
    **cells: Any,
) -> None:
    """Report a CSV column or a simulated population to Kafka.

    Each device randomizes its own value, with the operating system's randomness, before anything
    leaves this process. At the end the command prints the truth, to compare with `dither estimate`,
    and what workers have counted: it waits ten seconds for the first report to be counted, and
    three for each further report. Ctrl-C ends the command early; everything reported until then is
    delivered. For a minimum or maximum the devices wait for the rounds, which `dither coordinate`
    opens, until the last round is decided.

    If the metric is summed by attributes of devices (`by`), each report is sent with the attributes
    in its row. A simulated device draws them from the declared values, each equally likely.

    \b
    dither produce dep_delay --csv flights.csv --time-column time_hour
    dither produce dep_delay --simulate normal:17,20 --levels 0.5:0.3,1:0.7
    dither produce crash --csv crashes.csv --column used_x --column crashed
    """  # noqa: D301  click reads the backspace: these lines stay as they are
    if (table is None) == (simulate is None):
        raise click.UsageError("expected one of --csv FILE and --simulate DISTRIBUTION")
    if attributes and table is None:
        raise click.UsageError("--attribute: expected --csv FILE, which has the column")
    definition = options.chosen_metrics(settings, metric)[metric]
    if definition.kind not in KINDS.built_in:
        raise click.UsageError(
            f"{metric} is of kind {definition.kind!r}, which another distribution brings: expected "
            f"one of {', '.join(KINDS.built_in)}; report to it with producers.Reporter"
        )
    if definition.crowd is not None:
        raise click.UsageError(
            f"{metric} has a crowd: its reports go through a relay, and never to Kafka unsealed; "
            "report to it with producers.HttpReporter(..., relay=, key=) (docs/crowds.md)"
        )
    if simulate is not None and definition.kind == "vector_mean":
        raise click.UsageError(
            f"--simulate: {metric} is a vector_mean, and vectors cannot be simulated; expected "
            "--csv FILE with one --column for each coordinate"
        )
    if isinstance(definition, SearchMetric) and speed is not None:
        raise click.UsageError(f"--speed: {metric} is asked in rounds; expected --seconds")
    defaults = (metric,) if definition.axes is None else tuple(definition.axes.values)
    try:
        mix = LevelDistribution.parse(levels) if levels else LevelDistribution.even(definition)
        if simulate is not None:
            start = time.time() - (devices / rate if rate > 0 else 0)  # the last one is now
            arrivals = Arrivals(int(1000 * start), rate)
            population = draw(definition, devices, simulate, arrivals, seed)
        else:
            assert table is not None  # noqa: S101
            cells["attributes"] = dict(map(_parse_attribute, attributes))
            population = _read(definition, table, columns or defaults, rate, **cells)
            if above is not None:
                population = population.above(metric, above)
    except ValueError as error:
        problem = str(error).replace("| dither define -", f"| dither produce {metric} --csv -")
        if isinstance(error, NoColumnError) and not columns and error.name in defaults:
            problem += f"; name {COLUMN_REMEDY if definition.axes is None else AXES_REMEDY}"
        raise DitherError(problem) from None
    for note in population.notes:
        click.echo(note, err=True)
    clipped, values = population.count_clipped(definition), population.has_value(metric).sum()
    if table is not None and definition.kind == "mean" and 2 * clipped > values:
        raise DitherError(
            f"{clipped:,} of {values:,} values are outside of {_limits(definition)}, to which "
            "devices clip them: expected at most half. If the column has another unit than "
            f"{metric}, convert it; otherwise widen the metric's range"
        )
    initial_state, late = report_outcomes.read_redis(settings), 0
    if initial_state is not None and (
        mismatch := report_outcomes.describe_mismatch(initial_state, settings, definition)
    ):
        click.echo(mismatch, err=True)
    if not isinstance(definition, SearchMetric):
        population = population.with_values(metric)
        if warning := _describe_old_rows(settings, population):
            click.echo(warning, err=True)
        if initial_state is not None:
            late = report_outcomes.count_late(initial_state.progress, definition, population)
        population = _drop_late_rows(definition, population, late)
    round_topics = [settings.topics.rounds] if isinstance(definition, SearchMetric) else []
    topic_admin.ensure_topics(settings, settings.topics.reports, *round_topics)
    bar = progress_bar("reporting", len(population), is_quiet=as_json)
    pace = {"speed": speed, "seconds": seconds, "mix": mix, "seed": seed}
    produced = _run(settings, definition, population, bar, **pace)
    summary = _as_dict(definition, produced, population, late)
    if not as_json:
        click.echo(_as_text(definition, summary))
    outcome = report_outcomes.await_outcome(settings, definition, initial_state, produced.reports)
    if as_json:
        click.echo(json.dumps(summary | {"outcome": outcome}))
    click.echo(report_outcomes.describe_outcome(metric, produced.reports, outcome), err=True)
    judged = min(produced.reports, sum((outcome or {}).values()))
    if late or (outcome or {}).get("accepted", 0) < judged:
        raise click.exceptions.Exit(1)


def _drop_late_rows(metric: Metric, population: Population, late: int) -> Population:
    """Drop the rows at the start that are too late to be counted, and print how many."""
    if not late:
        return population
    refusal = (
        f"{late:,} of {len(population):,} rows, the last one of "
        f"{format_time(int(population.time_ms[late - 1]))}, are in panes of {metric.name} that are "
        "closed, and are not sent: workers would refuse them as late, for good. A copy of the "
        "metric by another name counts them. Another time, import old rows before live reports"
    )
    if late == len(population):
        raise DitherError(refusal)
    click.echo(refusal, err=True)
    return dataclasses.replace(population.part(late, len(population)), skipped=population.skipped)


def _describe_old_rows(settings: Settings, population: Population) -> str:
    """Return a warning if rows are too old for these settings; else ""."""
    past, now = settings.aggregate.past, int(1000 * time.time())
    old = int((population.time_ms < now - milliseconds(past)).sum())
    if not old:
        return ""
    days = (now - int(population.time_ms[0])) // DAY_MS + 2
    return (
        f"{old:,} of {len(population):,} rows are older than aggregate.past = {past}: workers "
        "refuse them as too_old. To count them, start the workers with `dither aggregate "
        f"--set aggregate.past={days}d`"
    )


def _parse_attribute(text: str) -> tuple[str, str]:
    """Return the name and the column in an option such as country=land."""
    name, equals, column = text.partition("=")
    if not (name and equals and column):
        raise click.UsageError(f"--attribute {text!r}: expected NAME=COLUMN, as in country=land")
    return name, column


def _read(
    metric: Metric, table: str, columns: tuple[str, ...], rate: float, **cells: Any
) -> Population:
    metrics, columns_by_metric = {metric.name: metric}, {metric.name: columns}
    if cells["time"]:
        return read_population(table, metrics, columns_by_metric, **cells)
    population = read_population(
        table, metrics, columns_by_metric, arrivals=Arrivals(1, rate), **cells
    )
    return population.starting(int(1000 * (time.time() - len(population) / rate)))


def _run(
    settings: Settings, metric: Metric, population: Population, bar: Any, **pace: Any
) -> Produced:
    """Let the population report at a pace: `speed` or `seconds`, the `mix` of levels, a `seed`."""
    stop, ended, reached = threading.Event(), threading.Event(), [0]
    speed, seconds = pace.pop("speed"), pace.pop("seconds")
    waiting = Waiting(metric) if isinstance(metric, SearchMetric) else None

    def progress(now: ReplayProgress, _: dict[str, Truth]) -> None:
        reached[0] = now.devices

    def answered(open_round: Round, answers: int) -> None:
        is_split = SearchMetric.require(metric).split == "users"
        share = answers if is_split else answers // open_round.rounds
        reached[0] = len(population) * (open_round.number - 1) // open_round.rounds + share
        if waiting is not None:
            waiting.note_answers(open_round, answers)

    def run() -> Produced:
        reporting_options = {"topic": settings.topics.reports, "stop": stop, **pace}
        reporting_options["config"] = clients.reporter_properties(settings)
        reporting_options["schema_id"] = settings.schemas.schema_id or None
        if isinstance(metric, SearchMetric):
            reporting_options["rounds_topic"] = settings.topics.rounds
            reporting_options["round_seconds"] = (seconds or 0.0) / metric.search.rounds
            return respond(metric, population, progress=answered, **reporting_options)
        reporting_options |= {"speed": speed, "seconds": seconds}
        return let_report({metric.name: metric}, population, progress=progress, **reporting_options)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a script started it
    with ThreadPoolExecutor(1) as devices, bar:
        outcome = devices.submit(run)
        outcome.add_done_callback(lambda _: ended.set())
        # Ctrl-C in the future's own wait may leave a lock behind
        while not ended.is_set():
            try:
                ended.wait(REFRESH_SECONDS)
                bar.update(reached[0] - bar.pos)
                if waiting is not None and not ended.is_set() and (notice := waiting.due()):
                    click.echo(notice if bar.hidden else f"\n{notice}", err=True)
            except KeyboardInterrupt:
                stop.set()
    try:
        return outcome.result()
    except (DeliveryError, ValueError) as error:
        raise DitherError(str(error)) from error


def _as_dict(
    metric: Metric, produced: Produced, population: Population, late: int
) -> dict[str, Any]:
    truth = produced.truth[metric.name]
    value: Any = plain(truth.value)
    if isinstance(value, list):
        value = dict(zip(truth.labels, value, strict=True))
    sent = population.part(0, produced.devices)
    shares = {name: plain(share) for name, share in true_shares(metric, truth).items()}
    return {
        "metric": metric.name,
        "rows": late + len(population) + population.skipped,
        "devices": produced.devices,
        "reports": produced.reports,
        "missing": sent.count_missing(metric.name) + population.skipped,
        "late": late,
        "unsent": len(population) - produced.devices,
        "clipped": population.count_clipped(metric),
        "batches": produced.batches,
        "bytes": produced.bytes,
        "seconds": round(produced.seconds, 3),
        "levels": {f"{e:g}": int(n) for e, n in zip(metric.levels, truth.levels, strict=True)},
        "truth": value,
    } | ({"shares_among": shares} if shares else {})


def _as_text(metric: Metric, outcome: dict[str, Any]) -> str:
    truth = outcome["truth"]
    if isinstance(truth, dict):
        numbers = [(name, number) for name, number in truth.items() if number is not None]
        if metric.kind == "frequency":
            numbers.sort(key=lambda item: -item[1])
        truth = _listed(numbers[:10])
    if shares := outcome.get("shares_among"):
        truth += f"\ntruth of shares: {_listed(shares.items())}"
    levels = ", ".join(f"{count:,} at {epsilon}" for epsilon, count in outcome["levels"].items())
    missing = f"of {outcome['rows']:,} rows {outcome['missing']:,} had no value or no time"
    endings = {"late": "were late", "unsent": "were not sent"}
    missing += "".join(f", {outcome[k]:,} {ending}" for k, ending in endings.items() if outcome[k])
    if outcome["clipped"]:
        missing += f", {outcome['clipped']:,} were clipped to {_limits(metric)}"
    return (
        f"{outcome['reports']:,} reports of {outcome['metric']} in {outcome['batches']:,} batches, "
        f"{outcome['bytes']:,} bytes, {outcome['seconds']:.1f} s; {missing}\n"
        f"privacy: {levels}\n"
        f"truth: {truth}"
    )


def _listed(numbers: Iterable[tuple[str, float | None]]) -> str:
    return ", ".join(f"{name} {'-' if x is None else f'{x:.4f}'}" for name, x in numbers)


def _limits(metric: Metric) -> str:
    if metric.radius is not None:
        return f"length {metric.radius:g}"
    high, low = metric.domain.opposite
    return f"[{low:g}, {high:g}]"
