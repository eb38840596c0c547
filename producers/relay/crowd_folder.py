"""The files of a relay: records of open crowds with checksums, and closed crowds to be posted.

A crowd's files have the name of its label's hash. It passes through these folders::

    open/NAME       reports in order of arrival, each with a checksum
    closing/NAME    the same file, once the crowd has closed, until its parts are in out/, or it
                    is dropped as too small
    out/NAME.N      part N: the crowd's terms, and what is posted
    closed/NAME     the last pane whose crowd has closed; NAME is for the label without its pane

Each step is durable before the next one begins, and a restart repeats the step that was
interrupted. A part is posted only after its crowd has left closing/: from then on, its id and its
order are fixed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import operator
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from producers.sealing import (
    CROWD_ID_BYTES,
    MAX_CROWD_BYTES,
    CrowdLabel,
    decode_crowd,
    encode_crowd,
)
from producers.wire.decoding import decode_json

logger = logging.getLogger("producers")

CROWD_FOLDERS = ("open", "closing", "closed", "out")
HEAD_FORMAT, CHECKSUM_FORMAT = struct.Struct(">IH"), struct.Struct(">I")
GROUP_REPORTS = 1 << 21
"""How many reports are shuffled at a time, to limit the memory."""
ROWS_AT_ONCE = 1 << 14
NEW_SUFFIX = ".new"
"""The end of the name of a file that is being written."""
PREFIX_BYTES = 16
"""The first bytes of a sealed report, which its device draws at random: two posts with the same
bytes are a retry."""


@dataclasses.dataclass(frozen=True)
class CrowdTerms:
    """The terms of a crowd, which are fixed when its first report arrives.

    Attributes
    ----------
    label : CrowdLabel
        The label of the crowd's reports.
    report_bytes : int
        The number of bytes of each sealed report.
    minimum : int
        A crowd with fewer reports is dropped.
    closes_ms, late_ms : int
        When the crowd closes, and from when on the service no longer counts its reports; in ms
        since the epoch.
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

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether half of the time between `closes_ms` and `late_ms` has passed."""
        return 2 * now_ms > self.closes_ms + self.late_ms

    def encode(self) -> bytes:
        """Return the terms as bytes, with which each file of the crowd begins."""
        terms = msgspec.json.encode(self)
        return HEAD_FORMAT.pack(zlib.crc32(terms), len(terms)) + terms

    @classmethod
    def read(cls, path: Path) -> CrowdTerms:
        """Return the terms in a crowd's file.

        Raises ValueError if the file has been damaged.
        """
        with contextlib.suppress(struct.error, ValueError), path.open("rb") as file:
            checksum, length = HEAD_FORMAT.unpack(file.read(HEAD_FORMAT.size))
            terms = file.read(length)
            if zlib.crc32(terms) == checksum:
                return decode_json(terms, cls)
        raise _damaged(path)


class OpenCrowd:
    """A crowd that takes reports; its methods run in one thread.

    Attributes
    ----------
    terms : CrowdTerms
        The terms of the crowd.
    reports : int
        The number of reports in the crowd's file, retries included.
    is_ending : bool
        Whether the crowd takes no more reports, because its file will leave open/.
    """

    def __init__(self, folder: CrowdFolder, terms: CrowdTerms) -> None:
        self.terms, self.is_ending, self._folder = terms, False, folder
        self._path = folder.path("open", terms.name)
        header = terms.encode()
        self._seed, self._record_bytes = (
            zlib.crc32(header),
            terms.report_bytes + CHECKSUM_FORMAT.size,
        )
        size = self._path.stat().st_size if self._path.exists() else len(header)
        self.reports = (size - len(header)) // self._record_bytes
        self._end = len(header) + self.reports * self._record_bytes

    def append(self, reports: Sequence[bytes]) -> None:
        """Add reports; they are durable when this returns.

        Raises OSError if the disk does not take the reports; then none of them is in the file.
        """
        if not self._path.exists():
            self._folder.write("open", self.terms.name, self.terms.encode())
        checksums = (CHECKSUM_FORMAT.pack(zlib.crc32(report, self._seed)) for report in reports)
        records = memoryview(b"".join(map(operator.add, reports, checksums)))
        file = os.open(self._path, os.O_WRONLY)  # not kept open: files are limited
        try:
            written = 0
            while written < len(records):
                written += os.pwrite(file, records[written:], self._end + written)
            os.fdatasync(file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._end)
            raise
        finally:
            os.close(file)
        self._end += len(records)
        self.reports += len(reports)


class CrowdFolder:
    """The folder of one relay.

    Parameters
    ----------
    path : Path
        The path of the folder. It is created if it is missing, for this user alone.

    Attributes
    ----------
    crowds : Counter
        The number of closed crowds, by metric and ``shuffled`` or ``too_few``.
    reports : Counter
        The number of reports, by metric and ``taken``, ``repeated``, ``damaged``, ``too_few``,
        ``delivered`` or ``refused``.
    damaged : str
        Why files in out/ are not posted; empty if all can be posted.

    Raises
    ------
    OSError
        If the folder cannot be used; BlockingIOError if another relay uses it.
    ValueError
        If a file in the folder has been damaged.
    """

    def __init__(self, path: Path) -> None:
        self._root = path
        self.crowds, self.reports = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        self._unsynced: set[str] = set()
        """The names of crowds whose removal from closing/ is not yet durable."""
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
        self.sync(*CROWD_FOLDERS)  # for changes that the last run did not sync
        self._last_closed = {file.name: _read_mark(file) for file in self._files("closed")}
        self.damaged = ""
        self.parts()
        if self.damaged:
            raise ValueError(self.damaged)

    def close(self) -> None:
        """Release the folder, so that another process can use it."""
        os.close(self._lock)

    def path(self, folder: str, name: str) -> Path:
        """Return the path of a file."""
        return self._root / folder / name

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write a whole file atomically: after a crash there is all of it, or none.

        `folder`, `name`: the folder and the name of the file; `data`: the content of the file.
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
        """Return the crowds that the last run left open."""
        return [OpenCrowd(self, CrowdTerms.read(path)) for path in self._files("open")]

    def is_closed(self, label: CrowdLabel) -> bool:
        """Return whether the crowd of a label has closed, or that of a later pane.

        Crowds of a definition close in the order of their panes, so that no crowd opens again if
        the clock is set back.
        """
        return label.pane_start_ms <= self._last_closed.get(_mark_of(label), -1)

    def end_intake(self, terms: CrowdTerms) -> None:
        """Close a crowd, and move its file to closing/."""
        if not self.is_closed(terms.label):
            pane_start_ms, mark = terms.label.pane_start_ms, _mark_of(terms.label)
            self.write("closed", mark, str(pane_start_ms).encode())
            self._last_closed[mark] = pane_start_ms
        with contextlib.suppress(FileNotFoundError):  # it was moved already, or has no report
            self.path("open", terms.name).rename(self.path("closing", terms.name))
        self.sync("closing", "open")

    def closing(self) -> set[str]:
        """Return the names of the crowds that wait for :meth:`shuffle`."""
        return {path.name for path in self._files("closing")} | self._unsynced  # in this order

    def shuffle(self, name: str) -> None:
        """Put a crowd into parts in random order, or drop it if it is too small.

        Raises
        ------
        ValueError
            If the file has been damaged.
        OSError
            If the disk has no room for the parts.
        """
        path = self.path("closing", name)
        if path.exists():
            terms = CrowdTerms.read(path)
            for part in self._root.glob(f"out/{name}.*"):
                part.unlink()  # an unfinished run left it, and posted no part of the crowd
            self._write_parts(path, terms)
            self._unsynced.add(name)
            path.unlink()
        self.sync("closing")
        self._unsynced.discard(name)

    def _write_parts(self, path: Path, terms: CrowdTerms) -> None:
        metric, header, parts = terms.label.metric, terms.encode(), 0
        record_bytes = terms.report_bytes + CHECKSUM_FORMAT.size
        count = (path.stat().st_size - len(header)) // record_bytes
        data = np.memmap(path, np.uint8, "r")[len(header) : len(header) + count * record_bytes]
        records, counts = data.reshape(count, record_bytes), Counter[str]()
        max_reports = MAX_CROWD_BYTES // terms.report_bytes
        for rows in _groups(records, zlib.crc32(header), counts):
            if rows.size < terms.minimum:
                counts["too_few"] += rows.size
                continue
            order = rows[random_order(rows.size)]
            for part_rows in np.array_split(order, -(-rows.size // max_reports)):
                reports = [row.tobytes() for row in records[part_rows, : terms.report_bytes]]
                body = encode_crowd(os.urandom(CROWD_ID_BYTES), terms.label, reports)
                self.write("out", f"{path.name}.{parts}", header + body)
                parts += 1
        self.reports.update({(metric, outcome): number for outcome, number in counts.items()})
        self.crowds[metric, "shuffled" if parts else "too_few"] += 1
        if parts:
            logger.info("a crowd of %s was shuffled", metric)
        else:
            logger.warning(
                "a crowd of %s was deleted: its %d reports are fewer than the minimum",
                metric,
                counts["too_few"],
            )

    def parts(self) -> dict[Path, CrowdTerms]:
        """Return the files of the parts that may be posted, with the terms of their crowds."""
        parts, faults, paths = dict[Path, CrowdTerms](), list[str](), self._files("out")
        closing = self.closing()  # in this order
        for path in paths:
            try:
                if path.stem not in closing:
                    parts[path] = CrowdTerms.read(path)
            except FileNotFoundError:
                pass  # it was acknowledged meanwhile
            except (OSError, ValueError) as error:  # other parts are posted nevertheless
                faults.append(str(error))
        if faults and not self.damaged:
            logger.error("%s", faults[0])
        self.damaged = "; ".join(faults)
        return parts

    def read_part(self, path: Path, terms: CrowdTerms) -> tuple[bytes, int]:
        """Return the body of a part's post, and its number of reports.

        Raises ValueError if the file has been damaged.
        """
        body = path.read_bytes()[len(terms.encode()) :]
        with contextlib.suppress(ValueError):
            _, label, reports = decode_crowd(body)
            if (label, len(reports[0])) == (terms.label, terms.report_bytes):
                return body, len(reports)
        raise _damaged(path)

    def free_bytes(self) -> int:
        """Return the free bytes of the disk, less those needed to shuffle the largest crowd."""
        status, largest = os.statvfs(self._root), 0
        for path in (*self._files("open"), *self._files("closing")):
            with contextlib.suppress(FileNotFoundError):  # it was shuffled meanwhile
                largest = max(largest, path.stat().st_size)
        return status.f_bavail * status.f_frsize - largest

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
    """Return the order of `count` random keys of 128 bits from the operating system."""
    keys = np.frombuffer(os.urandom(16 * count), dtype=np.uint64).reshape(2, count)
    return np.lexsort((keys[0], keys[1]))


def _name_of(label: CrowdLabel) -> str:
    return hashlib.sha256(label.encode()).hexdigest()[:32]


def _mark_of(label: CrowdLabel) -> str:
    """Return the name of the file that says which pane of a label has closed."""
    return _name_of(dataclasses.replace(label, pane_start_ms=0))


def _read_mark(path: Path) -> int:
    try:
        return int(path.read_text())
    except ValueError:
        raise _damaged(path) from None


def _damaged(path: Path) -> ValueError:
    remedy = "restore it, or move it out of the folder"
    return ValueError(f"{path}: not a file of a relay, or damaged: {remedy}")


def hashes_of(prefixes: NDArray[np.uint8], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each prefix; `prefixes`: shape (count, 16); `keys`: two odd numbers."""
    sums: NDArray[np.uint64] = (prefixes.copy().view(np.uint64) * keys).sum(axis=1)
    return sums >> np.uint64(32)


def _groups(
    records: NDArray[np.uint8], seed: int, counts: Counter[str]
) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of different reports in groups of about equal size; count the other rows.

    The group of a report follows from its hash under keys that are drawn here: no sender can choose
    the group, it does not depend on the time of arrival, and a report's retries are in the same
    group. A crash may leave damaged records at the end, which were not acknowledged.
    """

    def different(rows: list[NDArray[np.intp]]) -> NDArray[np.intp]:
        """Return the rows of different reports: for a report and its retries, the first row."""
        joined = np.concatenate(rows)
        prefixes = records[joined, :PREFIX_BYTES].view(f"V{PREFIX_BYTES}")[:, 0]
        return joined[np.sort(np.unique(prefixes, return_index=True)[1])]

    keys = np.frombuffer(os.urandom(PREFIX_BYTES), np.uint64) | np.uint64(1)
    groups = -(-len(records) // GROUP_REPORTS)
    for group in range(groups):
        rows, intact = list[NDArray[np.intp]](), 0
        for first in range(0, len(records), ROWS_AT_ONCE):
            hashes = hashes_of(records[first : first + ROWS_AT_ONCE, :PREFIX_BYTES], keys)
            selected = first + np.flatnonzero(hashes % np.uint64(groups) == group)
            rows.append(selected[_are_intact(records[selected], seed)])
            counts["damaged"] += selected.size - rows[-1].size
            intact += rows[-1].size
            if sum(map(len, rows)) > 2 * GROUP_REPORTS:  # then most of these rows are retries
                rows = [different(rows)]
        rows = [different(rows)]
        counts["repeated"] += intact - rows[0].size
        yield rows[0]


def _are_intact(records: NDArray[np.uint8], seed: int) -> list[bool]:
    size = CHECKSUM_FORMAT.size
    checksums = records[:, -size:].copy().view(">u4")[:, 0].tolist()
    pairs = zip(records[:, :-size], checksums, strict=True)
    return [zlib.crc32(report, seed) == checksum for report, checksum in pairs]
