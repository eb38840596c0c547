"""The public constants of a level: depths and their probabilities, block bits and hash bits.

They follow from epsilon and the number of bins alone. All floating-point operations here are those
that IEEE 754 rounds correctly, and sums are exact (`math.fsum`), so every machine finds the same
integers. They are part of the metric's revision: if a device and a reader used different
probabilities, an estimate would be biased, and nobody would notice.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np

from estimators.estimate import Floats
from estimators.exact.thresholds import WORD, at_exp

CHANCE_GRAIN = 2**16
"""Probabilities of depths are multiples of 1 / CHANCE_GRAIN."""
MOST_BLOCK_BITS, MOST_HASH_BITS = 7, 2
EQUAL_VARIANCE = 1e-9
"""If the variances of pairs (c, m) differ by a smaller share, the first pair is chosen."""


@dataclasses.dataclass(frozen=True)
class LevelConstants:
    """The public constants of one privacy level, over a tree with 2^height bins.

    `height`: h; `threshold`: T: the true symbol is kept if a uniform 64-bit word is below T;
    `block_bits`, `hash_bits`: c and m: a symbol is the c leading bits of a node, and m bits of a
    hash of its other bits; `chances`: the probability of each depth from 0 to h, times 2^16;
    `variance`: v, that of sqrt(n) F(t) for n reports of uniform data, averaged over inner edges t.
    """

    height: int
    threshold: int
    block_bits: int
    hash_bits: int
    chances: tuple[int, ...]
    variance: float

    @property
    def symbols(self) -> int:
        """The number of symbols, q."""
        return 1 << (self.block_bits + self.hash_bits)

    @functools.cached_property
    def honest(self) -> float:
        """The probability a that a report is kept unchanged."""
        return float(Fraction(self.threshold, WORD))

    @property
    def depths(self) -> tuple[int, ...]:
        """The possible depths of reports, ascending."""
        return tuple(depth for depth, chance in enumerate(self.chances) if chance)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of a report: 1 + q T / (2^64 - T)."""
        return 1 + Fraction(self.symbols * self.threshold, WORD - self.threshold)

    def probability(self, depth: int) -> float:
        """Return the probability of a depth, p_j."""
        return self.chances[depth] / CHANCE_GRAIN

    def collisions(self, depth: int) -> tuple[float, float]:
        """Return nu and nu2 at a depth, probabilities over the random hash.

        nu: that the hash maps a given nonzero difference of nodes to 0; nu2: that it maps two given
        different nonzero differences to 0.
        """
        return collisions(depth, self.block_bits, self.hash_bits)

    def omega(self, depth: int, split: int) -> float:
        """Return the precision of a report of this depth for one Haar sum of a split."""
        return self.honest**2 * omega(depth, split, self.block_bits, self.hash_bits)

    @functools.cached_property
    def precision(self) -> Floats:
        """The precision of a report for one Haar sum of each split, shape (h,): Lam_i."""
        pairs = [(j, self.probability(j)) for j in self.depths]
        terms = ([p * self.omega(j, i) for j, p in pairs] for i in range(self.height))
        return np.array([*map(math.fsum, terms)])


@functools.lru_cache(maxsize=4096)
def collisions(depth: int, block_bits: int, hash_bits: int) -> tuple[float, float]:
    """Return :meth:`LevelConstants.collisions` at a `depth`, for `block_bits` and `hash_bits`."""
    free = depth - block_bits
    rows, missed = 2**free - 1, 2 ** (free - hash_bits) - 1
    both_missed = missed * (missed - 1) / (rows * (rows - 1)) if rows > 1 else 0.0
    return missed / rows, both_missed


@functools.lru_cache(maxsize=4096)
def omega(depth: int, split: int, block_bits: int, hash_bits: int) -> float:
    """Return :meth:`LevelConstants.omega` at a `depth` and `split`, for a report without noise.

    `block_bits`, `hash_bits`: c and m.
    """
    if split >= depth:
        return 0.0
    if split < block_bits:
        return 1.0
    nu = collisions(depth, block_bits, hash_bits)[0]
    return (1 - nu) * 2.0 ** (block_bits + hash_bits - depth)


@functools.lru_cache(maxsize=64)
def split_costs(height: int) -> tuple[float, ...]:
    """Return, for each split, how much the variance of F grows with that of the split's Haar sums.

    For the split i it is 2^-i times the mean of w_i(t)^2 over the inner edges t, where w_i(t) =
    min(o, s - o) / s, s = B / 2^i and o = t mod s.
    """
    bins = 1 << height
    costs = []
    for split in range(height):
        size = bins >> split
        squares = sum(min(o, size - o) ** 2 for o in range(size)) << split
        costs.append(squares / (size * size * (bins - 1) * 2**split))
    return tuple(costs)


def depth_chances(height: int, block_bits: int, hash_bits: int) -> tuple[int, ...]:
    """Return the probabilities of the depths, times 2^16, with the least average variance of F.

    They are found by Lagrange multipliers. `height`, `block_bits`, `hash_bits`: h, c and m of
    :class:`LevelConstants`.

    >>> depth_chances(8, 0, 1)
    (0, 3945, 5917, 6900, 7383, 7585, 7537, 7019, 19250)
    """
    costs, first = split_costs(height), block_bits + hash_bits
    shared = math.fsum(costs[block_bits:first]) / (2**first - 2**block_bits)
    steps = [math.sqrt(shared)]
    steps += [math.sqrt(costs[split] / 2**split) for split in range(first, height)] + [0.0]
    raw = [
        (2**depth - 2**block_bits) * max(0.0, steps[depth - first] - steps[depth - first + 1])
        for depth in range(first, height + 1)
    ]
    total = math.fsum(raw)
    chances = [math.floor(CHANCE_GRAIN * x / total + 0.5) for x in raw]
    chances[chances.index(max(chances))] += CHANCE_GRAIN - sum(chances)
    return (*[0] * first, *chances)


def _variance(height: int, block_bits: int, hash_bits: int, chances: tuple[int, ...]) -> float:
    """Return a^2 v: the average variance of F if randomized response kept all reports."""
    costs = split_costs(height)
    used = [(depth, chance / CHANCE_GRAIN) for depth, chance in enumerate(chances) if chance]
    return math.fsum(
        costs[split] / math.fsum(p * omega(j, split, block_bits, hash_bits) for j, p in used)
        for split in range(height)
    )


@functools.lru_cache(maxsize=1024)
def level_constants(epsilon: Fraction, height: int) -> LevelConstants:
    """Return the constants with the least average variance for a level.

    `epsilon`: above 0; `height`: h, 1 to 12, of a tree with 2^h bins. Raises ValueError if `height`
    is below 1.

    >>> constants = level_constants(Fraction(2), 8)
    >>> constants.block_bits, constants.hash_bits, constants.chances
    (1, 2, (0, 0, 0, 12096, 7706, 8208, 8294, 7787, 21445))
    >>> round(constants.variance, 2)
    4.33
    """
    best: LevelConstants | None = None
    for block_bits in range(MOST_BLOCK_BITS + 1):
        for hash_bits in range(1, MOST_HASH_BITS + 1):
            if block_bits + hash_bits > height:
                continue
            threshold = keep_threshold(epsilon, 1 << (block_bits + hash_bits))
            chances = depth_chances(height, block_bits, hash_bits)
            honest = float(Fraction(threshold, WORD))
            variance = _variance(height, block_bits, hash_bits, chances) / honest**2
            if best is None or variance < best.variance * (1 - EQUAL_VARIANCE):
                constants = (height, threshold, block_bits, hash_bits, chances, variance)
                best = LevelConstants(*constants)
    if best is None:
        raise ValueError(f"height = {height}: expected 1 or more")
    return best


@functools.lru_cache(maxsize=4096)
def keep_threshold(epsilon: Fraction, symbols: int) -> int:
    """Return T = floor(2^64 (e^epsilon - 1) / (e^epsilon + q - 1)), at least 1.

    A report is kept if a uniform 64-bit word is below T, and otherwise replaced by a uniform one of
    all q symbols: theorem 1 of docs/proofs/privacy.md. `epsilon`: above 0; `symbols`: q.
    Raises ValueError if epsilon is so small that no report would be kept.

    >>> keep_threshold(Fraction(1), 4) / 2**64  # (e - 1) / (e + 3)
    0.30048918189156226
    """
    threshold = at_exp(epsilon, lambda e: math.floor(WORD * (e - 1) / (e + symbols - 1)))
    if threshold < 1:
        raise ValueError(f"epsilon = {float(epsilon)}: expected a number above {symbols} 2^-64")
    return threshold
