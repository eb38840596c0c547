"""Measures OpenDP, exact and in Rust; many bits or numbers at a time, which is fastest."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import opendp.prelude as dp

from benchmarks.peers.answering import Given, Randomize, answer, from_ends, given, noises, to_ends

BITS = 100_000
NUMBERS = 20_000
CATEGORIES = 2_000
UNARY = 1_000
NOISE_SCALE = 2 * 1024
"""The scale of discrete Laplace noise, times epsilon, on a grid of 1/1024 of [-1, 1]."""


def main() -> None:
    population = given()
    dp.enable_features("contrib")
    answer(
        {
            "randomize randomized_response": _bits(population),
            "randomize grr": _categories(population),
            "randomize rappor": _unary(population),
            "aggregate rappor": _unary_estimates(population),
            "randomize laplace": _numbers(population),
            **noises({"laplace": _laplace, "randomized_response": _signs}, {"laplace": _laplace}),
        }
    )


def _flips(epsilon: float, weight: int) -> tuple[Any, float]:
    """Return a function that flips bits, at epsilon each, and twice the chance of a flip."""
    twice = 2 / (1 + math.exp(epsilon))
    space = dp.bitvector_domain(max_weight=weight), dp.discrete_distance()
    return dp.m.make_randomized_response_bitvec(*space, f=twice), twice


def _bits(population: Given) -> Any:
    bits = np.resize(population.bits, BITS)
    flips, _ = _flips(population.epsilon, BITS)
    packed = np.packbits(bits).tobytes()
    return lambda: BITS if flips(packed) else 0


def _categories(population: Given) -> Any:
    size, gain = population.categories, math.exp(population.epsilon)
    response = dp.m.make_randomized_response([*range(size)], gain / (gain + size - 1))
    values = population.values[:CATEGORIES].tolist()
    return lambda: len([response(value) for value in values])


def _rows(population: Given) -> list[bytes]:
    held = population.values[:UNARY]
    one_hot = np.zeros((held.size, population.categories), dtype=np.uint8)
    one_hot[np.arange(held.size), held] = 1
    return [row.tobytes() for row in np.packbits(one_hot, axis=1)]


def _unary(population: Given) -> Any:
    rows = _rows(population)
    flips, _ = _flips(population.epsilon / 2, len(rows))
    joined = b"".join(rows)
    return lambda: len(rows) if flips(joined) else 0


def _unary_estimates(population: Given) -> Any:
    rows = _rows(population)
    flips, twice = _flips(population.epsilon / 2, 1)

    @functools.cache
    def reports() -> list[bytes]:
        return [flips(row) for row in rows]

    return lambda: len(reports()) if dp.m.debias_randomized_response_bitvec(reports(), twice) else 0


def _numbers(population: Given) -> Any:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    noise = dp.m.make_laplace(*space, scale=NOISE_SCALE / population.epsilon)
    values = np.resize(population.values, NUMBERS).tolist()
    return lambda: len(noise(values))


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
