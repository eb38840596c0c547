"""Metrics that discover strings, the strings, and the number of people who hold each."""

from typing import Any

import numpy as np

from estimators import LocalMetric, define
from estimators.estimate import Counts
from tests.support.paths import ROOT

WORDS = (ROOT / "tests/vectors/presets/text.txt").read_text(encoding="utf-8").split()


def discovering(seed: int, **changes: Any) -> LocalMetric:
    """Return a metric of strings, with hashes of this seed."""
    keys = {"kind": "frequency", "categories": "open", "discover": True, "levels": [2, 4]}
    options = {"seed": seed, **changes.pop("options", {})}
    return LocalMetric.require(define(name="m", options=options, **{**keys, **changes}))


def zipf(n: int, names: int, power: float, seed: int) -> Counts:
    """Draw how many of `n` people hold each name, by Zipf's law."""
    chances = np.arange(1, names + 1) ** -power
    return np.random.default_rng(seed).multinomial(n, chances / chances.sum()).astype(np.int64)
