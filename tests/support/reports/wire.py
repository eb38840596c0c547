"""Record batches as bytes, and a producer that sends also those which clients refuse."""

import dataclasses
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Self

Bytes = bytes | None
NONE, GZIP, ZSTD = 0, 1, 4
"""The numbers of the codecs in the attributes of a record batch."""
TRANSACTIONAL, CONTROL = 0x10, 0x20
PRODUCE, PRODUCE_VERSION = 0, 7
NOT_YET, NEW_TOPIC_SECONDS = (3, 5, 6), 60.0
"""Errors for a topic that is still being created: it is unknown, or has no leader."""
CASTAGNOLI = 0x82F63B78
ZSTD_MAGIC, ZSTD_BLOCK = b"\x28\xb5\x2f\xfd", 1 << 17
GZIP_PIECE = 1 << 20
ZSTD_WINDOW = 0x38
"""A window of 128 KB; the frame has no content size, no checksum and no dictionary."""


def _castagnoli() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (CASTAGNOLI if value & 1 else 0)
        table.append(value)
    return table


TABLE = _castagnoli()


def crc32c(data: bytes) -> int:
    """Return the checksum of a record batch.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ TABLE[value & 0xFF ^ byte]
    return value ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    """Encode a signed number as in a record: zigzag, seven bits a byte."""
    rest, found = (number << 1 ^ number >> 63) & 0xFFFFFFFFFFFFFFFF, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _sized(data: Bytes) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


@dataclasses.dataclass(frozen=True)
class Record:
    """A record; the names of its headers may be any bytes."""

    value: Bytes
    key: Bytes = None
    headers: Sequence[tuple[bytes, Bytes]] = ()
    timestamp_delta: int = 0

    def encode(self, offset_delta: int) -> bytes:
        """Return the record as bytes."""
        pairs = b"".join(_sized(name) + _sized(value) for name, value in self.headers)
        body = b"".join(
            (
                b"\0",
                varint(self.timestamp_delta),
                varint(offset_delta),
                _sized(self.key),
                _sized(self.value),
                varint(len(self.headers)),
                pairs,
            )
        )
        return varint(len(body)) + body


def zstd(*parts: tuple[bytes, int]) -> bytes:
    """Return a frame of byte strings, each repeated: a single byte takes 4 bytes for 128 KB.

    Only repetitions of a single byte are compressed, so that no library is needed.
    """
    blocks: list[tuple[int, int, bytes]] = []
    for data, times in parts:
        if len(data) == 1 and times > 1:
            sizes = [ZSTD_BLOCK] * (times // ZSTD_BLOCK) + [times % ZSTD_BLOCK]
            blocks += [(1, size, data) for size in sizes if size]
            continue
        whole = data * times
        for start in range(0, len(whole), ZSTD_BLOCK):
            piece = whole[start : start + ZSTD_BLOCK]
            blocks.append((0, len(piece), piece))
    frame = [ZSTD_MAGIC, bytes([0, ZSTD_WINDOW])]
    for index, (kind, size, data) in enumerate(blocks):
        head = size << 3 | kind << 1 | (index == len(blocks) - 1)
        frame += [head.to_bytes(3, "little"), data]
    return b"".join(frame)


def gzip(parts: Iterable[tuple[bytes, int]]) -> bytes:
    """Compress byte strings, each repeated, without having the whole in memory."""
    packer, found = zlib.compressobj(9, wbits=31), []
    for data, times in parts:
        many = max(1, min(times, GZIP_PIECE // max(1, len(data))))
        piece, left = data * many, times
        while left > 0:
            found.append(packer.compress(piece[: min(many, left) * len(data)]))
            left -= many
    return b"".join([*found, packer.flush()])


def expanding(size: int, head: bytes = b"") -> list[tuple[bytes, int]]:
    """Return the parts of one record whose value is `head` and `size` zeros."""
    value = varint(len(head) + size) + head
    length = len(b"\0\0\0\1") + len(value) + size + 1
    return [(varint(length) + b"\0\0\0\1" + value, 1), (b"\0", size + 1)]


def record_batch(
    records: Sequence[Record],
    *,
    codec: int = NONE,
    attributes: int = 0,
    timestamp: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """Return records as a batch, with its checksum.

    Parameters
    ----------
    codec : int
        The codec of the payload.
    attributes : int
        Further bits of the batch's attributes.
    timestamp : int
        The timestamp of the first record; any 64 bits.
    payload : bytes, optional
        Arbitrary bytes in place of the compressed records.
    """
    last = len(records) - 1
    latest = max((timestamp + record.timestamp_delta for record in records), default=timestamp)
    if payload is None:
        payload = b"".join(record.encode(i) for i, record in enumerate(records))
        if codec == GZIP:
            packer = zlib.compressobj(9, wbits=31)
            payload = packer.compress(payload) + packer.flush()
        elif codec == ZSTD:
            payload = zstd((payload, 1))
    head = struct.pack(
        ">hiqqqhii", codec | attributes, last, timestamp, latest, -1, -1, -1, last + 1
    )
    checked = head + payload
    tail = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(tail)) + tail


class RawProducer:
    """Writes record batches to a cluster of one broker."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def produce(self, topic: str, partition: int, batch: bytes) -> int | None:
        """Write a batch; return its first offset, or None if the broker refuses it."""
        deadline = time.monotonic() + NEW_TOPIC_SECONDS
        while True:
            error, offset = self._produce(topic, partition, batch)
            if error not in NOT_YET or time.monotonic() > deadline:
                return None if error else offset
            threading.Event().wait(0.1)

    def _produce(self, topic: str, partition: int, batch: bytes) -> tuple[int, int]:
        self._asked += 1
        head = struct.pack(">hhih", PRODUCE, PRODUCE_VERSION, self._asked, 3) + b"raw"
        name = topic.encode()
        body = struct.pack(
            f">hhiih{len(name)}siii", -1, -1, 30_000, 1, len(name), name, 1, partition, len(batch)
        )
        request = head + body + batch
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        at = 4 + 4 + 2 + len(name) + 4  # correlation, topics, the name, partitions
        _, error, offset = struct.unpack_from(">ihq", answer, at)
        return int(error), int(offset)

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                raise ConnectionError("the broker has hung up")
            found += piece
        return found
