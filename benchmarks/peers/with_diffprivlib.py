"""Measures diffprivlib, which randomizes one value at a time, in Python, in floating point."""

from __future__ import annotations

from typing import Any

import numpy as np
from diffprivlib.mechanisms import Binary, Geometric, Laplace, Staircase

from benchmarks.peers.answering import Randomize, answer, given, noises

MAX_VALUES = 2_000
SENSITIVITY = 2 * 1024
"""The sensitivity of values in [-1, 1] on a grid of 1/1024."""


def main() -> None:
    population = given()
    binary = Binary(epsilon=population.epsilon, value0="0", value1="1")
    noise = Geometric(epsilon=population.epsilon, sensitivity=SENSITIVITY)
    answers = [str(bit) for bit in population.bits[:MAX_VALUES]]
    numbers = population.values[:MAX_VALUES].tolist()

    def randomized(mechanism: Any, values: Any) -> Any:
        return lambda: len([mechanism.randomise(value) for value in values])

    answer(
        {
            "randomize randomized_response": randomized(binary, answers),
            "randomize laplace": randomized(noise, numbers),
            **noises({"laplace": _laplace, "staircase": _staircase}, {"laplace": _laplace}),
        }
    )


def _laplace(epsilon: float, dimension: int = 1) -> Randomize:
    """Return a function that adds noise to each number, for an l1 sensitivity of 2 sqrt(d)."""
    return _each(Laplace(epsilon=epsilon, sensitivity=2 * dimension**0.5))


def _staircase(epsilon: float) -> Randomize:
    return _each(Staircase(epsilon=epsilon, sensitivity=2.0))


def _each(mechanism: Any) -> Randomize:
    return lambda values: np.reshape(
        [mechanism.randomise(value) for value in values.reshape(-1).tolist()], values.shape
    )


if __name__ == "__main__":
    main()
