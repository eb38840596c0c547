"""What a client of Redis sends."""

import numpy as np
import redis
from redis.connection import HiredisRespSerializer

from aggregator.storage.commands import LARGE_BYTES
from aggregator.storage.connection import CLIENT_OPTIONS


def test_large_values_are_sent_without_a_copy_and_all_as_hiredis_writes_them() -> None:
    connection = redis.Redis.from_url(
        "redis://", **CLIENT_OPTIONS
    ).connection_pool.make_connection()
    large = np.arange(LARGE_BYTES // 8 + 1, dtype="<i8").data.cast("B")
    for words in (
        ("EVALSHA", "0" * 40, 1, "pane", -1, 0.5, "é", b"\0\r\n", large, large[:64]),
        ("SCRIPT LOAD", large),
        ("SET", "pane", large[:LARGE_BYTES]),
    ):
        packed = connection.pack_command(*words)  # type: ignore[no-untyped-call]
        assert b"".join(packed) == b"".join(HiredisRespSerializer().pack(*words))
        assert any(piece is large for piece in packed) == any(word is large for word in words)
