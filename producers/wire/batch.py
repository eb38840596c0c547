"""The wire format of a report batch: reports of one metric, one pane and one slice, in columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import ArrayLike, NDArray

from estimators import SearchMetric
from estimators.errors import ReportError
from estimators.metrics.attributes import Attributes, check_number, check_sent, sent_attributes
from estimators.metrics.metric import Metric
from producers.wire.framing import unframed
from producers.wire.reports_pb2 import Attribute, ReportBatch

BATCH_ID_BYTES = 16
LARGEST_BYTES = 33_554_432
"""The most bytes of a message that is parsed: decompressed, it may exceed any broker's limit."""


def new_batch_id() -> bytes:
    """Return 16 random bytes, which identify a batch and say nothing about its sender."""
    return os.urandom(BATCH_ID_BYTES)


def encode_batch(
    metric: Metric,
    level: ArrayLike,
    reports: ArrayLike,
    time_ms: int,
    batch_id: bytes | None = None,
    number: int = 0,
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    r"""Return randomized reports as the bytes of a ``ReportBatch``.

    Parameters
    ----------
    metric : Metric
        The batch contains the metric's name and revision.
    level : array_like of int, shape (n,)
        Indices of the metric's levels, from ``metric.level_of``.
    reports : array_like of integers, one row a report
        Randomized reports, from ``metric.randomize``.
    time_ms : int
        The event time of the batch, in ms since the epoch; 0 stands for Kafka's timestamp.
    batch_id : bytes, optional
        16 bytes under which the batch is counted once; random by default.
    number : int
        The round that the reports answer, from 1 on, for a metric with rounds; else 0.
    attributes : mapping of str to str, optional
        The device's attributes, by name: names that the metric does not use are left out, and a
        value that is not declared is replaced by "other".

    Raises
    ------
    ValueError
        If the time is negative, or the id is not 16 bytes.
    ReportError
        If the columns differ in length, a level or a report is not one that the metric's mechanism
        can send, or the metric has no such round.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1])
    >>> batch = ReportBatch.FromString(encode_batch(metric, [0, 1, 1], [1, 0, 1], 1_000))
    >>> batch.metric, batch.time_ms, batch.levels, batch.values
    ('late', 1000, b'\x00\x01\x01', b'\x01\x00\x01')
    """
    levels, rows = metric.randomizer.checked(level, reports)
    if time_ms < 0:
        raise ValueError(f"time_ms = {time_ms}: expected milliseconds since the epoch, 0 or more")
    identity = new_batch_id() if batch_id is None else batch_id
    if len(identity) != BATCH_ID_BYTES:
        raise ValueError(f"batch_id of {len(identity)} bytes: expected {BATCH_ID_BYTES}")
    check_round(metric, number)
    sent = sent_attributes(metric.slicing, attributes)
    return encode_randomized(metric, levels, rows, time_ms, identity, number, sent)


def encode_randomized(
    metric: Metric,
    level: NDArray[Any],
    reports: NDArray[Any],
    time_ms: int,
    batch_id: bytes,
    number: int = 0,
    attributes: Attributes = (),
) -> bytes:
    """Return new reports of a metric as the bytes of a batch, without checking them.

    `metric`, `level`, `reports`, `time_ms`, `batch_id`, `number`: as for :func:`encode_batch`;
    `attributes`: the result of :func:`estimators.metrics.attributes.sent_attributes`.
    """
    batch = ReportBatch(
        metric=metric.name,
        revision=metric.revision,
        batch_id=batch_id,
        time_ms=time_ms,
        levels=level.astype(np.uint8).tobytes(),
        values=metric.randomizer.encode(reports),
        round=number,
        attributes=[Attribute(name=name, value=value) for name, value in attributes],
    )
    return batch.SerializeToString()


def parse_batch(message: bytes) -> ReportBatch:
    """Parse a message of the reports topic, which may be in the frame of a schema registry.

    Raises
    ------
    ReportError
        For the reason ``too_large``, ``bad_frame`` or ``malformed``.
    """
    if len(message) > LARGEST_BYTES:
        raise ReportError("too_large", f"{len(message)} bytes: expected {LARGEST_BYTES} at most")
    return parse_bare_batch(unframed(message))


def parse_bare_batch(message: bytes) -> ReportBatch:
    """Parse bytes without a frame as a batch.

    Raises
    ------
    ReportError
        For the reason ``malformed``.
    """
    try:
        return ReportBatch.FromString(message)
    except DecodeError as error:
        raise ReportError("malformed", f"not a ReportBatch: {error}") from None


def heartbeat(metric: Metric, time_ms: int) -> bytes:
    """Return a batch without reports, as bytes; it only advances the metric's event time.

    `time_ms`: the event time that is reached, in ms since the epoch.

    A publisher writes it to partitions without reports of the metric, so that the log closes the
    metric's panes there, too; see docs/architecture.md.
    """
    batch = ReportBatch(
        metric=metric.name, revision=metric.revision, batch_id=new_batch_id(), time_ms=time_ms
    )
    return batch.SerializeToString()


def check_batch(
    batch: ReportBatch, metrics: Mapping[str, Metric], *, heartbeats: bool = False
) -> Metric:
    """Return the metric of a batch, after a check that its reports can be counted.

    `batch`: the batch, whose time is not checked; `metrics`: the metrics by name; `heartbeats`:
    whether a batch of a metric without rounds may be empty: see :func:`heartbeat`. Raises
    ReportError, with the reason, if the reports cannot be counted.
    """
    metric = metrics.get(batch.metric)
    if metric is None:
        raise ReportError("unknown_metric", f"metric {batch.metric[:80]!r} is not defined here")
    if batch.revision != metric.revision:
        raise ReportError(
            "wrong_revision",
            f"revision {batch.revision:08x} of {metric.name}: expected {metric.revision:08x}; "
            "the device has another definition of this metric",
        )
    if not (batch.levels or (heartbeats and not isinstance(metric, SearchMetric))):
        raise ReportError("empty", "a batch without reports")
    check_size(metric, len(batch.levels))
    if len(batch.batch_id) != BATCH_ID_BYTES:
        raise ReportError("bad_batch_id", f"{len(batch.batch_id)} bytes: expected {BATCH_ID_BYTES}")
    check_round(metric, batch.round)
    attributes_of(batch)
    metric.randomizer.check(batch.levels, batch.values)
    return metric


def attributes_of(batch: ReportBatch) -> dict[str, str]:
    """Return a batch's attributes by name; raise ReportError("bad_attributes") if invalid."""
    if not batch.attributes:  # the usual case, much faster
        return {}
    check_number(len(batch.attributes))  # before a list of millions is made
    return check_sent([(attribute.name, attribute.value) for attribute in batch.attributes])


def check_round(metric: Metric, number: int) -> None:
    """Raise ReportError("bad_round") if the metric has no such round."""
    if not isinstance(metric, SearchMetric):
        if number:
            raise ReportError("bad_round", f"round {number}: {metric.name} has no rounds")
    elif not 1 <= number <= metric.rounds:
        raise ReportError(
            "bad_round",
            f"round {number}: {metric.name} is asked in rounds 1 to {metric.rounds}, and an "
            "answer must name its round",
        )


def check_size(metric: Metric, reports: int) -> None:
    """Raise ReportError("too_many_reports") if a batch of the metric must not be so large."""
    if metric.max_batch_reports is not None and reports > metric.max_batch_reports:
        raise ReportError(
            "too_many_reports",
            f"{reports} reports in one batch: {metric.name} allows {metric.max_batch_reports} "
            "(max_batch_reports)",
        )
