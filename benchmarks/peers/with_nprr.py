"""Measures nprr: its randomized response and confidence sequences, in floating point."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from nprr import nprr, nprr_hoeffding_cs

from benchmarks.peers.answering import answer, arguments, given

MAX_VALUES = 100_000
ALPHA = 0.05


def main() -> None:
    population = given()
    honest = math.tanh(population.epsilon / 2)
    values = np.resize(population.bits, arguments()["reports"]).astype(float)
    first_values = values[:MAX_VALUES]

    def randomized(held: Any) -> Any:
        return nprr(held, honest, 1)

    @functools.cache
    def reports() -> Any:
        return randomized(values)

    def sequence() -> int:
        nprr_hoeffding_cs(reports(), honest, alpha=ALPHA)
        return 1

    answer(
        {
            "randomize randomized_response": lambda: len(randomized(first_values)),
            "sequence randomized_response": sequence,
        }
    )


if __name__ == "__main__":
    main()
