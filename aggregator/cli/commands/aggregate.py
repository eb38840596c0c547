"""`dither aggregate`: count reports from Kafka into Redis."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
from typing import Any

import click
import redis

from aggregator.config.live_metrics import add_hangup_handler
from aggregator.config.settings import Settings, container_share
from aggregator.counting.supervisor import Supervisor, instance_option, single_worker_command
from aggregator.counting.worker import Worker
from aggregator.kafka import topic_admin, worker_clients
from aggregator.kafka.topic_admin import refuse_compaction
from aggregator.malloc_settings import apply_malloc_variables
from aggregator.monitoring.tracing_setup import configured_tracing, process_instance
from aggregator.storage.eviction import refuse_eviction
from aggregator.terminal import options


@click.command()
@click.option("--workers", type=click.IntRange(1), help="Number of worker processes.")
@options.logging_options
@options.settings_options
def aggregate(settings: Settings, workers: int | None) -> None:
    """Count reports from Kafka into Redis.

    Every second, each partition's sums and next offset are committed together. Any number of
    workers may run, here or elsewhere: Kafka's consumer group distributes the partitions. On
    SIGTERM or Ctrl-C, workers commit what they have counted, and leave the group. Changed metric
    definitions take effect within seconds, or at SIGHUP.
    """
    apply_malloc_variables("MALLOC_ARENA_MAX")  # librdkafka has twenty threads
    metrics = options.live_metrics(settings)
    topic_admin.ensure_topics(settings, settings.topics.reports, settings.topics.deadletters)
    refuse_compaction(settings)
    store = options.opened_store(settings)
    refuse_eviction(store.client)
    count = workers or settings.aggregate.workers
    runner: Any
    tracing = None
    if count > 1:

        def died() -> None:
            with contextlib.suppress(redis.RedisError):
                store.registry.add_worker_death()

        memory = container_share(settings, count)
        command = single_worker_command(sys.argv[1:], memory)
        instance = settings.kafka.get(worker_clients.INSTANCE_PROPERTY, "")
        runner = Supervisor(count, command, died, functools.partial(instance_option, str(instance)))
        add_hangup_handler(runner.reload_definitions)
    else:
        worker_clients.collect_seldom()
        tracing = configured_tracing(settings, name := process_instance())
        runner = Worker(settings, metrics, store, name, tracer=tracing)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())
    port = settings.aggregate.health_port
    if port:  # an HTTP server takes 1 MB
        from aggregator.health_port import answer_health
    with answer_health(port, runner.trouble) if port else contextlib.nullcontext():
        runner.run()
    if tracing is not None:
        tracing.stop()
