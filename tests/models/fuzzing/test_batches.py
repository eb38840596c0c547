"""Damaged batches crash nothing, and each is counted or refused."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.state import layout
from tests.models.fuzzing.counting import MismatchError, fuzz


def test_every_fuzzed_batch_is_counted_or_refused() -> None:
    outcomes = fuzz(4_000, seed=1)
    assert outcomes.keys() >= {
        "accepted",
        "duplicate",
        "late",
        "malformed",
        "bad_frame",
        "unknown_metric",
        "wrong_revision",
        "bad_level",
        "bad_value",
        "bad_length",
    }
    assert outcomes["accepted"] > outcomes.total() / 3, "damage is not all there is"


@pytest.mark.slow
def test_a_million_fuzzed_batches_are_counted_or_refused() -> None:
    assert fuzz(1_000_000, seed=0).total() >= 1_000_000


@pytest.mark.more
def test_a_decoder_that_takes_every_batch_for_its_neighbours_layout_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        layout.Layout, "fits", lambda _, matrix: np.ones(len(matrix), dtype=np.bool_)
    )
    with pytest.raises(MismatchError, match="seed 1"):
        fuzz(6_000, seed=1)
