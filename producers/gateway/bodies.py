"""Parses posts: a ``ReportBatch``, serialized or as JSON (for instance from curl).

Both forms contain reports that were randomized on the device. Unless collection is trusted, a
gateway never sees a true value.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import operator
import re
import time as clock
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from estimators import Metric
from estimators.errors import ReportError, meant
from producers.delivery.batches import PendingBatch
from producers.device.event_times import END_OF_TIME, event_times
from producers.gateway.problems import Problem, bad_request
from producers.wire.batch import check_batch, check_size, encode_batch, new_batch_id, parse_batch
from producers.wire.decoding import decode_json

PROTOBUF_TYPE = "application/x-protobuf"
JSON_TYPE = "application/json"
MEDIA_TYPES = (PROTOBUF_TYPE, JSON_TYPE)

NO_VALUES = (
    "randomize it on the device and post the report instead: producers.Reporter and "
    "/static/dither.js do so, docs/gateway.md shows how; the gateway must never see true values, "
    "and kept nothing of this body"
)
BATCH_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
BODY_FORMAT = "docs/gateway.md shows what a body looks like"
MAGIC_NUMBERS = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
"""The first bytes of a compressed body, by encoding."""


@dataclasses.dataclass(frozen=True, slots=True)
class PostedBatch(PendingBatch):
    """A batch for Kafka, with its metric."""

    metric: Metric


@dataclasses.dataclass(frozen=True)
class Times:
    """The accepted event times: up to `future` s ahead and `past` s ago; by default all."""

    future: float = math.inf
    past: float = math.inf

    def check(self, time_ms: int) -> None:
        """Raise ReportError if a time is too far from now; 0, for Kafka's timestamp, is accepted.

        `time_ms`: milliseconds since the epoch.
        """
        seconds_ahead = time_ms / 1000 - clock.time()
        for reason, where, away, limit in (
            ("future", "future", seconds_ahead, self.future),
            ("too_old", "past", -seconds_ahead, self.past),
        ):
            if time_ms and away > limit:
                event = np.datetime64(time_ms // 1000, "s")  # also beyond the year 9999
                raise ReportError(
                    reason,
                    f"an event time of {event}Z, {away:,.0f} s in the {where}: "
                    f"expected at most {limit:,.0f} (aggregate.{where})",
                )


ANY_TIME = Times()


class JsonReport(msgspec.Struct, forbid_unknown_fields=True):
    """A randomized value, with its level or the level's epsilon."""

    report: Annotated[
        int | list[int], Meta(description="The randomized report, as the mechanism forms it.")
    ]
    level: Annotated[int | None, Meta(description="The level's index.")] = None
    epsilon: Annotated[float | None, Meta(description="The level itself.")] = None


class JsonBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Reports of one metric and one event time, each randomized on the device."""

    metric: str
    reports: list[JsonReport]
    revision: Annotated[
        int | None, Meta(description="The revision of the device's definition of the metric.")
    ] = None
    batch_id: Annotated[
        str | None,
        Meta(description="32 hexadecimal digits or a UUID, under which the batch counts once."),
    ] = None
    time: Annotated[
        float | str | None,
        Meta(description="Seconds since the epoch, or ISO 8601; by default, the arrival time."),
    ] = None
    round: Annotated[
        int, Meta(ge=0, description="The answered round, for a metric that is asked in rounds.")
    ] = 0
    attributes: Annotated[
        dict[str, str],
        Meta(description="Public properties of the devices, by which reports are also summed."),
    ] = msgspec.field(default_factory=dict)


def read_batch(
    media_type: str, body: bytes, metrics: Mapping[str, Metric], times: Times = ANY_TIME
) -> PostedBatch:
    """Return the batch for Kafka that a body describes.

    `media_type`: one of `MEDIA_TYPES`; `body`: the posted bytes; `metrics`: the metrics by name;
    `times`: the accepted event times. Raises Problem with status 400 if no worker could count the
    batch, or if the body has true values.
    """
    try:
        if media_type == PROTOBUF_TYPE:
            return from_protobuf(body, metrics, times)
        return from_json(body, metrics, times)
    except ReportError as error:
        remedy = _REMEDY_BY_REASON.get(error.reason, BODY_FORMAT)
        raise bad_request(str(error), remedy) from None
    except ValueError as error:
        raise bad_request(str(error), BODY_FORMAT) from None


def not_json(body: bytes, error: Exception, shown: str = BODY_FORMAT) -> Problem:
    """Return the answer to a body that is not JSON; the answer names the likely format.

    `body`: the body; `error`: why the body cannot be read; `shown`: says where the right form is
    described.
    """
    if not body:
        return bad_request("an empty body: expected reports", shown)
    for coding, start in MAGIC_NUMBERS.items():
        if body.startswith(start):
            return bad_request(
                f"not JSON: the body begins as {coding} does, and no Content-Encoding says so",
                f"send the header Content-Encoding: {coding}",
            )
    return bad_request(f"not JSON: {error}", shown)


def from_protobuf(body: bytes, metrics: Mapping[str, Metric], times: Times) -> PostedBatch:
    """Return the batch in a serialized ``ReportBatch``; fields unknown to this version are dropped.

    Parameters
    ----------
    body : bytes
        The posted bytes.
    metrics : mapping of str to Metric
        The metrics, by name.
    times : Times
        Which event times are accepted.

    Raises
    ------
    ReportError, ValueError
        If no worker could count the batch.
    """
    batch = parse_batch(body)
    metric = check_batch(batch, metrics)
    _check_not_sealed(metric)
    if not 0 <= batch.time_ms < END_OF_TIME * 1000:
        raise ValueError(
            f"time_ms = {batch.time_ms}: expected milliseconds since the epoch, before the year "
            "10000, or 0 for Kafka's timestamp"
        )
    times.check(batch.time_ms)
    batch.DiscardUnknownFields()
    return PostedBatch(batch.batch_id, batch.SerializeToString(), len(batch.levels), metric)


def from_json(body: bytes, metrics: Mapping[str, Metric], times: Times) -> PostedBatch:
    """Return the batch that a JSON body describes.

    Parameters
    ----------
    body : bytes
        The posted bytes.
    metrics : mapping of str to Metric
        The metrics, by name.
    times : Times
        Which event times are accepted.

    Raises
    ------
    ReportError, ValueError
        If no worker could count the batch.
    Problem
        If the body has true values.
    """
    try:
        batch = decode_json(body, JsonBatch)
    except msgspec.ValidationError as error:
        if "unknown field `value" in str(error):
            raise bad_request(f"a body with a true value ({error})", NO_VALUES) from None
        if body.lstrip().startswith(b"["):
            remedy = "post a list of batches to /v1/reports/batches"
            raise bad_request("a list: expected one batch of reports", remedy) from None
        raise ValueError(f"not a batch of reports: {error}") from None
    except msgspec.DecodeError as error:
        raise not_json(body, error) from None
    metric = metrics.get(batch.metric)
    if metric is None:
        expected = meant(batch.metric[:80], metrics)
        raise ReportError("unknown_metric", f"metric {batch.metric[:80]!r}: {expected}")
    _check_not_sealed(metric)
    if batch.revision not in (None, metric.revision):
        raise ReportError(
            "wrong_revision",
            f"revision {batch.revision} of {metric.name}: expected {metric.revision}; the device "
            "has another definition of this metric",
        )
    if not batch.reports:
        raise ReportError("empty", "a batch without reports")
    check_size(metric, len(batch.reports))
    levels, rows = _levels(list(metric.levels), batch.reports), _rows(metric, batch.reports)
    key = new_batch_id() if batch.batch_id is None else _batch_id(batch.batch_id)
    time = _time_ms(batch.time)
    times.check(time)
    payload = encode_batch(metric, levels, rows, time, key, batch.round, batch.attributes)
    return PostedBatch(key, payload, len(levels), metric)


def _check_not_sealed(metric: Metric) -> None:
    if metric.crowd is not None:
        raise ReportError(
            "not_sealed", f"{metric.name} has a crowd: expected sealed reports, through a relay"
        )


def _levels(offered: Sequence[float], reports: list[JsonReport]) -> NDArray[np.intp]:
    """Return the index of each report's level; the report has the index or the epsilon."""
    pairs = list(map(operator.attrgetter("level", "epsilon"), reports))
    indices = {pair: _level(offered, pairs, pair) for pair in dict.fromkeys(pairs)}
    return np.array(list(map(indices.__getitem__, pairs)))


def _level(
    offered: Sequence[float],
    pairs: Sequence[tuple[int | None, float | None]],
    pair: tuple[int | None, float | None],
) -> int:
    """Return the index of a level that is given in one of two ways, or refuse its first report."""
    level, epsilon = pair
    if (level is None) == (epsilon is None):
        wrong = ": expected one of level and epsilon"
    elif level is not None:
        if 0 <= level < len(offered):
            return level
        wrong = f".level = {level}: expected 0 to {len(offered) - 1}"
    else:
        if epsilon in offered:
            return offered.index(epsilon)
        wrong = (
            f".epsilon = {epsilon}: expected one of {offered}, the one at which the report was "
            "randomized"
        )
    raise ReportError("bad_level", f"reports[{pairs.index(pair)}]{wrong}")


def _rows(metric: Metric, reports: list[JsonReport]) -> NDArray[Any]:
    """Return the reports as an array, one a row, in the shape of the mechanism's reports."""
    shape, rows = metric.randomizer.shape, [report.report for report in reports]
    try:
        array = np.array(rows)
    except ValueError:  # rows of different lengths
        array = np.empty(0)
    if array.shape == (len(rows), *shape):
        return array
    index, row = next(
        (index, row)
        for index, row in enumerate(rows)
        if shape != ((len(row),) if isinstance(row, list) else ())
    )
    given = f"a list of {len(row)} integers" if isinstance(row, list) else "an integer"
    expected = f"a list of {shape[0]} integers" if shape else "an integer"
    raise ReportError(
        "bad_length",
        f"reports[{index}].report is {given}: expected {expected} for {metric.mechanism}",
    )


def _batch_id(text: str) -> bytes:
    if BATCH_ID.fullmatch(text) is None:
        raise ReportError(
            "bad_batch_id", f"batch_id = {text[:80]!r}: expected 32 hexadecimal digits, or a UUID"
        )
    return bytes.fromhex(text.replace("-", ""))


def _time_ms(time: float | str | None) -> int:
    """Return a time in ms since the epoch; 0, which means Kafka's timestamp, if there is none."""
    if time is None:
        return 0
    moment: Any = time
    if isinstance(time, str):
        try:
            moment = datetime.datetime.fromisoformat(time)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValueError(
                f"time = {time[:80]!r}: expected ISO 8601 with a time zone "
                "(2026-01-31T12:00:00Z), or seconds since the epoch"
            )
    return int(event_times(moment, 1)[0])


_REMEDY_BY_REASON = {
    "future": "set the device's clock, or post again when that time has come",
    "too_old": "set the device's clock; if the time is right, the service has to allow it with a "
    "longer aggregate.past",
    "unknown_metric": "GET /v1/metrics lists the metrics",
    "wrong_revision": "GET /v1/metrics/NAME has the definition to use. A report of another "
    "definition cannot be counted. Randomizing a value again spends its epsilon again",
    "not_sealed": "report with HttpReporter(..., relay=, key=), which seals reports and posts them "
    "to the relay: docs/crowds.md",
    "too_many_reports": "post the reports in several batches, each with an id of its own",
    "bad_round": "GET /v1/metrics/NAME/round has the round that is open; of a metric without "
    "rounds, leave `round` out",
    "bad_value": "post what the mechanism returned on the device, never the value itself: "
    "docs/gateway.md says how it looks",
    "bad_batch_id": "draw 16 random bytes for each batch, and keep them when you post it again",
}
