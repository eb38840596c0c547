"""The reasons for refused messages, each with an explanation and a remedy."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple


class Remedy(NamedTuple):
    """The meaning of a reason, and its remedy."""

    means: str
    do: str


_REMEDY_TEXTS = tomllib.loads(Path(__file__).with_name("remedies.toml").read_text(encoding="utf-8"))
REMEDY_BY_REASON = {
    reason: Remedy(texts["means"], texts.get("do", _REMEDY_TEXTS["device_fault"]))
    for reason, texts in _REMEDY_TEXTS["reasons"].items()
}
UNKNOWN_REASON = Remedy("refused by another version of Dither", "Ask that version's documentation.")


def remedy(reason: str) -> Remedy:
    """Return the meaning of a reason and its remedy."""
    return REMEDY_BY_REASON.get(reason, UNKNOWN_REASON)
