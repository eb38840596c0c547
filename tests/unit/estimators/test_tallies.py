"""Counting small integers agrees with numpy, whichever way is taken for their number."""

import itertools

import numpy as np

from estimators.exact.tallies import (
    BLOCK_ROWS,
    MANY_ROWS,
    MAX_BITWISE_BITS,
    MIN_BITWISE_NUMBERS,
    NUMBERS_COUNTED_AT_A_TIME,
    sum_bits,
    tally,
    tally_signs,
    tally_signs_by_part,
)
from estimators.mechanisms.shared.outputs import count_symbols

SIZES = (
    0,
    1,
    MIN_BITWISE_NUMBERS - 1,
    MIN_BITWISE_NUMBERS,
    MIN_BITWISE_NUMBERS + 63,
    3 * MIN_BITWISE_NUMBERS + 1,
)


def test_a_tally_is_numpys() -> None:
    for cells, size in itertools.product(
        (1, 2, 3, 8, 2**MAX_BITWISE_BITS, 2**MAX_BITWISE_BITS + 1, 256), SIZES
    ):
        numbers = np.random.default_rng(cells + size).integers(0, cells, size).astype(np.uint8)
        expected = np.bincount(numbers, minlength=cells)
        assert tally(numbers, cells).tolist() == expected.tolist(), (cells, size)


def test_signs_are_told_apart_by_level() -> None:
    for levels, size in itertools.product(
        (1, 2, 3, 2 ** (MAX_BITWISE_BITS - 1), 2**MAX_BITWISE_BITS, 200), SIZES
    ):
        rng = np.random.default_rng(levels + size)
        level, signs = rng.integers(0, levels, size), rng.integers(0, 2, size).astype(np.uint8)
        expected = np.zeros((levels, 2), dtype=np.int64)
        np.add.at(expected, (level, signs), 1)
        found = tally_signs(level.astype(np.uint8), levels, signs)
        assert found.tolist() == expected.tolist(), (levels, size)


def test_signs_of_parts_are_told_apart() -> None:
    """Short parts are left to be counted one by one."""
    for levels, parts in itertools.product((1, 2, 3, 2 ** (MAX_BITWISE_BITS - 1)), (1, 2, 7, 20)):
        rng = np.random.default_rng(levels + parts)
        cuts = np.sort(rng.integers(0, 50_000, parts - 1)).tolist()
        level = rng.integers(0, levels, 50_000).astype(np.uint8)
        signs = rng.integers(0, 2, 50_000).astype(np.uint8)
        found = tally_signs_by_part(level, levels, signs, np.diff([0, *cuts, 50_000]))
        assert found is not None
        for part, (first, last) in enumerate(itertools.pairwise([0, *cuts, 50_000])):
            one = tally_signs(level[first:last], levels, signs[first:last])
            assert found[part].tolist() == one.tolist(), (levels, parts)
    numbers, sizes = (
        np.zeros(MIN_BITWISE_NUMBERS, dtype=np.uint8),
        np.full(MIN_BITWISE_NUMBERS // 64, 64),
    )
    assert tally_signs_by_part(numbers, 2, numbers, sizes) is None
    assert tally_signs_by_part(numbers[:64], 2, numbers[:64], sizes[:1]) is None


def test_symbols_are_added_up_by_level() -> None:
    shapes = ((1, 2), (4, 256), (1, 2**16), (3, 1000), (200, 5000))
    for (levels, symbols), size in itertools.product(
        shapes, (0, 1, 100, NUMBERS_COUNTED_AT_A_TIME + 1, 3 * NUMBERS_COUNTED_AT_A_TIME)
    ):
        rng = np.random.default_rng(levels + symbols + size)
        level, reports = rng.integers(0, levels, size), rng.integers(0, symbols, size)
        table = rng.integers(0, 9, (levels, 1 + symbols))
        expected = table.copy()
        np.add.at(expected, (level, 1 + reports), 1)
        np.add.at(expected[:, 0], level, 1)
        count_symbols(table, level.astype(np.uint8), reports.astype(np.uint16))
        assert np.array_equal(table, expected), (levels, symbols, size)


def test_bits_are_summed_by_column() -> None:
    numbers = (0, 1, 255, 256, 1000, MANY_ROWS - 1, MANY_ROWS, BLOCK_ROWS + 9_001)
    for columns, rows in itertools.product((1, 8, 11, 64, 100), numbers):
        bits = np.random.default_rng(columns + rows).random((rows, columns)) < 0.3
        packed = np.packbits(bits, axis=1, bitorder="little")
        assert sum_bits(packed, columns).tolist() == bits.sum(axis=0).tolist(), (columns, rows)
        assert sum_bits(np.full_like(packed, 255), columns).tolist() == [rows] * columns
