"""Damaged batches crash nothing, and each is counted or refused."""

import pytest

from tests.models.fuzzing.counting import fuzz


@pytest.mark.parametrize(
    ("batches", "seed"), [(4_000, 1), pytest.param(1_000_000, 0, marks=pytest.mark.slow)]
)
def test_every_fuzzed_batch_is_counted_or_refused(batches: int, seed: int) -> None:
    outcomes = fuzz(batches, seed)
    reasons = "malformed bad_frame unknown_metric wrong_revision bad_level bad_value bad_length"
    assert outcomes.keys() >= {"accepted", "duplicate", "late", *reasons.split()}
    assert outcomes["accepted"] > outcomes.total() / 3, "damage is not all there is"
