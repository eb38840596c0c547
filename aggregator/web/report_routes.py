"""The description of the routes of reports, which :class:`producers.gateway.Gateway` serves."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from aggregator.config.settings import Settings
from aggregator.errors import DitherError, SettingsError
from aggregator.kafka import clients, topic_admin
from aggregator.kafka.clients import ThrottledErrorLog
from aggregator.monitoring.families import Families
from aggregator.monitoring.metric_definitions import CROWD_REPORTS
from aggregator.monitoring.samples import Sample
from aggregator.secrets import masked_path
from aggregator.web.operations import Content, Operation
from estimators import Metric
from estimators.durations import milliseconds
from producers.gateway import Gateway
from producers.gateway.bodies import PROTOBUF_TYPE, JsonBatch, Times
from producers.gateway.crowds import CROWD_TYPE, CROWDS_PATH, CrowdAnswer, read_keys
from producers.gateway.gateway import BATCHES_PATH, POST_PATH
from producers.gateway.post_answers import BatchesAnswer


class Acknowledged(msgspec.Struct, frozen=True):
    """Kafka has the batch."""

    batch_id: str
    reports: int


POST_REPORTS = Operation(
    method="POST",
    path=POST_PATH,
    summary="Report: a batch of answers that were randomized on the device.",
    scopes=("report",),
    body=Content(
        "A serialized ReportBatch (producers/wire/reports.proto), or the same as JSON: "
        "docs/gateway.md.",
        JsonBatch,
        binary=(PROTOBUF_TYPE,),
    ),
    answers={202: Content("Kafka has acknowledged the batch.", Acknowledged)},
    problems=(400, 403, 408, 413, 415, 429, 503, 504),
)

POST_BATCHES = Operation(
    method="POST",
    path=BATCHES_PATH,
    summary="Report: several batches of any metrics in one post, each acknowledged for itself.",
    scopes=("report",),
    body=Content(
        "A serialized ReportBatches (producers/wire/report_batches.proto), or a list of batches as "
        "JSON: docs/gateway.md.",
        list[JsonBatch],
        binary=(PROTOBUF_TYPE,),
    ),
    answers={
        202: Content("Kafka has acknowledged all batches.", BatchesAnswer),
        207: Content("Kafka has not acknowledged some: each has a status.", BatchesAnswer),
    },
    problems=(400, 403, 408, 413, 415, 429, 503),
)

POST_CROWD = Operation(
    method="POST",
    path=CROWDS_PATH,
    summary="Relay: a crowd of sealed reports, shuffled, which this server opens.",
    scopes=("relay",),
    body=Content("What a relay posts: docs/crowds.md.", media=(), binary=(CROWD_TYPE,)),
    answers={202: Content("Kafka has all of its valid reports.", CrowdAnswer)},
    problems=(400, 408, 413, 415, 503),
)
GATEWAY_OPERATIONS = (POST_REPORTS, POST_BATCHES, POST_CROWD)


class CrowdCounts(Collector):
    """Exports how many sealed reports from relays had each outcome."""

    def __init__(self, counts: Mapping[tuple[str, str], int]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Family]:
        """Return the counts as a metric family."""
        counts = sorted(self._counts.items())
        return Families(Sample(CROWD_REPORTS, count, labels) for labels, count in counts).filled()


def gateway(settings: Settings, metrics: Mapping[str, Metric]) -> Gateway:
    """Return the gateway to a deployment's Kafka.

    It connects and creates missing topics when the application starts; until then it answers 503.

    Raises
    ------
    SettingsError
        If the file of `gateway.crowd_keys` cannot be read, or has no key.
    DitherError
        If another setting is invalid.
    """
    limits = msgspec.structs.asdict(settings.gateway)
    if keys := settings.gateway.crowd_keys:
        try:
            read_keys(Path(keys))
        except (OSError, ValueError, ImportError) as error:
            source = settings.sources.get("gateway.crowd_keys", "default")
            expected = f"a file that `dither relay keygen` wrote ({error})"
            raise SettingsError("gateway.crowd_keys", masked_path(keys), expected, source) from None
    limits["acknowledge_timeout"] = milliseconds(settings.gateway.acknowledge_timeout) / 1000
    try:
        return Gateway(
            metrics,
            {
                "logger": clients.LIBRDKAFKA_LOG,
                "error_cb": ThrottledErrorLog(),
                **clients.reporter_properties(settings),
            },
            settings.topics.reports,
            **limits,
            times=Times(
                milliseconds(settings.aggregate.future) / 1000,
                milliseconds(settings.aggregate.past) / 1000,
            ),
            schema_id=settings.schemas.schema_id or None,
            prepare=functools.partial(topic_admin.ensure_topics, settings, settings.topics.reports),
        )
    except ValueError as error:
        raise DitherError(f"[gateway] {error}") from None
