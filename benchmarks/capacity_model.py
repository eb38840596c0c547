"""What a fleet needs, as arithmetic on measured rates: docs/capacity.md explains it.

Each constant is measured by a benchmark and read from `benchmarks/recorded.json`
(:class:`Rates`), or is an assumption with a name (:class:`Assumptions`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Self

from benchmarks.record import Record

CELL_BYTES = 8
MEBIBYTE = 2**20
"""The unit of the recorded memory of a worker, in bytes."""
DAY_SECONDS, HOUR_SECONDS = 86_400, 3_600
PEAK = 3.0
"""The peak hour's rate over the day's mean."""
MOST_WORKERS = 100_000
PARTITIONS_PER_WORKER = 2
"""So that the number of workers can double."""
LEAST_PARTITIONS = 6
MESSAGE_BYTES = 80
"""Bytes in Kafka of a batch without its reports: id, revision, name, time, and the record around
it."""
ROLLUPS = 3
"""Open panes of a metric in a partition, besides those of its pane width: the hour's, the day's,
the total."""
PANE_BYTES = 400
"""Bytes of an open pane, in a worker and in Redis, besides its cells and ids: its key, and the
objects and the index around it. `benchmarks.fleet` measured 320 and 390 with 8,646 panes."""
CHUNK_BYTES = 65_000
"""Bytes of a chunk of slices, which is written as a whole."""
BROKERS_FOR_REPLICAS = 3


@dataclasses.dataclass(frozen=True)
class Rates:
    """The measured rates and memory of one process of each kind.

    Attributes
    ----------
    message_seconds, report_seconds : float
        A worker's time for each message, and for each report in it.
    commit_bytes : float
        Bytes of panes a second that one connection writes to Redis.
    id_bytes : float
        Redis's memory for the id of a batch, as long as it is remembered.
    idle_bytes : float
        A worker's memory without wide metrics.
    held_id_bytes : float
        A worker's memory for the id of a batch.
    posts : float
        Small posts a second that one gateway process takes.
    opened : float
        Sealed reports a second that a gateway opens on one core.
    """

    message_seconds: float
    report_seconds: float
    commit_bytes: float
    id_bytes: float
    idle_bytes: float
    held_id_bytes: float
    posts: float = 1_000.0
    opened: float = 5_000.0

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the rates of a recorded run.

        A worker's time is its processor time, because other work of the machine is not in it. The
        costs are those of the line through the costs of messages with 1 and with 1,000 reports,
        from fetch to commit. Raises KeyError if the record lacks a stage.
        """
        single, batched = (
            record.figures[f"end to end/cost, batches of {reports}/a message"].value / 1e6
            for reports in (1, 1_000)
        )
        per_report = max(0.0, (batched - single) / 999)
        commits = record.benchmarks["commit/4096 cells/set"].ours
        return cls(
            single - per_report,
            per_report,
            4_096 * CELL_BYTES * commits,
            record.figures["memory/Redis, id of a batch"].value,
            MEBIBYTE * record.figures["memory/10 small metrics"].value,
            record.figures["memory/worker, id of a batch"].value,
            record.benchmarks["gateway/small posts/bare route"].ours,
            record.benchmarks["crowds/open a crowd of 10000/HPKE library"].ours,
        )


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What was not measured: limits that somebody chooses, and the sizes and prices of machines.

    Attributes
    ----------
    most_busy : float
        Share of its time that a process works at the peak. At a half, an outage is caught up within
        its own length.
    worker_bytes, master_bytes : float
        The most memory of a worker, and of a Redis master.
    redis_copies : int
        Copies of each Redis master's data: the master and its replicas.
    gateway_bytes : float
        Memory of a gateway process.
    partition_bytes_per_second : float
        The most bytes a second that are written to one partition at the peak.
    broker_disk_bytes_per_second, broker_network_bytes_per_second : float
        The most bytes a second that one broker writes, and that it receives or sends, at the peak.
    broker_partitions : int
        The most replicas that one broker serves.
    broker_disk_bytes : float
        The most bytes that one broker keeps.
    broker_cores, broker_memory_bytes : float
        The cores and the memory of one broker.
    cents_core_hour, cents_gigabyte_hour : float
        The price of a core and of a gigabyte of memory. Disks and traffic are not priced.
    """

    most_busy: float = 0.5
    worker_bytes: float = 16e9
    master_bytes: float = 25e9
    redis_copies: int = 2
    gateway_bytes: float = 0.2e9
    partition_bytes_per_second: float = 5e6
    broker_disk_bytes_per_second: float = 100e6
    broker_network_bytes_per_second: float = 600e6
    broker_partitions: int = 2_000
    broker_disk_bytes: float = 4e12
    broker_cores: float = 4.0
    broker_memory_bytes: float = 16e9
    cents_core_hour: float = 3.0
    cents_gigabyte_hour: float = 0.4


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Devices and what they report.

    Attributes
    ----------
    devices : float
        The number of devices.
    reports_per_day : float
        Reports of each device, all metrics together.
    batch_reports : float
        Reports in a Kafka message, or a post: 1 if each device sends by itself.
    report_bytes : float
        Bytes of a report on the wire, the level included.
    metrics, levels, cells : int
        Metrics, and of each the privacy levels and the cells a level (docs/mechanisms.md).
    slices : int
        Slices of each metric; 1 if it has none.
    pane_seconds, lateness_seconds : float
        The width of a pane, and how long after its end reports are still counted.
    late_share : float
        The share of messages that belong to a pane other than the newest: each changes a further
        pane.
    kept_days : float
        How long panes are kept.
    commit_seconds : float
        The time between two commits of a worker.
    replication : int
        The replication factor of Kafka's topics.
    outage_days : float
        The longest time that counting may stand still; Kafka has to keep its messages.
    posted : float
        Share of the messages that come through the gateway.
    sealed : float
        Share of the reports that come through a relay: the gateway opens them, on cores of its own.
    """

    devices: float
    reports_per_day: float = 24.0
    batch_reports: float = 1.0
    report_bytes: float = 3.0
    metrics: int = 10
    levels: int = 5
    cells: int = 129
    slices: int = 1
    pane_seconds: float = 60.0
    lateness_seconds: float = 86_400.0
    late_share: float = 0.01
    kept_days: float = 7.0
    commit_seconds: float = 1.0
    replication: int = 3
    outage_days: float = 3.0
    posted: float = 1.0
    sealed: float = 0.0

    @property
    def mean_messages(self) -> float:
        """Messages a second over the day."""
        return self.devices * self.reports_per_day / self.batch_reports / DAY_SECONDS

    @property
    def message_bytes(self) -> float:
        """The bytes of a message in Kafka."""
        return MESSAGE_BYTES + self.batch_reports * self.report_bytes

    @property
    def pane_bytes(self) -> float:
        """The bytes of the statistic of one pane."""
        return self.levels * self.cells * CELL_BYTES

    @property
    def open_panes(self) -> float:
        """Open panes of a metric in a partition: those within the lateness, and the rollups."""
        return math.ceil(self.lateness_seconds / self.pane_seconds) + 1 + ROLLUPS

    @property
    def slice_bytes(self) -> float:
        """The bytes of a metric's tables of slices, for one hour, in a partition."""
        return self.slices * self.pane_bytes if self.slices > 1 else 0.0

    @property
    def open_hours(self) -> float:
        """Hours whose tables of slices are open."""
        return math.ceil(self.lateness_seconds / HOUR_SECONDS) + 1

    def busiest(self, seconds: float) -> float:
        """Return the largest number of messages in `seconds` seconds.

        They come at most at the peak's rate, and in each day at most a day's messages.

        Examples
        --------
        >>> fleet = Fleet(1_000, reports_per_day=24)
        >>> fleet.busiest(3_600), fleet.busiest(86_400), fleet.busiest(86_400 + 3_600)
        (3000.0, 24000.0, 27000.0)
        """
        days, remainder = divmod(seconds, DAY_SECONDS)
        day = self.mean_messages * DAY_SECONDS
        return days * day + min(PEAK * self.mean_messages * remainder, day)


def need(fleet: Fleet, rates: Rates, assumed: Assumptions | None = None) -> dict[str, float]:
    """Return what a fleet needs at its peak.

    Workers are added until each is busy for at most `most_busy` of its time and takes at most
    `worker_bytes`.

    Parameters
    ----------
    fleet : Fleet
        The devices and what they report.
    rates : Rates
        The measured rates.
    assumed : Assumptions, optional
        What is assumed.

    Returns
    -------
    dict of str to float
        The rates at the peak; processes of one core each, and partitions; the share of their time
        that workers count at the peak, commits included; the remembered ids of all partitions; the
        memory of a worker, and of all Redis masters; what commits and Kafka's replicas write at the
        peak, and what Kafka keeps; the cores, the memory and the price of all machines.

    Raises
    ------
    ValueError
        If no number of workers is enough: commits alone take all of their time, or open panes all
        of their memory.
    """
    assumed = assumed or Assumptions()
    messages = PEAK * fleet.mean_messages
    service = rates.message_seconds + fleet.batch_reports * rates.report_seconds
    ids = fleet.busiest(fleet.pane_seconds + fleet.lateness_seconds)
    by_bytes = math.ceil(messages * fleet.message_bytes / assumed.partition_bytes_per_second)
    workers = 1
    while True:
        partitions = max(LEAST_PARTITIONS, PARTITIONS_PER_WORKER * workers, by_bytes)
        written = _written(fleet, partitions, messages)
        counting = messages * service
        committing = written / rates.commit_bytes
        busy = (counting + committing) / workers
        worker_bytes = worker_memory(fleet, rates, partitions, ids, workers)
        if busy <= assumed.most_busy and worker_bytes <= assumed.worker_bytes:
            break
        workers = max(workers + 1, math.floor(workers * 1.02))
        if workers > MOST_WORKERS:
            raise ValueError(
                f"{fleet.metrics} metrics of {fleet.pane_bytes:,} bytes a pane, committed every "
                f"{fleet.commit_seconds:g} s, with {fleet.open_panes:,} panes of each open: "
                "commits or panes alone are too much for any number of workers. Commit less often "
                "(aggregate.commit_interval), allow less lateness, or spread the metrics over "
                "several topics"
            )
    redis_bytes = redis_memory(fleet, rates, partitions, ids)
    redis_written = written + messages * rates.id_bytes
    masters = max(
        1,
        math.ceil(redis_written / (assumed.most_busy * rates.commit_bytes)),
        math.ceil(redis_bytes / assumed.master_bytes),
    )
    kafka_written = messages * fleet.message_bytes * fleet.replication
    day = fleet.mean_messages * fleet.message_bytes * DAY_SECONDS * fleet.replication
    kafka_bytes = day * fleet.outage_days
    brokers = max(
        BROKERS_FOR_REPLICAS,
        fleet.replication,
        math.ceil(kafka_written / assumed.broker_disk_bytes_per_second),
        math.ceil(kafka_written / assumed.broker_network_bytes_per_second),
        math.ceil(partitions * fleet.replication / assumed.broker_partitions),
        math.ceil(kafka_bytes / assumed.broker_disk_bytes),
    )
    busy_gateways = messages * fleet.posted / rates.posts
    busy_gateways += messages * fleet.batch_reports * fleet.sealed / rates.opened
    gateways = math.ceil(busy_gateways / assumed.most_busy)
    cores = workers + gateways + masters * assumed.redis_copies + brokers * assumed.broker_cores
    memory = (
        workers * worker_bytes
        + gateways * assumed.gateway_bytes
        + redis_bytes * assumed.redis_copies
        + brokers * assumed.broker_memory_bytes
    )
    return {
        "reports per second": messages * fleet.batch_reports,
        "messages per second": messages,
        "workers": workers,
        "partitions": partitions,
        "gateways": gateways,
        "redis masters": masters,
        "brokers": brokers,
        "busy": busy,
        "remembered ids": ids,
        "worker bytes": worker_bytes,
        "redis bytes": redis_bytes,
        "redis bytes per second": redis_written,
        "kafka bytes per second": kafka_written,
        "kafka bytes": kafka_bytes,
        "cores": cores,
        "memory bytes": memory,
        "cents per hour": (
            cores * assumed.cents_core_hour + memory / 1e9 * assumed.cents_gigabyte_hour
        ),
    }


def worker_memory(
    fleet: Fleet, rates: Rates, partitions: int, ids: float, workers: int = 1
) -> float:
    """Return the memory of each worker: itself, its open panes, and the ids that it remembers.

    Parameters
    ----------
    fleet : Fleet
        The devices and what they report.
    rates : Rates
        The measured rates.
    partitions : int
        The number of partitions.
    ids : float
        The number of ids that all workers together remember.
    workers : int
        The number of workers.
    """
    panes = (
        fleet.open_panes * (fleet.pane_bytes + PANE_BYTES) + fleet.open_hours * fleet.slice_bytes
    )
    held = partitions * fleet.metrics * panes + ids * rates.held_id_bytes
    return rates.idle_bytes + held / workers


def redis_memory(fleet: Fleet, rates: Rates, partitions: int, ids: float) -> float:
    """Return Redis's memory: panes that are kept or open, and the ids that are remembered.

    Parameters
    ----------
    fleet : Fleet
        The devices and what they report.
    rates : Rates
        The measured rates.
    partitions : int
        The number of partitions.
    ids : float
        The number of ids that all workers together remember.
    """
    hours = 24 if fleet.pane_seconds < HOUR_SECONDS else 0
    kept_panes = fleet.kept_days * (DAY_SECONDS / fleet.pane_seconds + hours + 1) + fleet.open_panes
    kept_hours = fleet.kept_days * 25 + fleet.open_hours
    panes = kept_panes * (fleet.pane_bytes + PANE_BYTES) + kept_hours * fleet.slice_bytes
    return partitions * fleet.metrics * panes + ids * rates.id_bytes


def _written(fleet: Fleet, partitions: int, messages: float) -> float:
    """Return the bytes a second that commits write at the peak, without ids.

    A commit writes every pane that changed, whole: the newest of all metrics, unless there are
    fewer messages than that between two commits, and one for each late message. Of slices it writes
    every chunk that changed.
    """
    vectors = partitions * fleet.metrics
    arrived = messages * fleet.commit_seconds
    late = min(fleet.late_share * arrived, vectors * (fleet.open_panes - ROLLUPS))
    changed = (min(vectors, arrived) + late) * fleet.pane_bytes
    if fleet.slices > 1:
        chunks = vectors * math.ceil(fleet.slice_bytes / CHUNK_BYTES)
        changed += min(chunks * fleet.open_hours, arrived, chunks + late) * CHUNK_BYTES
    return changed / fleet.commit_seconds
