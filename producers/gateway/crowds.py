"""`POST /v1/crowds`: opens the sealed reports that a relay has shuffled, and hands them to Kafka.

A relay belongs to another organisation, so its posts are checked like those of a device. The post
determines the bytes that go to Kafka, so a crowd that is posted again is counted once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import stat
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope

from estimators import Metric
from estimators.errors import ReportError, meant
from producers import sealing
from producers.gateway.bodies import PostedBatch, Times
from producers.gateway.problems import POST_AGAIN, Problem, bad_request, unavailable
from producers.gateway.receiving import Hold, Memory, Receiver, read_head
from producers.wire.reports_pb2 import ReportBatch

logger = logging.getLogger("producers")

CROWDS_PATH = "/v1/crowds"
CROWD_TYPE = "application/octet-stream"
MAX_CROWD_BODY = sealing.MAX_CROWD_BYTES + 4096
"""The most bytes of a post: the sealed reports, and what precedes them."""
MAX_POSTED_BYTES = 3 * MAX_CROWD_BODY
"""The most bytes of all posts that arrive, wait or are opened."""
MAX_BATCH_BYTES = 200_000
"""The most bytes of the reports in a message."""
UNREADABLE_BY_OTHERS = stat.S_IRWXO | stat.S_IWGRP
DROP_CROWD = "drop this crowd: it can never be taken"
Send = Callable[[PostedBatch], Awaitable[Problem | None]]


class CrowdAnswer(msgspec.Struct, frozen=True):
    """The answer when Kafka has all valid reports of a crowd.

    `reports` is the number of valid reports, `unopened` the number of reports that the label and
    the key did not open, and `invalid` the number that are not reports of the metric.
    """

    crowd_id: str
    reports: int
    unopened: int
    invalid: int


@dataclasses.dataclass(frozen=True)
class PostedCrowd:
    """A posted crowd whose label has been checked, and which may be opened."""

    crowd_id: bytes
    label: sealing.CrowdLabel
    reports: list[bytes]
    metric: Metric
    private_key: bytes


def read_keys(path: Path) -> dict[bytes, bytes]:
    """Return the private keys in a file, by the hash of their public keys.

    Parameters
    ----------
    path : Path
        A file with a private key of X25519 in each line, 64 hexadecimal digits, as ``dither relay
        keygen`` writes it. It has two lines while a key is being replaced.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If others may read or change the file, or it has no key or an invalid one.
    """
    if (mode := stat.S_IMODE(path.stat().st_mode)) & UNREADABLE_BY_OTHERS:
        raise ValueError(f"mode {mode:04o}: others may read or change it; `chmod 600 {path}`")
    keys = [sealing.read_private_key(line) for line in path.read_text().split()]
    if not keys:
        raise ValueError("an empty file: expected what `dither relay keygen` writes")
    return {
        sealing.key_hash(k.public_key().public_bytes_raw()): k.private_bytes_raw() for k in keys
    }


class Crowds:
    """Opens posted crowds, one at a time.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics by name.
    key_file : str
        A file for :func:`read_keys`, which is read for each crowd; without one no crowd is
        accepted.
    times : Times
        Which event times are accepted.
    check_kafka : callable
        Raises Problem if Kafka does not answer.
    send : callable
        Sends a batch; returns why Kafka has not acknowledged it, or None if it has.

    Attributes
    ----------
    counts : Counter
        The number of reports by metric and outcome: ``accepted``, ``unopened``, ``invalid``, or
        ``refused`` if their whole crowd was. Reports of a repeated post are counted again.
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        key_file: str,
        times: Times,
        check_kafka: Callable[[], None],
        send: Send,
    ) -> None:
        self._metrics, self._key_file, self._times = metrics, key_file, times
        self._check_kafka, self._send = check_kafka, send
        self._opening = asyncio.Lock()
        self._memory = Memory(MAX_POSTED_BYTES, "the process that opens crowds")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dither-crowd")
        self.counts: Counter[tuple[str, str]] = Counter()

    async def post(self, scope: Scope, receive: Receive) -> Response:
        """Answer a post with 202 once Kafka has the whole crowd; raise Problem if that fails."""
        if not self._key_file:
            problem = "this server has no key to open crowds (gateway.crowd_keys)"
            raise unavailable(problem, POST_AGAIN)
        head = read_head(scope["headers"], (CROWD_TYPE,))
        self._check_kafka()
        if self._opening.locked():
            raise unavailable("another crowd is being opened", POST_AGAIN)
        hold, receiver = Hold(self._memory), Receiver(MAX_CROWD_BODY, self._thread)
        try:
            body = await receiver.receive(receive, head.encoding, hold, lambda _: None)
            return await self._open_crowd(body)
        finally:
            hold.release()

    async def _open_crowd(self, body: bytes) -> Response:
        run = asyncio.get_running_loop().run_in_executor
        async with self._opening:
            crowd = await run(self._thread, self._read, body)
            opened_reports = await _opened_reports(crowd)
            batches = await run(self._thread, self._batches, crowd, opened_reports)
            problems = await asyncio.gather(*map(self._send, batches))
        for obstacle in filter(None, problems):
            remedy = "post the same bytes again: they are counted once"
            raise unavailable(obstacle.detail, remedy)
        openable = len(opened_reports) // crowd.metric.randomizer.width
        reports = sum(batch.reports for batch in batches)
        unopened, invalid = len(crowd.reports) - openable, openable - reports
        for outcome, count in (("accepted", reports), ("unopened", unopened), ("invalid", invalid)):
            self.counts[crowd.metric.name, outcome] += count
        answer = CrowdAnswer(crowd.crowd_id.hex(), reports, unopened, invalid)
        return Response(msgspec.json.encode(answer), 202, media_type="application/json")

    def _read(self, body: bytes) -> PostedCrowd:
        """Return the crowd in a post; raise Problem if the post is not a crowd."""
        try:
            crowd_id, label, reports = sealing.decode_crowd(body)
        except ValueError as error:
            raise bad_request(str(error), DROP_CROWD) from None
        metric = self._metrics.get(label.metric)
        if metric is None:
            expected = meant(label.metric, self._metrics)
            raise _waiting(f"unknown_metric: metric {label.metric!r}: {expected}")
        if label.fingerprint != metric.fingerprint:
            raise _waiting(
                f"wrong_revision: fingerprint {label.fingerprint.hex()}: expected "
                f"{metric.fingerprint.hex()}; the devices have another definition of {metric.name}"
            )
        if fault := self._crowd_fault(label, metric, reports):
            raise self._refused_crowd(metric, reports, fault)
        try:
            private_key = read_keys(Path(self._key_file)).get(label.key_hash)
        except (OSError, ValueError) as error:
            logger.error("gateway.crowd_keys = %r cannot be used: %s", self._key_file, error)  # noqa: TRY400
            problem = "the server's key cannot be used; its log says why"
            raise unavailable(problem, POST_AGAIN) from None
        if private_key is None:
            raise _waiting("key_hash: expected that of a key in the server's gateway.crowd_keys")
        return PostedCrowd(crowd_id, label, reports, metric, private_key)

    def _crowd_fault(self, label: sealing.CrowdLabel, metric: Metric, reports: list[bytes]) -> str:
        """Return why sealed reports are not a crowd; "" if they are one."""
        if metric.crowd is None:
            return f"metric {metric.name} has no crowd: its reports are not sealed"
        if label.pane_start_ms != metric.pane_start(label.pane_start_ms):
            return f"pane_start_ms = {label.pane_start_ms}: expected a multiple of {metric.pane_ms}"
        if (size := len(reports[0])) != (expected := sealing.sealed_size(metric.randomizer.width)):
            return f"sealed reports of {size} bytes: expected {expected}"
        if len(reports) < metric.crowd.minimum:
            return f"{len(reports)} reports: expected {metric.crowd.minimum} or more (minimum)"
        try:
            self._times.check(time_of(label, metric))
        except ReportError as error:
            return str(error)
        return ""

    def _batches(self, crowd: PostedCrowd, opened_reports: bytes) -> list[PostedBatch]:
        """Return batches with the valid reports; raise Problem if there are too few."""
        assert crowd.metric.crowd is not None  # noqa: S101
        values = valid_reports(crowd.metric, opened_reports)
        count = len(values) // crowd.metric.randomizer.width
        if count < (honest := crowd.metric.crowd.honest):
            problem = (
                f"{count} of {len(crowd.reports)} reports open and are valid: expected {honest} or "
                "more ((1 - dishonest) minimum)"
            )
            raise self._refused_crowd(crowd.metric, crowd.reports, problem)
        return list(batches_of(crowd, values))

    def _refused_crowd(self, metric: Metric, reports: list[bytes], detail: str) -> Problem:
        self.counts[metric.name, "refused"] += len(reports)
        return bad_request(detail, DROP_CROWD)


def time_of(label: sealing.CrowdLabel, metric: Metric) -> int:
    """Return the event time of a crowd: the last millisecond of its pane."""
    return label.pane_start_ms + metric.pane_ms - 1


def valid_reports(metric: Metric, values: bytes) -> bytes:
    """Return the encoded reports that are valid for the metric, in the same order."""
    width = metric.randomizer.width
    count = len(values) // width
    try:
        metric.randomizer.check(bytes(count), values)
    except ReportError:
        if values == values[:width] * count:
            return b""
        middle = count // 2 * width
        return valid_reports(metric, values[:middle]) + valid_reports(metric, values[middle:])
    return values


def batches_of(crowd: PostedCrowd, values: bytes) -> Iterator[PostedBatch]:
    """Yield a crowd's valid reports in batches; the same post always gives the same bytes."""
    metric, width = crowd.metric, crowd.metric.randomizer.width
    size = max(1, MAX_BATCH_BYTES // (width + 1)) * width
    for index, start in enumerate(range(0, len(values), size)):
        rows = values[start : start + size]
        part = b"dither crowd part\0" + crowd.crowd_id + index.to_bytes(4)
        key, reports = hashlib.sha256(part).digest()[:16], len(rows) // width
        batch = ReportBatch(
            metric=metric.name,
            revision=metric.revision,
            batch_id=key,
            time_ms=time_of(crowd.label, metric),
            levels=bytes(reports),
            values=rows,
        )
        yield PostedBatch(key, batch.SerializeToString(), reports, metric)


async def _opened_reports(crowd: PostedCrowd) -> bytes:
    """Return the reports that can be opened, sorted and concatenated."""
    info = sealing.label_info(crowd.label)
    sizes = len(crowd.reports[0]).to_bytes(4) + len(info).to_bytes(4)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "producers.opening"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        opened_reports, errors = await process.communicate(
            b"".join((crowd.private_key, sizes, info, *crowd.reports))
        )
    finally:
        if process.returncode is None:  # this server is closing
            process.kill()
    if process.returncode:
        logger.error("a crowd could not be opened: %s", errors.decode(errors="replace"))
        raise unavailable("the process that opens crowds has failed; the log says why", POST_AGAIN)
    return opened_reports


def _waiting(detail: str) -> Problem:
    """Return the problem for a crowd that this server can accept only with other files."""
    return unavailable(detail, "post the same bytes again, once the server's files are mended")
