"""Limits of what may be refused: where they are reached does not depend on how the log was cut."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.config.settings import Aggregate
from aggregator.counting.rejection_limits import RejectionWindow

OFF = Aggregate(deadletter_consecutive=0)
AT_ONCE: dict[str, Any] = {"deadletter_span": "0s"}


def reached(log: list[str], cuts: list[int], settings: Aggregate) -> int | None:
    """Return the first piece of a log, by its end, in which a limit is reached; '' is counted."""
    refused, begin = RejectionWindow(), 0
    for end in [*sorted(cuts), len(log)]:
        piece = log[begin:end]
        stored = RejectionWindow.stored(refused.facts())  # every piece is committed, and taken over
        if piece and stored.add(
            range(begin, end), [(i, r) for i, r in enumerate(piece) if r], settings
        ):
            return end
        refused, begin = stored, end
    return None


def first(log: list[str], settings: Aggregate) -> int | None:
    """Return the message that reaches a limit, counted from 1."""
    return reached(log, list(range(len(log))), settings)


def test_so_many_in_a_row_are_one_too_many() -> None:
    settings = Aggregate(deadletter_consecutive=5, **AT_ONCE)
    assert first(["wrong_revision"] * 4 + [""] + ["wrong_revision"] * 4, settings) is None
    assert first(["wrong_revision"] * 5, settings) == 5
    assert first([""] + ["wrong_revision", "unknown_metric"] * 3, settings) == 6
    assert first(["wrong_revision"] * 100, OFF) is None


def test_what_says_nothing_against_the_definitions_ends_a_row() -> None:
    settings = Aggregate(deadletter_consecutive=5, **AT_ONCE)
    for ordinary in ("late", "duplicate", "future", "too_old", "bad_time", "empty", "bad_value"):
        assert first([ordinary] * 100, settings) is None, ordinary
        assert first((["wrong_revision"] * 4 + [ordinary]) * 20, settings) is None, ordinary


def test_a_share_of_the_last_messages_is_too_large_once_there_are_so_many() -> None:
    settings = Aggregate(deadletter_consecutive=0, deadletter_ratio=0.5, deadletter_window=100)
    half = ["wrong_revision", ""] * 50
    assert first(half * 3, settings) is None
    assert first(["wrong_revision"] * 99, settings) is None
    assert first(["wrong_revision"] * 100, settings) == 100
    assert first([""] * 1000 + ["wrong_revision"] * 100, settings) == 1055


@given(
    st.lists(
        st.sampled_from(["", "", "wrong_revision", "unknown_metric", "malformed", "late"]),
        max_size=200,
    ),
    st.lists(st.integers(0, 200), max_size=10),
    st.sampled_from(
        [
            Aggregate(deadletter_consecutive=4, **AT_ONCE),
            Aggregate(deadletter_consecutive=2, deadletter_span="3ms"),
            Aggregate(deadletter_ratio=0.4),
        ]
    ),
)
def test_limits_follow_the_log_alone(log: list[str], cuts: list[int], settings: Aggregate) -> None:
    settings.deadletter_window = 40
    cuts = [cut for cut in cuts if cut < len(log)]
    at, piece = first(log, settings), reached(log, cuts, settings)
    assert piece == (None if at is None else min(end for end in [*cuts, len(log)] if end >= at))


def test_what_another_version_stored_begins_anew() -> None:
    assert RejectionWindow.stored({"refused": '{"run": "many"}'}) == RejectionWindow()
    assert RejectionWindow.stored({}) == RejectionWindow()
    assert msgspec.json.decode(RejectionWindow(run=3).facts()["refused"])["run"] == 3


def test_a_row_also_lasts_minutes_of_the_brokers_time() -> None:
    """Ten thousand messages in one record batch, which nobody can write between, are no row."""
    settings, many = Aggregate(), [(index, "unknown_metric") for index in range(10_000)]
    refused = RejectionWindow()
    assert refused.add([1_000_000] * 10_000, many, settings) == ""
    assert refused.add([1_119_999] * 10_000, many, settings) == ""
    assert refused.add([1_120_000], many[:1], settings) == "", "nor are two bursts"
    for seconds in range(1_130, 1_230, 12):
        assert refused.add([seconds * 1000], many[:1], settings) == ""
    assert refused.add([1_239_998], many[:1], settings) == "", "two minutes from the second burst"
    assert "20012 messages in a row" in refused.add([1_239_999], many[:1], settings)
    honest = RejectionWindow()
    assert honest.add([1_000_000] * 10_000, many, settings) == ""
    assert honest.add([1_060_000], [], settings) == ""
    assert honest.add([1_120_000] * 10_000, many, settings) == ""


@pytest.mark.parametrize("reason", ["malformed", "too_large"])
def test_what_is_no_batch_neither_makes_nor_ends_a_row(reason: str) -> None:
    settings = Aggregate(deadletter_consecutive=5, **AT_ONCE)
    assert first([reason] * 100, settings) is None
    assert first([*["wrong_revision"] * 4, *[reason] * 50, "wrong_revision"], settings) == 55
