"""The description of the routes of reports, which :class:`producers.gateway.Gateway` serves."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.kafka import clients, topic_admin
from aggregator.kafka.client_log import ThrottledErrorLog
from aggregator.web.operations import Content, Operation
from estimators import Metric
from estimators.durations import milliseconds
from producers.gateway import Gateway
from producers.gateway.bodies import PROTOBUF_TYPE, JsonBatch, Times
from producers.gateway.gateway import BATCHES_PATH, POST_PATH
from producers.gateway.several import BatchesAnswer


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


def gateway(settings: Settings, metrics: Mapping[str, Metric]) -> Gateway:
    """Return the gateway to a deployment's Kafka.

    At the application's start it connects and creates missing topics; before, it answers 503.

    Raises
    ------
    DitherError
        If a setting is invalid.
    """
    limits = msgspec.structs.asdict(settings.gateway)
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
