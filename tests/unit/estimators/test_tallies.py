"""Counting small integers agrees with numpy, whichever way is taken for their number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from estimators.exact.tallies import (
    BLOCK_ROWS,
    CHUNK,
    FEW_BITS,
    MANY,
    MANY_ROWS,
    count_symbols,
    sum_bits,
    tally,
    tally_signs,
    tally_signs_by_part,
)

SIZES = (0, 1, MANY - 1, MANY, MANY + 63, 3 * MANY + 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cells", [1, 2, 3, 8, 2**FEW_BITS, 2**FEW_BITS + 1, 256])
def test_a_tally_is_numpys(cells: int, size: int) -> None:
    numbers = np.random.default_rng(cells + size).integers(0, cells, size).astype(np.uint8)
    assert tally(numbers, cells).tolist() == np.bincount(numbers, minlength=cells).tolist()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("levels", [1, 2, 3, 2 ** (FEW_BITS - 1), 2**FEW_BITS, 200])
def test_signs_are_told_apart_by_level(levels: int, size: int) -> None:
    rng = np.random.default_rng(levels + size)
    level, signs = rng.integers(0, levels, size), rng.integers(0, 2, size).astype(np.uint8)
    expected = np.zeros((levels, 2), dtype=np.int64)
    np.add.at(expected, (level, signs), 1)
    assert tally_signs(level.astype(np.uint8), levels, signs).tolist() == expected.tolist()


@pytest.mark.parametrize("levels", [1, 2, 3, 2 ** (FEW_BITS - 1)])
@pytest.mark.parametrize("parts", [1, 2, 7, 20])
def test_signs_of_parts_are_told_apart(levels: int, parts: int) -> None:
    rng = np.random.default_rng(levels + parts)
    cuts = np.sort(rng.integers(0, 50_000, parts - 1))
    sizes = np.diff([0, *cuts.tolist(), 50_000])
    level = rng.integers(0, levels, 50_000).astype(np.uint8)
    signs = rng.integers(0, 2, 50_000).astype(np.uint8)
    found = tally_signs_by_part(level, levels, signs, sizes)
    assert found is not None
    edges = np.cumsum([0, *sizes.tolist()])
    for part, (first, last) in enumerate(itertools.pairwise(edges.tolist())):
        one = tally_signs(level[first:last], levels, signs[first:last])
        assert found[part].tolist() == one.tolist()


def test_short_parts_are_left_to_be_counted_one_by_one() -> None:
    numbers, sizes = np.zeros(MANY, dtype=np.uint8), np.full(MANY // 64, 64)
    assert tally_signs_by_part(numbers, 2, numbers, sizes) is None
    assert tally_signs_by_part(numbers[:64], 2, numbers[:64], sizes[:1]) is None


@pytest.mark.parametrize("size", [0, 1, 100, CHUNK + 1, 3 * CHUNK])
@pytest.mark.parametrize(
    ("levels", "symbols"), [(1, 2), (4, 256), (1, 2**16), (3, 1000), (200, 5000)]
)
def test_symbols_are_added_up_by_level(levels: int, symbols: int, size: int) -> None:
    rng = np.random.default_rng(levels + symbols + size)
    level, reports = rng.integers(0, levels, size), rng.integers(0, symbols, size)
    table = rng.integers(0, 9, (levels, 1 + symbols))
    expected = table.copy()
    np.add.at(expected, (level, 1 + reports), 1)
    np.add.at(expected[:, 0], level, 1)
    count_symbols(table, level.astype(np.uint8), reports.astype(np.uint16))
    assert np.array_equal(table, expected)


@pytest.mark.parametrize(
    "rows", [0, 1, 255, 256, 1000, MANY_ROWS - 1, MANY_ROWS, BLOCK_ROWS + 9_001]
)
@pytest.mark.parametrize("columns", [1, 8, 11, 64, 100])
def test_bits_are_summed_by_column(columns: int, rows: int) -> None:
    bits = np.random.default_rng(columns + rows).random((rows, columns)) < 0.3
    packed = np.packbits(bits, axis=1, bitorder="little")
    assert sum_bits(packed, columns).tolist() == bits.sum(axis=0).tolist()
    assert sum_bits(np.full_like(packed, 255), columns).tolist() == [rows] * columns
