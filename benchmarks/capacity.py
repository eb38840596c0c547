"""What a fleet needs: ``python -m benchmarks.capacity --devices 1e9``; docs/capacity.md explains.

Arithmetic on rates that were measured (`benchmarks/recorded.json`), for the peak hour of a day.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Self

import click

from benchmarks.record import Record

DAY_SECONDS = 86_400
PEAK = 3.0
"""The peak hour's rate over the day's mean."""
MOST_WORKERS = 1_000
MOST_BUSY = 0.5
"""Share of a worker's time at the peak: then an outage is caught up within its own length."""
PARTITION_BYTES_PER_SECOND = 5e6
"""Written to one partition at the peak: what one broker's disk takes of many partitions at once."""
PARTITIONS_PER_WORKER = 2
"""So that the number of workers can double."""
LEAST_PARTITIONS = 6
MESSAGE_BYTES = 80
"""In Kafka, of a batch without its reports: id, revision, name, time, and the record around it."""
OPEN_PANES = 4
"""Of a metric in a partition: its own, the hour's, the day's, and the total."""
CELL_BYTES = 8
HOUR_SECONDS = 3_600
DEVICES = (1e6, 1e8, 1e9)


@dataclasses.dataclass(frozen=True)
class Rates:
    """What one worker, and Redis, were measured to do.

    Attributes
    ----------
    message_seconds, report_seconds : float
        A worker's time for each message, and for each report in it.
    commit_bytes : float
        Bytes of panes a second that one connection writes to Redis.
    id_bytes : float
        Redis's memory for the id of a batch, while its pane is open.
    held_id_bytes : float
        A worker's memory for it.
    idle_bytes : float
        A worker's memory without wide metrics.
    """

    message_seconds: float
    report_seconds: float
    commit_bytes: float
    id_bytes: float
    held_id_bytes: float
    idle_bytes: float

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the rates of a recorded run.

        A line through the costs of messages with 1 and with 1,000 reports, end to end.
        """
        one, many = (
            size / record.results[f"end to end/batches of {size}, workers 1/raw"].ours
            for size in (1, 1_000)
        )
        per_report = max(0.0, (many - one) / 999)
        commits = record.results["commit/4096 cells/set"].ours
        return cls(
            one - per_report,
            per_report,
            4_096 * CELL_BYTES * commits,
            record.figures["memory/Redis, id of a batch"].value,
            record.figures["memory/worker, id of a batch"].value,
            1e6 * record.figures["memory/10 small metrics"].value,
        )


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Devices and what they report.

    Attributes
    ----------
    devices : float
    reports_per_day : float
        Of each device, all metrics together.
    batch_reports : float
        Reports in a Kafka message: 1 where each device produces by itself.
    report_bytes : float
        On the wire, the level included.
    metrics, levels, cells : int
        Metrics, and of each the privacy levels and the cells a level (docs/mechanisms.md).
    pane_seconds, kept_days : float
        The width of a pane with its lateness, and how long panes are kept.
    commit_seconds : float
    replication : int
        Of Kafka's topics.
    outage_days : float
        The longest that counting may stand still: what Kafka has to keep.
    """

    devices: float
    reports_per_day: float = 24.0
    batch_reports: float = 1.0
    report_bytes: float = 3.0
    metrics: int = 10
    levels: int = 5
    cells: int = 129
    pane_seconds: float = 60.0
    kept_days: float = 7.0
    commit_seconds: float = 1.0
    replication: int = 3
    outage_days: float = 3.0


@dataclasses.dataclass(frozen=True)
class Need:
    """What a fleet needs.

    Attributes
    ----------
    reports_per_second, messages_per_second : float
        At the peak.
    workers, partitions : int
        Workers are processes, of one core each.
    busy : float
        Share of their time that workers count at the peak, commits included.
    catch_up : float
        Seconds to catch up with each second of an outage, at the peak.
    wait_seconds : float
        The mean time that a message waits for its worker, other than for a commit.
    worker_bytes : float
        Memory of a worker.
    redis_masters : int
        Servers that take the writes of all commits.
    redis_bytes, redis_bytes_per_second : float
        Memory, and what commits write at the peak, all masters together.
    kafka_bytes_per_second, kafka_bytes : float
        Written at the peak, and kept, all replicas together.
    """

    reports_per_second: float
    messages_per_second: float
    workers: int
    partitions: int
    busy: float
    catch_up: float
    wait_seconds: float
    worker_bytes: float
    redis_masters: int
    redis_bytes: float
    redis_bytes_per_second: float
    kafka_bytes_per_second: float
    kafka_bytes: float


def need(fleet: Fleet, rates: Rates) -> Need:
    """Return what a fleet needs at its peak.

    Workers are added until the busiest share is at most `MOST_BUSY`. A commit writes every pane
    that changed, whole: all metrics are taken to be reported in every partition between two
    commits, unless there are fewer messages than that.

    Raises
    ------
    ValueError
        If commits alone take all of a worker's time, whatever their number: panes are too wide.
    """
    mean = fleet.devices * fleet.reports_per_day / DAY_SECONDS
    reports, messages = PEAK * mean, PEAK * mean / fleet.batch_reports
    message_bytes = MESSAGE_BYTES + fleet.batch_reports * fleet.report_bytes
    pane_bytes = fleet.levels * fleet.cells * CELL_BYTES
    service = rates.message_seconds + fleet.batch_reports * rates.report_seconds
    for workers in range(1, MOST_WORKERS):
        partitions = max(
            LEAST_PARTITIONS,
            PARTITIONS_PER_WORKER * workers,
            math.ceil(messages * message_bytes / PARTITION_BYTES_PER_SECOND),
        )
        changed = min(partitions * fleet.metrics, messages * fleet.commit_seconds)
        written = changed * pane_bytes / fleet.commit_seconds
        committing = written / rates.commit_bytes / workers
        busy = messages * service / workers + committing
        if busy <= MOST_BUSY:
            break
    else:
        raise ValueError(
            f"{fleet.metrics} metrics of {pane_bytes:,} bytes a pane, committed every "
            f"{fleet.commit_seconds:g} s: commits alone keep any worker busy. Commit less often "
            "(aggregate.commit_interval), or spread the metrics over several topics"
        )
    vectors = partitions * fleet.metrics * pane_bytes
    hours = 24 if fleet.pane_seconds < HOUR_SECONDS else 0
    kept = fleet.kept_days * (DAY_SECONDS / fleet.pane_seconds + hours + 1)
    ids = messages * fleet.pane_seconds
    day = mean / fleet.batch_reports * message_bytes * DAY_SECONDS * fleet.replication
    return Need(
        reports,
        messages,
        workers,
        partitions,
        busy,
        busy / (1 - busy),
        mean_wait(messages / workers, service),
        rates.idle_bytes + (vectors * OPEN_PANES + ids * rates.held_id_bytes) / workers,
        max(1, math.ceil(written / (MOST_BUSY * rates.commit_bytes))),
        vectors * (kept + OPEN_PANES) + ids * rates.id_bytes,
        written + messages * rates.id_bytes,
        messages * message_bytes * fleet.replication,
        day * fleet.outage_days,
    )


def mean_wait(arrivals: float, service: float) -> float:
    """Return the mean seconds before service, of random arrivals that each take the same time.

    Parameters
    ----------
    arrivals : float
        A second.
    service : float
        Seconds each; together below 1.

    Notes
    -----
    The M/D/1 queue: rho s / (2 (1 - rho)), rho = arrivals x service (Pollaczek and Khinchine).

    Examples
    --------
    >>> mean_wait(0.5, 1.0)
    0.5
    """
    busy = arrivals * service
    if not 0 <= busy < 1:
        raise ValueError(f"{arrivals:g} arrivals a second of {service:g} s each: expected below 1")
    return busy * service / (2 * (1 - busy))


def table(rates: Rates) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and lines of the fleets of docs/capacity.md."""
    fleets = [
        (f"{devices:.0e}".replace("e+0", "e"), told, Fleet(devices, batch_reports=batch))
        for devices in DEVICES
        for told, batch in (("1", 1.0), ("100", 100.0))
    ]
    heads = (
        *("devices", "reports a message", "reports/s", "messages/s", "workers", "partitions"),
        *("busy", "a worker's memory", "Redis masters", "Redis memory", "Redis writes"),
        *("Kafka writes", "Kafka keeps"),
    )
    lines: list[tuple[str, ...]] = []
    for told, batch, fleet in fleets:
        found = need(fleet, rates)
        lines.append(
            (
                told,
                batch,
                f"{found.reports_per_second:,.0f}",
                f"{found.messages_per_second:,.0f}",
                str(found.workers),
                str(found.partitions),
                f"{found.busy:.0%}",
                _size(found.worker_bytes),
                str(found.redis_masters),
                _size(found.redis_bytes),
                f"{_size(found.redis_bytes_per_second)}/s",
                f"{_size(found.kafka_bytes_per_second)}/s",
                _size(found.kafka_bytes),
            )
        )
    return heads, lines


def _size(size: float) -> str:
    """Return bytes with two digits or more.

    Examples
    --------
    >>> _size(1_234_567), _size(12)
    ('1.2 MB', '12 B')
    """
    for unit, letters in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            digits = 0 if size >= 10 * unit else 1
            return f"{size / unit:.{digits}f} {letters}"
    return f"{size:.2g} B"


@click.command()
@click.argument(
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=Path(__file__).with_name("recorded.json"),
)
@click.option("--devices", type=float, required=True)
@click.option("--reports-per-day", type=float, default=24.0, show_default=True)
@click.option("--batch-reports", type=float, default=1.0, show_default=True)
@click.option("--report-bytes", type=float, default=3.0, show_default=True)
@click.option("--metrics", type=int, default=10, show_default=True)
@click.option("--levels", type=int, default=5, show_default=True)
@click.option("--cells", type=int, default=129, show_default=True, help="Of a level.")
@click.option("--pane-seconds", type=float, default=60.0, show_default=True)
@click.option("--kept-days", type=float, default=7.0, show_default=True)
@click.option("--commit-seconds", type=float, default=1.0, show_default=True)
@click.option("--replication", type=int, default=3, show_default=True)
@click.option("--outage-days", type=float, default=3.0, show_default=True)
def main(file: Path, **facts: float) -> None:
    """Reckon what a fleet needs, from the rates of a recorded run."""
    try:
        found = need(Fleet(**facts), Rates.of(Record.read(file)))  # type: ignore[arg-type]
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    except KeyError as error:
        raise click.ClickException(
            f"{file} has no {error}: measure it with `dither bench --only STAGE --update --json "
            f"{file}`, for the stages `end to end`, `commit` and `memory`"
        ) from None
    for field, value in dataclasses.asdict(found).items():
        sized = "bytes" in field
        click.echo(f"{field.replace('_', ' '):24} {_size(value) if sized else f'{value:,.6g}'}")


if __name__ == "__main__":
    main()
