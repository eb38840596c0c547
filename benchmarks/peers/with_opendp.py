# /// script
# dependencies = [
#   "deprecated==1.3.1",
#   "numpy==2.4.6",
#   "opendp==0.16.0",
#   "wrapt==2.5.2",
# ]
# ///
"""Measures OpenDP, exact and in Rust; many bits or numbers at a time, which is fastest."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import opendp.prelude as dp

from benchmarks.peers.answering import (
    CATEGORIES,
    DIMENSION,
    EPSILON,
    VALUES,
    Randomize,
    answer,
    from_ends,
    noises,
    to_ends,
)

MANY_CATEGORIES, UNARY, NUMBERS = 2_000, 1_000, 20_000
"""The number of values that one call, or one round of calls, randomizes."""
NOISE_SCALE = 2 * 1024
"""The scale of discrete Laplace noise, times epsilon, on a grid of 1/1024 of [-1, 1]."""


def main() -> None:
    dp.enable_features("contrib")
    bits, gain = np.packbits(VALUES % 2).tobytes(), math.exp(EPSILON)
    flips, _ = _flips(EPSILON, VALUES.size)
    response = dp.m.make_randomized_response([*range(CATEGORIES)], gain / (gain + CATEGORIES - 1))
    rows = [row.tobytes() for row in np.packbits(np.eye(CATEGORIES)[VALUES[:UNARY]] > 0, axis=1)]
    joined, (unary_flips, twice) = b"".join(rows), _flips(EPSILON / 2, UNARY)
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    noise = dp.m.make_laplace(*space, scale=NOISE_SCALE / EPSILON)
    categories, numbers = VALUES[:MANY_CATEGORIES].tolist(), VALUES[:NUMBERS].tolist()

    @functools.cache
    def reports() -> list[bytes]:
        flip_row, _ = _flips(EPSILON / 2, 1)
        return [flip_row(row) for row in rows]

    def estimate() -> int:
        dp.m.debias_randomized_response_bitvec(reports(), twice)
        return UNARY

    answer(
        {
            "randomize randomized_response": lambda: VALUES.size if flips(bits) else 0,
            "randomize grr": lambda: len([response(value) for value in categories]),
            "randomize rappor": lambda: UNARY if unary_flips(joined) else 0,
            "aggregate rappor": estimate,
            "randomize laplace": lambda: len(noise(numbers)),
            **noises(
                {"laplace": _laplace, "randomized_response": _signs},
                {"laplace": functools.partial(_laplace, dimension=DIMENSION)},
            ),
        }
    )


def _flips(epsilon: float, weight: int) -> tuple[Any, float]:
    """Return a function that flips bits, at epsilon each, and twice the chance of a flip."""
    twice = 2 / (1 + math.exp(epsilon))
    space = dp.bitvector_domain(max_weight=weight), dp.discrete_distance()
    return dp.m.make_randomized_response_bitvec(*space, f=twice), twice


def _laplace(epsilon: float, dimension: int = 1) -> Randomize:
    """Return a function that adds noise to each number, for an l1 sensitivity of 2 sqrt(d)."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    noise = dp.m.make_laplace(*space, scale=2 * math.sqrt(dimension) / epsilon)
    return lambda values: np.reshape(noise(values.reshape(-1).tolist()), values.shape)


def _signs(epsilon: float) -> Randomize:
    def randomize(values: Any) -> Any:
        flips, _ = _flips(epsilon, values.size)
        flipped = np.frombuffer(flips(np.packbits(to_ends(values)).tobytes()), dtype=np.uint8)
        return from_ends(np.unpackbits(flipped)[: values.size], epsilon)

    return randomize


if __name__ == "__main__":
    main()
