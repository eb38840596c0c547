"""Exact sampling: integer arithmetic on uniform bits, vectorised.

No step here rounds a probability that protects a person. Rejection keeps uniform integers uniform;
coins compare a uniform word with an integer threshold; the discrete Laplace distribution is sampled
as in Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.randomness import Bits, Words

Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

_LARGEST = np.uint64(2**64 - 1)
_LOW_56 = np.uint64(2**56 - 1)
_MAX_DENOMINATOR = 2**40


def uniform_bytes(bits: Bits, n: int) -> NDArray[np.uint8]:
    """Return `n` independent uniform bytes, dtype uint8, shape (n,)."""
    return bits.integers(-(-n // 8)).view(np.uint8)[:n]


def bernoulli(bits: Bits, threshold: Words, columns: int | None = None) -> Bools:
    """Draw coins that are true with probability threshold / 2^64, exactly.

    The first byte of a uniform word decides unless it ties with the threshold's first byte; only
    then are the other 56 bits drawn. The result has the law of comparing the whole word.

    Parameters
    ----------
    bits : Bits
    threshold : ndarray of uint64, shape (n,)
    columns : int, optional
        Coins per threshold.

    Returns
    -------
    ndarray of bool, shape (n,) or (n, columns)

    Examples
    --------
    >>> from estimators.randomness import SeededBits
    >>> int(bernoulli(SeededBits(1), np.full(10_000, 2**62, dtype=np.uint64)).sum())
    2566
    """
    first = (threshold >> np.uint64(56)).astype(np.uint8)
    per_row = 1 if columns is None else columns
    drawn = uniform_bytes(bits, threshold.size * per_row).reshape(threshold.size, per_row)
    coins = drawn < first[:, None]
    tied = np.flatnonzero(drawn == first[:, None])
    if tied.size:
        rest = bits.integers(tied.size) >> np.uint64(8)
        coins.reshape(-1)[tied] = rest < (threshold & _LOW_56)[tied // per_row]
    return coins[:, 0] if columns is None else coins


def round_up(bits: Bits, fraction: NDArray[np.float64]) -> Bools:
    """Draw coins that are true with a probability given as a double, within 2^-53.

    For the random rounding of values to a grid, which costs no privacy: it comes before the noise.

    Parameters
    ----------
    bits : Bits
    fraction : ndarray of float64, shape (n,)
        In [0, 1]; 0 is never true, 1 always.
    """
    drawn = (bits.integers(fraction.size) >> np.uint64(11)).astype(np.float64)
    return drawn < fraction * 2.0**53


def uniform_below(bits: Bits, bound: Words) -> Words:
    """Draw integers uniform on [0, bound), by rejection.

    Parameters
    ----------
    bits : Bits
    bound : ndarray of uint64, shape (n,)
        At least 1.

    Examples
    --------
    >>> from estimators.randomness import SeededBits
    >>> int(uniform_below(SeededBits(1), np.full(1000, 6, dtype=np.uint64)).max())
    5
    """
    limit = _LARGEST // bound * bound
    drawn = bits.integers(bound.size).copy()
    pending = np.flatnonzero(drawn >= limit)
    while pending.size:
        drawn[pending] = bits.integers(pending.size)
        pending = pending[drawn[pending] >= limit[pending]]
    return drawn % bound


def uniform_other(bits: Bits, values: NDArray[Any], bound: Words) -> Words:
    """Draw integers uniform on [0, bound) without `values`, as in k-ary randomized response.

    Parameters
    ----------
    bits : Bits
    values : ndarray of integers, shape (n,)
        In [0, bound).
    bound : ndarray of uint64, shape (n,)
        At least 2.

    Examples
    --------
    >>> from estimators.randomness import SeededBits
    >>> uniform_other(SeededBits(1), np.array([0, 1]), np.full(2, 2, dtype=np.uint64))
    array([1, 0], dtype=uint64)
    """
    drawn = uniform_below(bits, bound - np.uint64(1))
    return drawn + (drawn >= values.astype(np.uint64)).astype(np.uint64)


def uniform_directions(bits: Bits, n: int, dimension: int) -> NDArray[np.float64]:
    """Draw unit vectors, uniform on the sphere but for the rounding of doubles.

    Normal variates by Box and Muller (1958), from 53-bit uniforms, divided by their length. A
    mechanism that uses these must not rest its privacy on their law.

    Parameters
    ----------
    bits : Bits
    n, dimension : int

    Returns
    -------
    ndarray of float64, shape (n, dimension)

    Examples
    --------
    >>> from estimators.randomness import SeededBits
    >>> vectors = uniform_directions(SeededBits(1), 1000, 3)
    >>> bool(np.allclose((vectors**2).sum(axis=1), 1)), vectors.shape
    (True, (1000, 3))
    """
    pairs = -(-n * dimension // 2)
    uniform = ((bits.integers(2 * pairs) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
    length, angle = np.sqrt(-2 * np.log(uniform[:pairs])), 2 * np.pi * uniform[pairs:]
    normal = np.concatenate([length * np.cos(angle), length * np.sin(angle)])
    vectors = normal[: n * dimension].reshape(n, dimension)
    norm = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    vectors[norm == 0, 0] = norm[norm == 0] = 1
    vectors /= norm[:, None]
    return np.clip(vectors, -1, 1, out=vectors)


def bernoulli_exp(bits: Bits, numerator: Words, denominator: Words) -> Bools:
    """Draw coins that are true with probability exp(-numerator / denominator), exactly.

    Canonne, Kamath and Steinke (2020), Algorithm 1.

    Parameters
    ----------
    bits : Bits
    numerator, denominator : ndarray of uint64, shape (n,)
        Denominators at least 1 and at most 2^40.
    """
    whole, rest = numerator // denominator, numerator % denominator
    coins = _bernoulli_exp_below_one(bits, rest, denominator)
    alive = np.flatnonzero(coins & (whole > 0))
    left = whole[alive]
    one = np.ones(alive.size, dtype=np.uint64)
    while alive.size:
        passed = _bernoulli_exp_below_one(bits, one, one)
        coins[alive[~passed]] = False
        going = passed & (left > 1)
        alive, left, one = alive[going], left[going] - np.uint64(1), one[going]
    return coins


def _bernoulli_exp_below_one(bits: Bits, numerator: Words, denominator: Words) -> Bools:
    successes = np.zeros(numerator.size, dtype=np.int64)
    alive = np.arange(numerator.size)
    step = 1
    while alive.size:
        bound = denominator[alive] * np.uint64(step)
        alive = alive[uniform_below(bits, bound) < numerator[alive]]
        successes[alive] += 1
        step += 1
    even: Bools = successes % 2 == 0
    return even


def sample_discrete_laplace(bits: Bits, numerator: Words, denominator: Words) -> Integers:
    """Draw integers z with P(z) proportional to exp(-|z| numerator / denominator), exactly.

    Canonne, Kamath and Steinke (2020), Algorithm 2.

    Parameters
    ----------
    bits : Bits
    numerator, denominator : ndarray of uint64, shape (n,)
        The inverse scale as a fraction; both at least 1, denominators at most 2^40.

    Returns
    -------
    ndarray of int64, shape (n,)

    Raises
    ------
    ValueError
        If a denominator is too large for 64-bit arithmetic.
    """
    if denominator.size and int(denominator.max()) > _MAX_DENOMINATOR:
        raise ValueError(f"denominator {denominator.max()}: expected at most {_MAX_DENOMINATOR}")
    result = np.zeros(numerator.size, dtype=np.int64)
    pending = np.arange(numerator.size)
    while pending.size:
        size = denominator[pending]
        remainder = uniform_below(bits, size)
        kept = np.flatnonzero(_bernoulli_exp_below_one(bits, remainder, size))
        quotient = _geometric(bits, kept.size)
        total = (remainder[kept] + size[kept] * quotient) // numerator[pending[kept]]
        negative = uniform_bytes(bits, kept.size) < 128
        accepted = ~(negative & (total == 0))
        magnitude = total[accepted].astype(np.int64)
        done = kept[accepted]
        result[pending[done]] = np.where(negative[accepted], -magnitude, magnitude)
        pending = np.delete(pending, done)
    return result


def _geometric(bits: Bits, n: int) -> Words:
    """Count the coins of probability 1/e that come up true before the first that does not."""
    count = np.zeros(n, dtype=np.uint64)
    alive: NDArray[Any] = np.arange(n)
    while alive.size:
        one = np.ones(alive.size, dtype=np.uint64)
        alive = alive[_bernoulli_exp_below_one(bits, one, one)]
        count[alive] += np.uint64(1)
    return count
