"""Crowds as a relay posts them: reports are really sealed, only the relay is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from estimators import Metric
from producers.opening import open_each
from producers.sealing import CrowdLabel, encode_crowd, key_hash, label_info, read_private_key, seal

KEY, OTHER_KEY = "11" * 32, "22" * 32
"""Private keys."""


def public(private: str) -> bytes:
    return read_private_key(private).public_key().public_bytes_raw()


def key_file(folder: Path) -> Path:
    """Return a file with both keys."""
    file = folder / "crowd-keys"
    file.touch(0o600)
    file.write_text(f"{OTHER_KEY}\n{KEY}\n")
    return file


def label_of(question: Metric, start_ms: int, **changes: Any) -> CrowdLabel:
    usual = {
        "key_hash": key_hash(public(KEY)),
        "fingerprint": question.fingerprint,
        "pane_start_ms": start_ms,
        "metric": question.name,
    }
    return CrowdLabel(**{**usual, **changes})


def sealed(values: bytes, label: CrowdLabel, private: str = KEY) -> list[bytes]:
    """Return a sealed report of one byte for each value."""
    return [seal(bytes([value]), label, public(private)) for value in values]


def opened(sealed: bytes, label: CrowdLabel, private: str = KEY) -> list[bytes]:
    """Return the report in a sealed one, if it opens."""
    key = bytes.fromhex(private)
    return [*open_each(key, label_info(label), sealed, max(1, len(sealed)))]


def crowd(reports: list[bytes], label: CrowdLabel, number: int = 1) -> bytes:
    """Return the body of a post; `number` is the crowd's id."""
    return encode_crowd(number.to_bytes(16), label, reports)


def mixed(zeros: int, ones: int) -> bytes:
    """Return reports in an order that is not sorted."""
    return bytes(zeros // 2) + b"\1" * ones + bytes(zeros - zeros // 2)
