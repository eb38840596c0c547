# /// script
# dependencies = [
#   "cloudpickle==3.1.2",
#   "diffprivlib==0.6.6",
#   "joblib==1.6.0",
#   "narwhals==2.29.0",
#   "numpy==2.4.6",
#   "scikit-learn==1.5.2",  # later ones lack what diffprivlib imports
#   "scipy==1.17.1",
#   "setuptools==84.2.1",
#   "threadpoolctl==3.8.0",
# ]
# ///
"""Measures diffprivlib, which randomizes one value at a time, in Python, in floating point."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from diffprivlib.mechanisms import Binary, Geometric, Laplace, Staircase

from benchmarks.peers.answering import DIMENSION, EPSILON, VALUES, Randomize, answer, noises

MAX_VALUES = 2_000
SENSITIVITY = 2 * 1024
"""The sensitivity of values in [-1, 1] on a grid of 1/1024."""


def main() -> None:
    binary = Binary(epsilon=EPSILON, value0="0", value1="1")
    noise = Geometric(epsilon=EPSILON, sensitivity=SENSITIVITY)
    numbers = VALUES[:MAX_VALUES].tolist()
    answers = [str(number % 2) for number in numbers]

    def randomized(mechanism: Any, values: Any) -> Any:
        return lambda: len([mechanism.randomise(value) for value in values])

    answer(
        {
            "randomize randomized_response": randomized(binary, answers),
            "randomize laplace": randomized(noise, numbers),
            **noises(
                {"laplace": _laplace, "staircase": _staircase},
                {"laplace": functools.partial(_laplace, dimension=DIMENSION)},
            ),
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
