"""Where devices report: described here, served by :class:`producers.gateway.Gateway`."""

from __future__ import annotations

import msgspec

from aggregator.web.operations import JSON, Content, Operation

PROTOBUF = "application/x-protobuf"


class Acknowledged(msgspec.Struct, frozen=True):
    """Kafka has the batch."""

    batch_id: str
    reports: int


REPORTS = Operation(
    method="POST",
    path="/v1/reports",
    summary="Report: a batch of answers that were randomized on the device.",
    scopes=("report",),
    body=Content(
        "A serialized ReportBatch (producers/reports.proto), or the same as JSON: docs/gateway.md.",
        media=(PROTOBUF, JSON),
        plain={},
    ),
    answers={202: Content("Kafka has acknowledged the batch.", Acknowledged)},
    problems=(400, 408, 413, 415, 429, 503, 504),
)
