"""The page about the wire has numbers: they are those of the code."""

from __future__ import annotations

import re
from fractions import Fraction

from estimators import define
from estimators.exact.thresholds import flip_threshold
from producers.wire.batch import encode_batch
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
LATE = define(
    name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[0.5, 1, 2]
)


def test_the_pages_revision_is_that_of_its_canonical_form() -> None:
    assert f"```json\n{LATE.canonical}\n```" in PAGE
    assert f"`{LATE.fingerprint.hex()}`" in PAGE
    assert f"`{LATE.revision:#x}`, {LATE.revision}." in PAGE


def test_the_pages_batch_is_what_the_reporter_sends() -> None:
    identity = bytes.fromhex("6f1c7e9a3f0b4c889a530d7a5c2f4b11")
    sent = encode_batch(LATE, [0, 2], [1, 0], 1_769_860_800_000, identity)
    block = PAGE.partition("in one batch of 45 bytes:\n\n```\n")[2].partition("```")[0]
    assert "".join(re.findall(r"^[0-9a-f]+", block, re.MULTILINE)) == sent.hex()
    assert len(sent) == 45


def test_the_pages_thresholds_are_exact() -> None:
    found = re.findall(r"`(0x[0-9a-f]{16})`", PAGE)
    assert found == [hex(flip_threshold(Fraction(epsilon))) for epsilon in map(str, LATE.levels)]
