"""Count sketch for open vocabularies: devices may report any string, and readers query it later."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds.heterogeneity import heterogeneity_of_differences
from estimators.bounds.signs.law import laws_in_rows
from estimators.bounds.sketches import Collisions
from estimators.estimate import Array, Bools, Counts, Estimate, Floats, Indices
from estimators.exact import hadamard
from estimators.exact.hashing import buckets_and_signs, check_rows_and_seed, hash_constants
from estimators.exact.randomness import Bits, Words
from estimators.exact.sampling import bernoulli, uniform_below, uniform_other
from estimators.exact.thresholds import at_exp
from estimators.limits import LARGEST_TABLE
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.block_differences import Differences
from estimators.mechanisms.shared.outputs import OutputSets, ReportedSymbols
from estimators.question import Question
from estimators.weights import LevelFacts

KEYS_AT_A_TIME = 64  # times 512 rows: the numbers that a processor's cache holds
CELLS_AT_A_TIME = 2**21  # of the tables that are decoded at a time: 16 megabytes


class CountSketch(OutputSets, ReportedSymbols, Differences):
    """A count sketch of an open vocabulary; a report is one symbol of one of its rows.

    The sketch has t rows, each with a public hash of keys to one of M buckets and to a sign. A
    level has w blocks of R = M / w buckets. The device draws a row j and an integer r below R. The
    symbol of its value's bucket is the block and the sign times H[r, place in the block], where H
    is Hadamard's matrix; k-ary randomized response over 2w symbols protects it. The report is ``2
    (j M + block R + r)``, plus 1 for a negative sign. Statistic of a level: the number of reports
    and the number for each of the 2 t M symbols. Source: Charikar, Chen and Farach-Colton (2004);
    Chen, Kairouz and Ozgur (2020), section 4.

    **Blocks.** w minimises the variance at small frequencies: the largest power of two with 2 w^2
    <= (e^epsilon - 1)^2, from 1 to M, in exact arithmetic. All levels share the hashes.

    **Privacy.** Theorem 1 of docs/proofs/privacy.md with M = 2w and W = 1, given j and r.

    **Decoding.** Let f be the frequency of a key, and p and q the probabilities of the true symbol
    and of any other one. If a report names the key's block, D is the product of its sign, the entry
    of H and the key's sign hash; otherwise D = 0. E D = c (f + b) with c = p - q: rows of H are
    orthogonal, so only values in the key's bucket collide, and b has mean zero over the hashes
    (theorem 7 of docs/proofs/mechanisms.md).

    **Variance.** (A - c^2 f^2) / c^2 for a report, where A = 2q + c (f + (1 - f) / w) on average
    over the hashes. ``optimal`` weights use it at f = 0; ``paper`` is HLDP's tanh^2(epsilon / 2).

    **Bounds** cover the noise and, over the hashes, the collisions. They hold only if neither the
    strings in a query nor people's values depend on the seed.

    Parameters
    ----------
    categories : None
        The vocabulary is open: ``categories = "open"`` in a metric. Values are 64-bit keys.
    rows : int
        t, at least 1.
    buckets : int
        M, a power of two.
    seed : int
        The public seed of the hashes; below 2^64. Anyone who knows it can choose strings that
        collide with a given string.

    Examples
    --------
    >>> from estimators.metrics.categories import string_key
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = CountSketch([Fraction(1), Fraction(4)], categories=None, rows=512, buckets=64)
    >>> mechanism.blocks, mechanism.columns, mechanism.width
    ([1, 32], 65537, 2)
    >>> keys = np.full(4, string_key("N725MQ"), dtype=np.uint64)
    >>> mechanism.randomize(keys, np.array([0, 0, 1, 1]), SeededBits(1))
    array([20988, 40984, 63302, 39364], dtype=uint16)
    """

    name = "count_sketch"
    open_vocabulary = True
    closed_vocabulary = False
    signed = True

    def __init__(
        self,
        epsilons: Epsilons,
        *,
        categories: None,
        rows: int = 512,
        buckets: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__(epsilons)
        check_rows_and_seed(rows, seed)
        if buckets < 1 or buckets & (buckets - 1):
            raise ValueError(f"buckets = {buckets}: expected a power of two")
        if rows * buckets > LARGEST_TABLE:
            raise ValueError(f"rows * buckets = {rows * buckets}: expected at most {LARGEST_TABLE}")
        self.rows, self.buckets, self.seed = rows, buckets, seed
        self.collisions = Collisions(rows, buckets)
        self.symbols = 2 * rows * buckets
        """The number of symbols, 2 t M, at every level."""
        self._count_symbols([self.symbols] * len(epsilons))
        self.blocks = [best_blocks(epsilon, buckets) for epsilon in self.epsilons]
        """w, the number of blocks, per level."""
        self._set_misses(epsilons, [1] * len(epsilons), [2 * w - 1 for w in self.blocks])
        self._set_chances(*zip(*self.chances, strict=True))
        self._bits = buckets.bit_length() - 1
        self._blocks = np.array(self.blocks, dtype=np.int64)
        self.facts = LevelFacts.of(self.epsilons, self._least_chance / self.contrast**2)
        hardest = np.minimum(1, (1 - 1 / self._blocks) / (2 * self.contrast))
        self._worst = self.chance(hardest) - (self.contrast * hardest) ** 2

    @functools.cached_property
    def constants(self) -> Words:
        """The constants of the rows' hash functions."""
        return hash_constants(self.seed, np.arange(self.rows))

    def chance(self, frequency: Floats) -> Floats:
        """Return A, the probability that D is not 0, per level, given the key's `frequency`."""
        share: Floats = frequency + (1 - frequency) / self._blocks
        return 2 * self.p_else + self.contrast * share

    @property
    def _least_chance(self) -> Floats:
        return self.chance(np.zeros(len(self.epsilons)))

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one symbol for each key."""
        size = self.buckets // self._blocks[level]
        drawn = uniform_below(bits, (self.rows * size).astype(np.uint64)).astype(np.int64)
        row, r = np.divmod(drawn, size)
        bucket, negative = buckets_and_signs(values, hash_constants(self.seed, row), self._bits)
        block, offset = np.divmod(bucket, size)
        symbol = 2 * block + (negative ^ hadamard.is_odd(r, offset))
        missed = np.flatnonzero(bernoulli(bits, self._thresholds, level))
        bound = (2 * self._blocks[level[missed]]).astype(np.uint64)
        symbol[missed] = uniform_other(bits, symbol[missed], bound)
        block, sign = np.divmod(symbol, 2)
        return (2 * (row * self.buckets + block * size + r) + sign).astype(self.dtype)

    def differences(self, table: Counts, level: int) -> tuple[Floats, Counts]:
        """Return the sum of signs of every bucket and the number of reports of every block.

        Returns `signs`, shape (t M,), row by row, and `sizes`, shape (t w,), likewise.
        """
        pairs = table[level, 1:].reshape(self.rows * self.blocks[level], -1, 2)
        signs = hadamard.transform_floats((pairs[:, :, 0] - pairs[:, :, 1]).astype(np.float64))
        return signs.ravel(), pairs.sum(axis=(1, 2))

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of the frequencies of the requested keys."""
        keys = np.zeros(0, dtype=np.uint64) if question.asked is None else question.asked
        weighed = [self._weigh(table[:, 0], question) for table in tables]
        used = np.flatnonzero(weighed[0].counts)
        if not used.size:
            return [self._empty_estimate(window, keys.size) for window in weighed]
        law = laws_in_rows([self.law(counts, shares, question) for _, counts, shares, _ in weighed])
        step = max(1, CELLS_AT_A_TIME // tables[0].size)
        groups = (slice(first, first + step) for first in range(0, len(tables), step))
        parts = [self._gathered(tables[x], law.coefficient[x], used, keys) for x in groups]
        values, scatter, sums, sizes = map(np.concatenate, zip(*parts, strict=True))
        totals = np.array([x.total for x in weighed])
        free = not question.one_mean(len(self.epsilons))
        bounds = self.collisions.limits(law, values, scatter, sizes, question, totals, free=free)
        p_values = heterogeneity_of_differences(law, sums, sizes[..., :KEYS_AT_A_TIME])
        effective = 1 / (4 * np.vecdot(law.counts, law.coefficient**2 * self._worst[used]))
        windows = zip(weighed, values, zip(*bounds, strict=True), effective, p_values, strict=True)
        return [self._build_estimate(w, f, ends, float(n), p) for w, f, ends, n, p in windows]

    def _gathered(
        self, tables: Sequence[Counts], coefficient: Floats, used: Indices, keys: Words
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the inputs of the bounds for each key, from the levels with reports.

        Returns `values`, shape (windows, k): the weighted sum of D; `scatter`, shape (windows, k):
        the sum of the squared distances between the rows' parts of that sum and the mean of these
        parts; `sums`, shape (windows, levels, first keys): the sums of D; `sizes`, shape (windows,
        levels, k): the number of reports with D != 0.
        """
        decoded = [[self.differences(table, level) for level in used.tolist()] for table in tables]
        values, scatter = np.empty((2, len(tables), keys.size))
        sizes_of_keys = np.empty((len(tables), used.size, keys.size))
        sums = np.empty((len(tables), used.size, keys[:KEYS_AT_A_TIME].size))
        sketches = [
            sum(s * signs for s, (signs, _) in zip(row, levels, strict=True))
            for row, levels in zip(coefficient.tolist(), decoded, strict=True)
        ]
        for start in range(0, keys.size, KEYS_AT_A_TIME):
            part = slice(start, start + KEYS_AT_A_TIME)
            cells, negative = buckets_and_signs(keys[part][:, None], self.constants, self._bits)
            cells += np.arange(self.rows) * self.buckets
            signs_of_keys = 1.0 - 2.0 * negative
            for window, (sketch, levels) in enumerate(zip(sketches, decoded, strict=True)):
                parts = sketch.take(cells) * signs_of_keys
                values[window, part] = parts.sum(axis=1)
                parts -= parts.mean(axis=1, keepdims=True)
                scatter[window, part] = np.einsum("ij,ij->i", parts, parts)
                for row, (signs, sizes) in enumerate(levels):
                    if not start:
                        sums[window, row] = np.vecdot(signs.take(cells), signs_of_keys)
                    shift, numbers = (signs.size // sizes.size).bit_length() - 1, sizes.sum()
                    if shift < self._bits:  # not all reports of the level are in one block
                        numbers = sizes.take(cells >> shift).sum(axis=1)
                    sizes_of_keys[window, row, part] = numbers
        return values, scatter, sums, sizes_of_keys

    def supports(self, reports: Reports, level: int, key: Any) -> Bools:
        """Return which `reports`, shape (n,), have the symbol that the key has for their row and r.

        `level`: the index of their level; `key`: the 64-bit key of a string.
        """
        cell, sign = np.divmod(reports.astype(np.int64), 2)
        row, bucket_at = np.divmod(cell, self.buckets)
        block, r = np.divmod(bucket_at, self.buckets // self.blocks[level])
        keys = np.full(row.size, key, dtype=np.uint64)
        bucket, negative = buckets_and_signs(keys, self.constants[row], self._bits)
        key_block, column = np.divmod(bucket, self.buckets // self.blocks[level])
        return np.asarray((block == key_block) & (sign == (negative ^ hadamard.is_odd(r, column))))


def best_blocks(epsilon: Fraction, buckets: int) -> int:
    """Return the largest power of two w with 2 w^2 <= (e^epsilon - 1)^2, from 1 to `buckets`.

    Among the powers of two, it has the least variance at frequency 0. The arithmetic is exact,
    because every device and the aggregator must agree on it.

    >>> [best_blocks(Fraction(e), 1024) for e in (1, 2, 4, 8, 64)]
    [1, 4, 32, 1024, 1024]
    """
    blocks = at_exp(epsilon, lambda e: 1 << max(0, int((e - 1) ** 2 / 2).bit_length() - 1) // 2)
    return min(buckets, blocks)
