"""The files of a relay: reports that wait for their crowd, and closed crowds on their way.

A crowd's files have the name of its label's hash. It passes through these folders::

    open/NAME       reports in order of arrival, each with a checksum
    closed/NAME     the crowd takes no more reports; it stays until they would be late
    closing/NAME    the file of open/, until the crowd is in out/, or dropped as too small
    out/NAME.N      part N, as it is posted

Each step is durable before the next one begins, and a restart repeats the step that was
interrupted. A part is posted only after its crowd has left closing/: from then on, its id and its
order are fixed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from producers.sealing import (
    CROWD_ID_BYTES,
    MAX_CROWD_BYTES,
    CrowdLabel,
    decode_crowd,
    encode_crowd,
)

CROWD_FOLDERS = ("open", "closing", "closed", "out")
HEAD_FORMAT = struct.Struct(">16sqqIHH")
FILE_MAGIC = b"dither crowd 1\n\0"
CHECKSUM_FORMAT = struct.Struct(">I")
MARK_FORMAT = struct.Struct(">qq")
ROWS_AT_ONCE = 1 << 14
NEW_SUFFIX = ".new"
"""Of a file that is being written."""
PREFIX_BYTES = 16
"""Of a sealed report, drawn at random by its device: two posts with the same ones are a retry."""


@dataclasses.dataclass(frozen=True)
class CrowdTerms:
    """What is fixed when a crowd's first report arrives.

    Attributes
    ----------
    label : CrowdLabel
    report_bytes : int
        Of each sealed report.
    minimum : int
        A crowd with fewer reports is dropped.
    closes_ms, late_ms : int
        When it closes, and when the service no longer counts its reports; since the epoch.
    """

    label: CrowdLabel
    report_bytes: int
    minimum: int
    closes_ms: int
    late_ms: int

    @property
    def name(self) -> str:
        """The name of the crowd's files."""
        return hashlib.sha256(self.label.encode()).hexdigest()[:32]

    def encode(self) -> bytes:
        """Return the head of the crowd's file."""
        label = self.label.encode()
        numbers = (self.closes_ms, self.late_ms, self.minimum, self.report_bytes, len(label))
        head = HEAD_FORMAT.pack(FILE_MAGIC, *numbers) + label
        return head + CHECKSUM_FORMAT.pack(zlib.crc32(head))

    @classmethod
    def read(cls, path: Path) -> tuple[CrowdTerms, int]:
        """Return the terms in a crowd's file, and the length of its head.

        Raises
        ------
        ValueError
            If the file has been damaged.
        """
        with path.open("rb") as file:
            head = file.read(HEAD_FORMAT.size)
            if len(head) == HEAD_FORMAT.size and head.startswith(FILE_MAGIC):
                _, closes_ms, late_ms, minimum, report_bytes, label_bytes = HEAD_FORMAT.unpack(head)
                label = file.read(label_bytes)
                if file.read(CHECKSUM_FORMAT.size) == CHECKSUM_FORMAT.pack(
                    zlib.crc32(head + label)
                ):
                    decoded = CrowdLabel.decode(label)
                    return cls(decoded, report_bytes, minimum, closes_ms, late_ms), file.tell()
        raise ValueError(
            f"{path}: not a crowd of reports, or damaged: restore it, or move it out of the folder"
        )


class OpenCrowd:
    """A crowd that takes reports; its methods run in one thread.

    Attributes
    ----------
    reports : int
        In its file, retries included.
    is_closed : bool
        Whether a last run has begun to close it.
    """

    def __init__(self, folder: CrowdFolder, terms: CrowdTerms) -> None:
        self.terms, self._folder = terms, folder
        self._path = folder.path("open", terms.name)
        head = terms.encode()
        self._seed, self._end = zlib.crc32(head), len(head)
        self._record_bytes = terms.report_bytes + CHECKSUM_FORMAT.size
        if self._path.exists():
            records = (self._path.stat().st_size - self._end) // self._record_bytes
            self._end += records * self._record_bytes
        self.reports = (self._end - len(head)) // self._record_bytes
        self.is_closed = folder.is_closed(terms)

    def append(self, reports: Sequence[bytes]) -> None:
        """Add reports; they are durable when it returns.

        Raises
        ------
        OSError
            If the disk does not take them: then none of them is in the file.
        """
        if not self._path.exists():
            self._folder.write("open", self.terms.name, self.terms.encode())
        data = memoryview(
            b"".join(
                part
                for report in reports
                for part in (report, CHECKSUM_FORMAT.pack(zlib.crc32(report, self._seed)))
            )
        )
        file = os.open(self._path, os.O_WRONLY)  # not kept: there may be more crowds than files
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(file, data[written:], self._end + written)
            os.fdatasync(file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._end)
            raise
        finally:
            os.close(file)
        self._end += len(data)
        self.reports += len(reports)


@dataclasses.dataclass(frozen=True)
class CrowdPart:
    """A part of a closed crowd, which the service has not acknowledged.

    Attributes
    ----------
    path : Path
        Its file: the body of its post.
    metric : str
    reports : int
    closed_ms, late_ms : int
        When its crowd closed, and when its reports are late.
    """

    path: Path
    metric: str
    reports: int
    closed_ms: int
    late_ms: int

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether half of the time until its reports are late has passed."""
        return 2 * now_ms > self.closed_ms + self.late_ms


@dataclasses.dataclass(frozen=True)
class ClosedCrowd:
    """What became of a crowd: its different reports, retries, damaged records, and parts.

    `parts` is empty if the crowd was too small.
    """

    metric: str
    reports: int
    repeated: int
    damaged: int
    parts: list[CrowdPart]


class CrowdFolder:
    """The folder of one relay.

    Parameters
    ----------
    path : Path
        Created if it is missing, for this user alone.

    Raises
    ------
    OSError
        If the folder cannot be used; BlockingIOError if another relay uses it.
    """

    def __init__(self, path: Path) -> None:
        self._root = path
        for folder in (path, *(path / name for name in CROWD_FOLDERS)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise
        for name in CROWD_FOLDERS:
            for unfinished in (path / name).glob(f"*{NEW_SUFFIX}"):
                unfinished.unlink()

    def close(self) -> None:
        """Leave the folder to another process."""
        os.close(self._lock)

    def path(self, folder: str, name: str) -> Path:
        """Return the path of a file."""
        return self._root / folder / name

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write a whole file: after a crash all of it is there, or nothing.

        Parameters
        ----------
        folder, name : str
        data : bytes
        """
        path = self.path(folder, name)
        new = path.with_name(f"{name}{NEW_SUFFIX}")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        new.rename(path)
        self._sync(folder)

    def open_crowds(self) -> list[OpenCrowd]:
        """Return the crowds that a last run left open."""
        return [OpenCrowd(self, CrowdTerms.read(path)[0]) for path in self._files("open")]

    def is_closed(self, terms: CrowdTerms) -> bool:
        """Return whether a crowd takes no more reports."""
        return self.path("closed", terms.name).exists()

    def end_intake(self, terms: CrowdTerms) -> None:
        """Close a crowd: its file waits in closing/."""
        if not self.is_closed(terms):
            self.write("closed", terms.name, MARK_FORMAT.pack(terms.closes_ms, terms.late_ms))
        source = self.path("open", terms.name)
        if source.exists():
            source.rename(self.path("closing", terms.name))
            self._sync("closing", "open")

    def closing(self) -> list[str]:
        """Return the names of the crowds that wait for :meth:`shuffle`."""
        return [path.name for path in self._files("closing")]

    def shuffle(self, name: str) -> ClosedCrowd:
        """Put a crowd into parts in random order, or drop it if it is too small.

        Raises
        ------
        ValueError
            If the file has been damaged.
        OSError
            If the disk has no room for the parts.
        """
        path = self.path("closing", name)
        for part in self._root.glob(f"out/{name}.*"):
            part.unlink()  # of a run that did not finish: nothing of it was posted
        terms, head_bytes = CrowdTerms.read(path)
        reports, damaged = _intact_reports(path, terms, head_bytes)
        first_rows = _first_of_retries(reports)
        repeated = reports.shape[0] - first_rows.size
        parts = list[CrowdPart]()
        if first_rows.size >= terms.minimum:
            order = first_rows[random_order(first_rows.size)]
            for number, rows in enumerate(_cut(order, terms.report_bytes)):
                shuffled = [report.tobytes() for report in reports[rows]]
                body = encode_crowd(os.urandom(CROWD_ID_BYTES), terms.label, shuffled)
                part_name = f"{name}.{number}"
                self.write("out", part_name, body)
                parts.append(self._part(part_name, terms.label.metric, rows.size))
        path.unlink()
        self._sync("closing")
        return ClosedCrowd(terms.label.metric, first_rows.size, repeated, damaged, parts)

    def parts(self) -> list[CrowdPart]:
        """Return the parts of a last run that may be posted."""
        parts = list[CrowdPart]()
        for path in self._files("out"):
            if not self.path("closing", path.stem).exists():
                _, label, reports = decode_crowd(path.read_bytes())
                parts.append(self._part(path.name, label.metric, len(reports)))
        return parts

    def _part(self, file_name: str, metric: str, reports: int) -> CrowdPart:
        path = self.path("out", file_name)
        times = MARK_FORMAT.unpack(self.path("closed", path.stem).read_bytes())
        return CrowdPart(path, metric, reports, *times)

    def forget(self, now_ms: int) -> None:
        """Remove the marks of crowds that are gone, and whose reports would be late."""
        for mark in self._files("closed"):
            _, late_ms = MARK_FORMAT.unpack(mark.read_bytes())
            is_here = any(  # in the order of its way
                self.path(folder, mark.name).exists() for folder in ("open", "closing")
            ) or any(self._root.glob(f"out/{mark.name}.*"))
            if now_ms > late_ms and not is_here:
                mark.unlink()

    def free_bytes(self) -> int:
        """Return the bytes that are free on the disk."""
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def largest_bytes(self) -> int:
        """Return the size of the largest crowd that is not shuffled."""
        largest = 0
        for path in (*self._files("open"), *self._files("closing")):
            with contextlib.suppress(FileNotFoundError):  # it has been shuffled since
                largest = max(largest, path.stat().st_size)
        return largest

    def _files(self, folder: str) -> Iterator[Path]:
        """Return the whole files of a folder, in the order of their names."""
        paths = sorted((self._root / folder).iterdir())
        return (path for path in paths if path.suffix != NEW_SUFFIX)

    def _sync(self, *folders: str) -> None:
        """Make new, renamed and removed files of folders durable."""
        for name in folders:
            descriptor = os.open(self._root / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def random_order(count: int) -> NDArray[np.intp]:
    """Return a random order: that of `count` keys of 128 bits from the operating system."""
    keys = np.frombuffer(os.urandom(16 * count), dtype=np.uint64).reshape(2, count)
    return np.lexsort((keys[0], keys[1]))


def _intact_reports(
    path: Path, terms: CrowdTerms, head_bytes: int
) -> tuple[NDArray[np.uint8], int]:
    """Return the reports of a file, a row each, and the number of damaged ones that are left out.

    A crash may leave damaged ones at the end, which nobody was told of.
    """
    record_bytes = terms.report_bytes + CHECKSUM_FORMAT.size
    count = (path.stat().st_size - head_bytes) // record_bytes
    if not count:
        return np.empty((0, terms.report_bytes), dtype=np.uint8), 0
    records = np.memmap(path, np.uint8, "r", head_bytes, (count, record_bytes))
    reports = records[:, : terms.report_bytes]
    seed = zlib.crc32(terms.encode())
    is_intact = np.ones(count, dtype=np.bool_)
    for first in range(0, count, ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        checksums = records[rows, terms.report_bytes :].copy().view(">u4")[:, 0].tolist()
        is_intact[rows] = [
            zlib.crc32(report, seed) == checksum
            for report, checksum in zip(reports[rows], checksums, strict=True)
        ]
    damaged = count - int(is_intact.sum())
    return (reports[is_intact] if damaged else reports), damaged


def _first_of_retries(reports: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return the rows of the different reports, in order."""
    words = np.ascontiguousarray(reports[:, :PREFIX_BYTES]).view(np.uint64)
    order = np.lexsort((words[:, 0], words[:, 1]))  # stable: of equal ones, the first is first
    is_first = np.ones(order.size, dtype=np.bool_)
    is_first[1:] = False
    for column in range(words.shape[1]):
        ordered = words[order, column]
        is_first[1:] |= ordered[1:] != ordered[:-1]
    return np.sort(order[is_first])


def _cut(order: NDArray[np.intp], report_bytes: int) -> list[NDArray[np.intp]]:
    """Cut an order into as few parts of nearly equal size as posts allow."""
    max_reports = MAX_CROWD_BYTES // report_bytes
    return np.array_split(order, -(-order.size // max_reports))
