"""Crowds as a relay posts them: the reports are really sealed, but there is no relay."""

import dataclasses
from pathlib import Path
from typing import Any

from producers.opening import open_each
from producers.sealing import CrowdLabel, encode_crowd, key_hash, label_info, read_private_key, seal
from tests.support.metrics import mean_metric

KEY, OTHER_KEY = "11" * 32, "22" * 32
"""Private keys."""
DAY = 86_400_000
PANE = 19_700 * DAY
CROWD = {"minimum": 100, "wait": "12h"}
HIDDEN = mean_metric(
    "hidden", "randomized_response", (0, 1), [3], pane="1d", lateness="2d", crowd=CROWD
)


def public(private: str) -> bytes:
    return read_private_key(private).public_key().public_bytes_raw()


def key_file(folder: Path) -> Path:
    """Write both keys into a file, and return it."""
    file = folder / "crowd-keys"
    file.touch(0o600)
    file.write_text(f"{OTHER_KEY}\n{KEY}\n")
    return file


LABEL = CrowdLabel(key_hash(public(KEY)), HIDDEN.fingerprint, PANE, "hidden")


def sealed(values: bytes, private: str = KEY, **changes: Any) -> list[bytes]:
    """Return a sealed report of one byte for each value; `changes` replace fields of its label."""
    label = dataclasses.replace(LABEL, **changes)
    return [seal(bytes([value]), label, public(private)) for value in values]


def opened(sealed: bytes, label: CrowdLabel, private: str = KEY) -> list[bytes]:
    """Return the report in a sealed report, if it can be opened."""
    return [*open_each(bytes.fromhex(private), label_info(label), sealed, max(1, len(sealed)))]


def crowd(reports: list[bytes], **changes: Any) -> bytes:
    """Return the body of a post; `changes` replace fields of its label."""
    return encode_crowd((1).to_bytes(16), dataclasses.replace(LABEL, **changes), reports)


def mixed(zeros: int, ones: int) -> bytes:
    """Return reports of one byte: half of the zeros, then the ones, then the other zeros."""
    return bytes(zeros // 2) + b"\1" * ones + bytes(zeros - zeros // 2)
