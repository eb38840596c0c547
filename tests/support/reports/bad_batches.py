"""Kinds of bad batches, and the reason for which each has to be refused."""

import os

from estimators import Metric
from producers.wire.framing import frame
from tests.support.reports.messages import ARRIVAL, DAY, batch

Payload = bytes | None


def bad_batches(
    delay: Metric, carrier: Metric, age: Metric, *, noise_bytes: int, now_ms: int = ARRIVAL
) -> dict[str, tuple[Payload, str]]:
    """Return the pairs (payload, reason) by kind.

    Parameters
    ----------
    delay, carrier, age : Metric
        Metrics of randomized response, of RAPPOR with categories that do not fill their last byte,
        and of Laplace.
    noise_bytes : int
        The length of the payload of random bytes, the longest one.
    now_ms : int
        The time at which the batches will reach Kafka.
    """
    good = batch(delay, [1.0, 2.0, 3.0], seed=2**70).SerializeToString()
    told = {
        "another metric": (batch(delay, [1.0], seed=2**71, metric="other"), "unknown_metric"),
        "no metric": (batch(delay, [1.0], seed=2**72, metric=""), "unknown_metric"),
        "another revision": (batch(delay, [1.0], seed=2**73, revision=1), "wrong_revision"),
        "no revision": (batch(delay, [1.0], seed=2**74, revision=0), "wrong_revision"),
        "values without levels": (batch(delay, [1.0], seed=2**76, levels=b""), "bad_length"),
        "no batch id": (batch(delay, [1.0], batch_id=b""), "bad_batch_id"),
        "a short batch id": (batch(delay, [1.0], batch_id=b"x" * 15), "bad_batch_id"),
        "a long batch id": (batch(delay, [1.0], batch_id=b"x" * 17), "bad_batch_id"),
        "values cut short": (batch(delay, [1.0, 2.0], seed=2**77, values=b"\0"), "bad_length"),
        "values too long": (batch(delay, [1.0], seed=2**78, values=b"\0\0"), "bad_length"),
        "half a value": (batch(age, [1.0], seed=2**79, values=b"\0\0"), "bad_length"),
        "a level too many": (batch(delay, [1.0], seed=2**80, levels=b"\3"), "bad_level"),
        "level 255": (batch(carrier, [1], 4, seed=2**81, levels=b"\xff"), "bad_level"),
        "a sign that is neither": (batch(delay, [1.0], seed=2**82, values=b"\2"), "bad_value"),
        "padding bits set": (
            batch(carrier, [1], 4, seed=2**83, values=b"\xff" * carrier.randomizer.width),
            "bad_value",
        ),
        "more noise than there is": (
            batch(age, [1.0], 2, seed=2**84, values=b"\xff\xff\xff\x7f"),
            "bad_value",
        ),
        "a time before the epoch": (batch(delay, [1.0], 1, -5, 2**85), "bad_time"),
        "a time next week": (batch(delay, [1.0], 1, now_ms + 7 * DAY, 2**86), "future"),
        "the end of time": (batch(delay, [1.0], 1, 2**63 - 1, 2**87), "future"),
        "a round": (batch(delay, [1.0], seed=2**88, round=3), "bad_round"),
    }
    raw: dict[str, tuple[Payload, str]] = {
        "not protobuf at all": (b"\xff\xfe\xfdgarbage", "malformed"),
        "a tombstone": (None, "malformed"),
        "cut in the middle": (good[:-3], "malformed"),
        "JSON": (b'{"metric": "delay", "values": [1]}', "malformed"),
        "text that is no UTF-8": (b"\x0a\x02\xff\xfe", "malformed"),
        "nothing": (b"", "unknown_metric"),
        "a frame of another schema's message": (b"\0\0\0\0\7\2\2" + good, "bad_frame"),
        "a frame with no message indexes": (b"\0\0\0\0\7", "bad_frame"),
        "a frame around nothing": (b"\0\0\0\0\7\0", "unknown_metric"),
        "a frame around a frame": (frame(7, frame(7, good)), "malformed"),
        "zeros": (bytes(1_000), "malformed"),
        "noise": (b"\xff" + os.urandom(noise_bytes - 1), "malformed"),
    }
    return raw | {kind: (made.SerializeToString(), reason) for kind, (made, reason) in told.items()}
