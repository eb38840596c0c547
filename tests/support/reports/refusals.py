"""What reporters refuse, in the same words in Python and in browsers."""

from __future__ import annotations

import json
import math
from typing import Any

from tests.support.paths import ROOT

REFUSALS = json.loads((ROOT / "tests/vectors/refusals.json").read_text())
_SPECIAL = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "2^64": 2**64,
    "10^400": 10**400,
    "hole": [1, None, 1],
}


def given(value: Any) -> Any:
    """Return what stands for a value in the file."""
    if isinstance(value, list):
        return [given(part) for part in value]
    return _SPECIAL[value["special"]] if isinstance(value, dict) and value else value
