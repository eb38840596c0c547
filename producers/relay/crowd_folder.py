"""The files of a relay: reports that wait for their crowd, and closed crowds on their way.

A crowd's files have the name of its label's hash. It passes through these folders::

    open/NAME       reports in order of arrival, each with a checksum
    closing/NAME    the same, once it takes no more; until it is in out/, or dropped as too small
    out/NAME.N      part N: its times, and what is posted
    closed/NAME     of the same label without pane: the last pane whose crowd has closed

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
PANE_FORMAT, TIMES_FORMAT = struct.Struct(">q"), struct.Struct(">qq")
GROUP_REPORTS = 1 << 21
"""That are shuffled at once: each takes memory."""
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
        return _name_of(self.label)

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

    def body(self) -> bytes:
        """Return what is posted."""
        return self.path.read_bytes()[TIMES_FORMAT.size :]

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether half of the time until its reports are late has passed."""
        return 2 * now_ms > self.closed_ms + self.late_ms


@dataclasses.dataclass
class ClosedCrowd:
    """What became of a crowd: its parts, retries, damaged records, and those of too small crowds.

    `parts` is empty if the crowd was too small.
    """

    metric: str
    repeated: int = 0
    damaged: int = 0
    too_few: int = 0
    parts: list[CrowdPart] = dataclasses.field(default_factory=list)


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
        for unfinished in path.glob(f"*/*{NEW_SUFFIX}"):
            unfinished.unlink()
        self.sync(*CROWD_FOLDERS)  # what a last run has not
        self._last_closed: dict[str, int] = {
            file.name: PANE_FORMAT.unpack(file.read_bytes())[0] for file in self._files("closed")
        }

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
        self.sync(folder)

    def open_crowds(self) -> list[OpenCrowd]:
        """Return the crowds that a last run left open."""
        return [OpenCrowd(self, CrowdTerms.read(path)[0]) for path in self._files("open")]

    def is_closed(self, label: CrowdLabel) -> bool:
        """Return whether the crowd of a label has closed, or that of a later pane.

        Crowds of a definition close in the order of their panes, so a clock that is set back opens
        none again.
        """
        return label.pane_start_ms <= self._last_closed.get(_name_of(label, 0), -1)

    def end_intake(self, terms: CrowdTerms) -> None:
        """Close a crowd: its file waits in closing/."""
        if not self.is_closed(terms.label):
            pane_start_ms, name = terms.label.pane_start_ms, _name_of(terms.label, 0)
            self.write("closed", name, PANE_FORMAT.pack(pane_start_ms))
            self._last_closed[name] = pane_start_ms
        with contextlib.suppress(FileNotFoundError):  # it is there, or has no report
            self.path("open", terms.name).rename(self.path("closing", terms.name))
        self.sync("closing", "open")

    def closing(self) -> list[str]:
        """Return the names of the crowds that wait for :meth:`shuffle`."""
        return [path.name for path in self._files("closing")]

    def shuffle(self, name: str) -> ClosedCrowd:
        """Put a crowd into parts in random order, or drop it if it is too small.

        Its parts may be posted once ``closing`` has been synchronized.

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
        times = TIMES_FORMAT.pack(terms.closes_ms, terms.late_ms)
        closed, reports = ClosedCrowd(terms.label.metric), _Reports(path, terms, head_bytes)
        for rows in reports.groups(closed):
            if rows.size < terms.minimum:
                closed.too_few += rows.size
                continue
            for part_rows in _cut(rows[random_order(rows.size)], terms.report_bytes):
                shuffled = [report.tobytes() for report in reports.rows[part_rows]]
                body = encode_crowd(os.urandom(CROWD_ID_BYTES), terms.label, shuffled)
                part_name = f"{name}.{len(closed.parts)}"
                self.write("out", part_name, times + body)
                closed.parts.append(self._part(part_name, times, terms.label, part_rows.size))
        path.unlink()
        return closed

    def parts(self) -> list[CrowdPart]:
        """Return the parts of a last run that may be posted."""
        parts = list[CrowdPart]()
        for path in self._files("out"):
            if not self.path("closing", path.stem).exists():
                data = path.read_bytes()
                _, label, reports = decode_crowd(data[TIMES_FORMAT.size :])
                parts.append(self._part(path.name, data[: TIMES_FORMAT.size], label, len(reports)))
        return parts

    def _part(self, name: str, times: bytes, label: CrowdLabel, reports: int) -> CrowdPart:
        times_ms = TIMES_FORMAT.unpack(times)
        return CrowdPart(self.path("out", name), label.metric, reports, *times_ms)

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

    def sync(self, *folders: str) -> None:
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


def _name_of(label: CrowdLabel, pane_start_ms: int | None = None) -> str:
    """Return the name of a label's files, or of those of another pane."""
    if pane_start_ms is not None:
        label = dataclasses.replace(label, pane_start_ms=pane_start_ms)
    return hashlib.sha256(label.encode()).hexdigest()[:32]


def hashes_of(prefixes: NDArray[np.uint8], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each prefix, shape (count, 16), under two odd keys."""
    sums: NDArray[np.uint64] = (prefixes.copy().view(np.uint64) * keys).sum(axis=1)
    return sums >> np.uint64(32)


class _Reports:
    """The reports in a file: `rows`, shape (count, bytes of a report)."""

    def __init__(self, path: Path, terms: CrowdTerms, head_bytes: int) -> None:
        record_bytes = terms.report_bytes + CHECKSUM_FORMAT.size
        count = (path.stat().st_size - head_bytes) // record_bytes
        data = np.memmap(path, np.uint8, "r")[head_bytes : head_bytes + count * record_bytes]
        self._records = data.reshape(count, record_bytes)
        self.rows = self._records[:, : terms.report_bytes]
        self._seed = zlib.crc32(terms.encode())

    def groups(self, closed: ClosedCrowd) -> Iterator[NDArray[np.intp]]:
        """Yield the rows of different reports, by groups of about equal size.

        A report is in the group of its hash, under keys that are drawn here: whoever posts cannot
        choose it, it says nothing of a time, and retries are together.
        """
        keys = np.frombuffer(os.urandom(PREFIX_BYTES), np.uint64) | np.uint64(1)
        groups = -(-self.rows.shape[0] // GROUP_REPORTS)
        for group in range(groups):
            rows, count, intact = list[NDArray[np.intp]](), 0, 0
            for first in range(0, self.rows.shape[0], ROWS_AT_ONCE):
                hashes = hashes_of(self.rows[first : first + ROWS_AT_ONCE, :PREFIX_BYTES], keys)
                selected = first + np.flatnonzero(hashes % np.uint64(groups) == group)
                rows.append(selected[self._are_intact(selected)])
                closed.damaged += selected.size - rows[-1].size
                intact += rows[-1].size
                count += rows[-1].size
                if count > 2 * GROUP_REPORTS:  # most of them are retries
                    rows = [self._different(np.concatenate(rows))]
                    count = rows[0].size
            different = self._different(np.concatenate(rows))
            closed.repeated += intact - different.size
            yield different

    def _are_intact(self, rows: NDArray[np.intp]) -> list[bool]:
        """Return which records are whole.

        A crash may leave damaged ones at the end, which nobody was told of.
        """
        records, size = self._records[rows], self.rows.shape[1]
        checksums = records[:, size:].copy().view(">u4")[:, 0].tolist()
        pairs = zip(records[:, :size], checksums, strict=True)
        return [zlib.crc32(report, self._seed) == checksum for report, checksum in pairs]

    def _different(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows of different reports: of each one and its retries the first."""
        prefixes = self.rows[rows, :PREFIX_BYTES].view(f"V{PREFIX_BYTES}")[:, 0]
        return rows[np.sort(np.unique(prefixes, return_index=True)[1])]


def _cut(order: NDArray[np.intp], report_bytes: int) -> list[NDArray[np.intp]]:
    """Cut an order into as few parts of nearly equal size as posts allow."""
    max_reports = MAX_CROWD_BYTES // report_bytes
    return np.array_split(order, -(-order.size // max_reports))
