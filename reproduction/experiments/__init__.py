"""The papers' tables and figures, and what goes beyond them, from the product's own estimators.

They only compute; `dither reproduce` runs and prints them. Seeds determine all numbers. Values are
synthetic unless an experiment says otherwise.
"""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

from reproduction.outcome import Claim, Experiment, Number, Outcome

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Number", "Outcome"]


def _load() -> dict[str, Experiment]:
    experiments = {}
    text = Path(__file__).with_name("experiments.toml").read_text(encoding="utf-8")
    for key, entry in tomllib.loads(text).items():
        module, _, name = entry.pop("function").rpartition(".")
        run = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        experiments[key] = Experiment(**entry, run=run)
    return experiments


EXPERIMENTS = _load()
"""The experiments, by their names in `dither reproduce`."""
