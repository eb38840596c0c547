"""Damaged batches crash nothing, and each is counted or refused."""

from __future__ import annotations

from tests.models.fuzzing.counting import fuzz


def test_every_fuzzed_batch_is_counted_or_refused() -> None:
    outcomes = fuzz(4_000, seed=1)
    reasons = "malformed bad_frame unknown_metric wrong_revision bad_level bad_value bad_length"
    assert outcomes.keys() >= {"accepted", "duplicate", "late", *reasons.split()}
    assert outcomes["accepted"] > outcomes.total() / 3, "damage is not all there is"
