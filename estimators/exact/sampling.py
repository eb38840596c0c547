"""Exact sampling of coins and integers: vectorised integer arithmetic on uniform bits.

No step here rounds a probability that protects a person. Rejection keeps uniform integers uniform;
coins compare a uniform word with an integer threshold. For Laplace noise see
estimators.exact.laplace_sampler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import AnyIntegers, Array, Bools, Floats
from estimators.exact.randomness import Bits, Words

Unsigned = NDArray[np.unsignedinteger[Any]]

_LOW_56 = np.uint64(2**56 - 1)
_MAX_NARROW = 2**24
_LARGEST_BYTE = np.array([0, *(256 // n * n - 1 for n in range(1, 256))], dtype=np.uint8)


def uniform_bytes(bits: Bits, n: int) -> NDArray[np.uint8]:
    """Return `n` independent uniform bytes, dtype uint8, shape (n,)."""
    return bits.integers(-(-n // 8)).view(np.uint8)[:n]


def bernoulli(bits: Bits, thresholds: Words, level: Array, columns: int | None = None) -> Bools:
    """Return coins that are true with exactly the probability of their level, thresholds / 2^64.

    The first byte of a uniform word decides unless it equals the threshold's first byte; only then
    are the other 56 bits drawn. The law is that of a comparison of the whole word. The result has
    shape (n,) or (n, columns).

    `bits`: the source of randomness; `thresholds`, shape (levels,); `level`, shape (n,): below
    `levels`; `columns`: the number of coins for each row.

    >>> from estimators.exact.randomness import SeededBits
    >>> quarter = np.array([2**62], dtype=np.uint64)
    >>> int(bernoulli(SeededBits(1), quarter, np.zeros(10_000, dtype=np.uint8)).sum())
    2566
    """
    first = (thresholds >> np.uint64(56)).astype(np.uint8)[level]
    per_row = 1 if columns is None else columns
    random_bytes = uniform_bytes(bits, first.size * per_row).reshape(first.size, per_row)
    coins: Bools = random_bytes < first[:, None]
    tied = np.flatnonzero(random_bytes == first[:, None])
    if tied.size:
        low_bits = bits.integers(tied.size) >> np.uint64(8)
        coins.reshape(-1)[tied] = low_bits < (thresholds & _LOW_56)[level[tied // per_row]]
    return coins[:, 0] if columns is None else coins


def round_up(bits: Bits, fraction: Floats) -> Bools:
    """Return coins that are true with the probabilities `fraction`, within 2^-61.

    They round values to a grid at random, which costs no privacy because it comes before the noise.
    As in :func:`bernoulli`, the first byte decides unless it equals that of the fraction.
    `fraction`, shape (n,): in [0, 1]; for 0 a coin is never true, for 1 always.
    """
    scaled = fraction * 2.0**8
    first = scaled.astype(np.int16)
    random_bytes = uniform_bytes(bits, first.size)
    coins: Bools = random_bytes < first
    tied = np.flatnonzero(random_bytes == first)
    low_bits = (bits.integers(tied.size) >> np.uint64(11)).astype(np.float64)
    coins[tied] = low_bits < (scaled[tied] - first[tied]) * 2.0**53
    return coins


def uniform_below(bits: Bits, bound: Unsigned) -> Unsigned:
    """Return integers uniform on [0, bound), drawn by rejection.

    `bound`, shape (n,): at least 1. For bounds up to 2^24, words of 32 bits are drawn. The result
    has shape (n,).

    >>> from estimators.exact.randomness import SeededBits
    >>> int(uniform_below(SeededBits(1), np.full(1000, 6, dtype=np.uint64)).max())
    5
    """
    word = np.dtype(np.uint64 if bound.max(initial=1) > _MAX_NARROW else np.uint32)
    bound, per_word = bound.astype(word), 8 // word.itemsize

    def words(n: int) -> Array:
        return bits.integers(-(-n // per_word)).view(word)[:n]

    limit = word.type(2 ** (8 * word.itemsize) - 1) // bound * bound
    return _drawn_up_to(limit - word.type(1), words) % bound


def bytes_below(bits: Bits, bound: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return integers uniform on [0, bound), drawn from single bytes by rejection.

    `bound`, shape (n,): at least 1. The result has shape (n,).

    >>> from estimators.exact.randomness import SeededBits
    >>> int(bytes_below(SeededBits(1), np.full(1000, 6, dtype=np.uint8)).max())
    5
    """
    random_bytes = _drawn_up_to(_LARGEST_BYTE[bound], functools.partial(uniform_bytes, bits))
    return np.remainder(random_bytes, bound)


def _drawn_up_to(largest: Array, draw: Callable[[int], Array]) -> Array:
    """Return integers from `draw`; each one is drawn again until it is at most `largest`."""
    drawn = draw(largest.size)
    pending = np.flatnonzero(drawn > largest)
    if pending.size:
        drawn = drawn.copy()
    while pending.size:
        drawn[pending] = draw(pending.size)
        pending = pending[drawn[pending] > largest[pending]]
    return drawn


def uniform_other(bits: Bits, values: Array, bound: Unsigned) -> Unsigned:
    """Return integers uniform on [0, bound) except `values`, as in k-ary randomized response.

    `bits`: the source of randomness; `values`, shape (n,): in [0, bound); `bound`, shape (n,): at
    least 2.

    >>> from estimators.exact.randomness import SeededBits
    >>> uniform_other(SeededBits(1), np.array([0, 1]), np.full(2, 2, dtype=np.uint64))
    array([1, 0], dtype=uint32)
    """
    drawn = uniform_below(bits, bound - bound.dtype.type(1))
    return drawn + (drawn >= values.astype(drawn.dtype))


def unit_vectors(vectors: Floats) -> Floats:
    """Divide each row by its length, in place; a row of zeros becomes (1, 0, 0, ...)."""
    norm = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    vectors[norm == 0, 0] = norm[norm == 0] = 1
    vectors /= norm[:, None]
    return np.clip(vectors, -1, 1, out=vectors)


def normal_numbers(words: Words, chosen: AnyIntegers | None = None) -> Floats:
    """Return two normal numbers for each random word, by Box and Muller (1958).

    Of the 2 w uniform 32-bit numbers in w words, the first half give lengths, the others angles.
    Numbers i and w + i of the result are the cosine and the sine of angle i, times length i.
    `words`, shape (w,); `chosen`: the numbers of the result to return, below 2 w; all by default.
    The result has shape (2 w,) or that of `chosen`.

    >>> words = np.arange(1, 9, dtype=np.uint64) << np.uint64(40)
    >>> every = normal_numbers(words)
    >>> bool(np.allclose(normal_numbers(words, np.array([3, 12])), every[[3, 12]]))
    True
    """
    uniform, pairs = words.view(np.uint32), words.size
    if chosen is None:
        length, cosine, sine = _polar(uniform[:pairs], uniform[pairs:])
        return np.concatenate([length * cosine, length * sine])
    pair = chosen % max(pairs, 1)
    length, cosine, sine = _polar(uniform[pair], uniform[pairs + pair])
    return np.asarray(length * np.where(chosen < pairs, cosine, sine))


def _polar(first: NDArray[np.uint32], second: NDArray[np.uint32]) -> tuple[Any, Any, Any]:
    """Return the length of pairs of normal numbers, and the cosine and sine of their angle."""
    length = np.sqrt(-2 * np.log((first + 0.5) * 2.0**-32))
    turn = (second + 0.5) * 2.0**-32
    cosine = np.cos(2 * np.pi * turn)
    return length, cosine, np.copysign(np.sqrt(1 - cosine**2), 0.5 - turn)
