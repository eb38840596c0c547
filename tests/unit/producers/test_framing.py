"""Frames of a schema registry: what they are, and that none is mistaken for a bare batch."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from estimators import ReportError
from producers.wire.batch import LARGEST_BYTES, parse_bare_batch, parse_batch
from producers.wire.framing import LARGEST_ID, check_schema_id, frame, frame_size, unframed
from producers.wire.reports_pb2 import Attribute, ReportBatch

BATCHES = st.builds(
    ReportBatch,
    metric=st.text(max_size=20),
    revision=st.integers(0, 2**32 - 1),
    batch_id=st.binary(max_size=16),
    time_ms=st.integers(-(2**63), 2**63 - 1),
    levels=st.binary(max_size=5),
    values=st.binary(max_size=5),
    round=st.integers(0, 2**32 - 1),
    attributes=st.lists(st.builds(Attribute, name=st.text(max_size=3), value=st.text(max_size=3))),
)
SERIALIZED = b"\0\0\0\0\3\0" + b"\n\x05delay\x10\x07"
"""What confluent-kafka's ProtobufSerializer made of a batch, with the schema's id 3."""


@given(BATCHES)
def test_no_batch_begins_like_a_frame(batch: ReportBatch) -> None:
    bare = batch.SerializeToString()
    assert frame_size(bare) == 0
    assert unframed(bare) == bare


@given(st.binary(max_size=60))
@example(b"")
@example(b"\0\0\0\1\0\n\5delay")
def test_what_begins_like_a_frame_is_no_batch(rest: bytes) -> None:
    with pytest.raises(DecodeError):
        ReportBatch.FromString(b"\0" + rest)


@given(BATCHES, st.integers(0, 2**32 - 1), st.booleans())
def test_a_framed_batch_is_the_batch(batch: ReportBatch, schema_id: int, is_long: bool) -> None:
    bare = batch.SerializeToString()
    framed = frame(schema_id, bare)
    if is_long:
        framed = framed[:5] + b"\2\0" + bare
    assert framed[1:5] == schema_id.to_bytes(4, "big")
    assert unframed(framed) == bare
    assert parse_batch(framed) == parse_batch(bare) == batch


@given(st.binary(max_size=40))
@example(b"")
@example(b"\0\0\0\1")
@example(b"\0\0\0\1\2")
@example(b"\0\0\0\1\2\2")
@example(b"\0\0\0\1\x80\0")
def test_whatever_begins_like_a_frame_is_one_or_is_refused(rest: bytes) -> None:
    message = b"\0" + rest
    if message[5:].startswith((b"\0", b"\2\0")):
        bare = unframed(message)
        assert message in (message[:5] + b"\0" + bare, message[:5] + b"\2\0" + bare)
    else:
        with pytest.raises(ReportError, match=r"bad_frame: .* message indexes"):
            unframed(message)


def test_frames_are_those_of_confluents_serializer() -> None:
    bare = ReportBatch(metric="delay", revision=7).SerializeToString()
    assert frame(3, bare) == SERIALIZED


def test_a_frame_in_a_frame_is_malformed() -> None:
    bare = ReportBatch(metric="delay").SerializeToString()
    with pytest.raises(ReportError, match="malformed"):
        parse_batch(frame(3, frame(3, bare)))
    with pytest.raises(ReportError, match="malformed"):
        parse_bare_batch(frame(3, bare))


def test_a_message_that_is_too_large_is_not_unframed() -> None:
    with pytest.raises(ReportError, match="too_large"):
        parse_batch(bytes(LARGEST_BYTES + 1))


@pytest.mark.parametrize("schema_id", [0, -1, LARGEST_ID + 1, True, "3", None])
def test_an_id_that_no_registry_gives_is_refused(schema_id: int) -> None:
    with pytest.raises(ValueError, match="dither schemas"):
        check_schema_id(schema_id)
