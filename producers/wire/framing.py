r"""Frames of a schema registry around a batch: Confluent's wire format for Protobuf.

A frame is a byte 0, the schema's id (4 bytes, big endian), the indexes that say which message of
the schema follows (``ReportBatch`` is the first: a byte 0, or its longer form ``\x02\x00``), and
then the batch.

No bare batch begins with a byte 0: a Protobuf message is empty or begins with the tag of a field, a
varint of 8 times the field's number (1 or more) plus its type. Its first byte is at least 8. A
message that begins with 0 is therefore a frame or malformed.

The id is not looked up: every batch is read with this version's schema, so that a log always gives
the same sums. A frame gives its writer no more rights than a bare batch.
"""

from __future__ import annotations

from estimators.errors import ReportError

MAGIC_BYTE = 0
ID_BYTES = 4
LARGEST_ID = (1 << 31) - 1
"""The largest id, as registries number schemas with Java's `int`."""
INDEXES_OFFSET = 1 + ID_BYTES
"""The position of the message indexes in a frame."""
FIRST_MESSAGE = b"\0"
MESSAGE_INDEXES = (FIRST_MESSAGE, b"\2\0")
"""The indexes of the first message, a single index 0: the short form, and the full form (zigzag
varints), which some serializers write.
"""
LONGEST_FRAME = INDEXES_OFFSET + max(map(len, MESSAGE_INDEXES))


def check_schema_id(schema_id: int) -> int:
    """Return a schema's id, after checking that it may be one.

    Raises ValueError if no registry can have given it.
    """
    if type(schema_id) is not int or not 1 <= schema_id <= LARGEST_ID:
        raise ValueError(
            f"schema_id = {schema_id!r}: expected the number that the schema registry gave, 1 to "
            f"{LARGEST_ID}; `dither schemas` prints it"
        )
    return schema_id


def frame(schema_id: int, batch: bytes) -> bytes:
    r"""Return a serialized ``ReportBatch`` in a frame with the schema's id.

    Examples
    --------
    >>> frame(258, b"batch")
    b'\x00\x00\x00\x01\x02\x00batch'
    """
    return bytes([MAGIC_BYTE]) + schema_id.to_bytes(ID_BYTES, "big") + FIRST_MESSAGE + batch


def frame_size(head: bytes) -> int:
    """Return the size of a message's frame; 0 if the message has none.

    `head`: the first seven bytes of the message, or more. Raises ReportError with the reason
    ``bad_frame`` if a frame begins but is not that of a ``ReportBatch``.
    """
    if not head or head[0] != MAGIC_BYTE:
        return 0
    for indexes in MESSAGE_INDEXES:
        if head.startswith(indexes, INDEXES_OFFSET):
            return INDEXES_OFFSET + len(indexes)
    shown = head[INDEXES_OFFSET : INDEXES_OFFSET + 2].hex(" ") or "nothing"
    raise ReportError(
        "bad_frame",
        f"a frame of a schema registry, with {shown} after the schema's id: expected the message "
        "indexes of ReportBatch, 00 or 02 00",
    )


def unframed(message: bytes) -> bytes:
    r"""Return the batch in a message, without the frame that it may have.

    Raises ReportError like :func:`frame_size`.

    Examples
    --------
    >>> unframed(b"\0\0\0\1\2\0batch"), unframed(b"\0\0\0\1\2\2\0batch"), unframed(b"batch")
    (b'batch', b'batch', b'batch')
    """
    return message[frame_size(message) :]
