"""Limits of a share of A among B: Theorems 2, 4 and 5 of docs/proofs/shares.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS
from estimators.bounds.normal import log_wealth_remainder
from estimators.bounds.piecewise.bets import MAX_STAKE
from estimators.bounds.piecewise.limits import square_limits
from estimators.bounds.shares.bets import ShareBets
from estimators.bounds.shares.subsets import SubsetFactors
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

SHARE_BLOCKS = 64
BLOCK_EDGES = np.sin(np.linspace(0, np.pi / 2, SHARE_BLOCKS + 1)) ** 2
"""The edges of blocks of shares r that share tilts; widths are proportional to sqrt(r (1 - r))."""
CELL_RATIO = 1.15  # ratio of the variances at both ends of a cell
MAX_CELLS = 120  # beyond the last, the variance may be zero
CELL_CHOICE_SHARE = 0.01
"""The part of the failure probability for each end of the interval for the variance."""
MEAN_PARTS = 16
"""Parts of the range of the variance of the users' means."""
TILT_BAND = 10.0
"""Tilts of the mixture beyond this ratio to the best one are left out."""
ROWS_AT_A_TIME = 256
"""Tilts that are computed together, for blocks from the share 0 on; fewer with subsets."""
MAX_REFINEMENTS, REFINEMENT_PARTS = 3, 32
"""How often, and into how many parts, the block of a limit is divided."""


class _Tilts(NamedTuple):
    """Rows of tilts, block by block.

    `block`, `tilt`: the block and the tilt of each row; `goal`: the gain that a row needs;
    `factors`: for each level with subsets, the factors at both ends of the block; `combine`: a
    function from the surplus of a block's rows to a number that is at least 0 if the block's share
    is rejected.
    """

    block: Indices
    tilt: Floats
    goal: Floats
    factors: list[SubsetFactors]
    combine: np.ufunc


class _Cells(NamedTuple):
    """Cells of the variance, one in each row, block by block: from `low` to `high`."""

    block: Indices
    low: Floats
    high: Floats


def share_limits(bets: ShareBets, log_p: float, anytime_total: float | None) -> tuple[float, float]:
    """Return bounds on the share of A among B; [0, 1] if the two limits exclude all shares.

    `bets`: the bets on the share, with sum n s = 1 over all levels; `log_p`: ln of the failure
    probability of each side; `anytime_total`: for bounds at all times, from
    :func:`estimators.weights.total_weight`; the share must then be the same at all times and
    levels. None if the number of reports is fixed in advance.
    """
    lower, mirrored = (_lower_limit(side, log_p, anytime_total) for side in (bets, bets.mirrored()))
    return (lower, 1 - mirrored) if lower + mirrored < 1 else (0.0, 1.0)


# Theorem 2 of docs/proofs/shares.md
def _lower_limit(bets: ShareBets, log_p: float, anytime_total: float | None) -> float:
    """Return the largest r such that all shares from 0 to r are rejected as too small.

    The estimated share is not rejected, so larger shares are hardly ever computed.
    """
    first, base = bets.sums
    middle = np.searchsorted(BLOCK_EDGES, first / base if base > 0 else 1.0) + 1
    for blocks in np.split(np.arange(SHARE_BLOCKS), [int(middle)]):
        if anytime_total is None:
            parts = _cell_tilts(bets, blocks, log_p)
        else:
            parts = iter([_mixture_tilts(bets, blocks, log_p, anytime_total)])
        for rows in parts if blocks.size else ():
            if (limit := _first_unrejected(bets, rows)) is not None:
                return limit
    return 1.0


def _first_unrejected(bets: ShareBets, rows: _Tilts) -> float | None:
    """Return the share up to which blocks are rejected; None if they are rejected entirely."""
    first, last = BLOCK_EDGES[rows.block], BLOCK_EDGES[rows.block + 1]
    of_subsets = np.zeros((first.size, 2))
    for subset, ends in zip(bets.subsets, rows.factors, strict=True):
        of_subsets += subset.gains(ends)

    def surplus(chosen: Indices, ratio: Floats) -> Floats:
        """Return lower bounds on the gains minus their goals, between neighbouring ratios."""
        part = (ratio - first[chosen, None]) / (last - first)[chosen, None]
        at_first, at_last = of_subsets[chosen].T[..., None]
        gains = bets.counted.gains(rows.tilt[chosen, None], ratio)
        gains = gains + at_first + part * (at_last - at_first) - rows.goal[chosen, None]
        smaller: Floats = np.minimum(gains[:, :-1], gains[:, 1:])
        return smaller

    starts = np.flatnonzero(np.diff(rows.block, prepend=-1))
    block_surplus = surplus(np.arange(first.size), np.stack([first, last], axis=-1))[:, 0]
    is_unsure = rows.combine.reduceat(block_surplus, starts) < 0
    for block in rows.block[starts[is_unsure]].tolist():
        checkpoint()
        low, high = BLOCK_EDGES[block], BLOCK_EDGES[block + 1]
        chosen = np.flatnonzero(rows.block == block)
        for _ in range(MAX_REFINEMENTS):
            ratio = np.linspace(low, high, REFINEMENT_PARTS + 1)
            ratios = np.broadcast_to(ratio, (chosen.size, ratio.size))
            parts = rows.combine.reduce(surplus(chosen, ratios), axis=0)
            if (parts >= 0).all():
                break  # all parts of the block are rejected, although the whole block was not
            index = int((parts < 0).argmax())
            low, high = ratio[index], ratio[index + 1]
        else:
            return float(low)
    return None


def _block_factors(bets: ShareBets, block: Indices, tilt: Floats) -> list[SubsetFactors]:
    """Return the subsets' factors at both ends of each row's block, which are on one axis."""
    ends = np.concatenate([BLOCK_EDGES[block], BLOCK_EDGES[block + 1]])
    factors = [subset.factors(np.tile(tilt, 2), ends) for subset in bets.subsets]
    return [
        SubsetFactors(x.exponents.reshape(2, -1, 2).swapaxes(0, 1), x.price.reshape(2, -1).T)
        for x in factors
    ]


def _subset_variances(bets: ShareBets) -> Floats:
    """Return the least variance of the subsets' part of the sum, in the middle of each block."""
    middle, variance = (BLOCK_EDGES[:-1] + BLOCK_EDGES[1:]) / 2, np.zeros(SHARE_BLOCKS)
    for subset in bets.subsets:
        variance += subset.score_variance(middle)
    return variance


# Theorem 2 (2) of docs/proofs/shares.md
def _mixture_tilts(bets: ShareBets, blocks: Indices, log_p: float, total: float) -> _Tilts:
    """Return the tilts of the mixture that are near the best ones, for some blocks."""
    counted = bets.counted
    variance = counted.scores((BLOCK_EDGES[:-1] + BLOCK_EDGES[1:]) / 2) ** 2 @ counted.counts
    best = np.sqrt(-2 * log_p / np.maximum(variance + _subset_variances(bets), 1e-300))
    tilts, largest = MIXTURE_TILTS * total, bets.max_tilts(BLOCK_EDGES)
    is_near = (tilts >= best.min() / TILT_BAND) & (tilts <= best.max() * TILT_BAND)
    is_near[int(np.abs(np.log(tilts / best.min())).argmin())] = True
    tilts, log_weights = tilts[is_near], LOG_MIXTURE_WEIGHTS[is_near]
    block, tilt = np.repeat(blocks, tilts.size), np.tile(tilts, blocks.size)
    goal = np.tile(LOG_P_SAFETY - log_p - log_weights, blocks.size)
    goal[tilt > largest[block]] = np.inf
    tilt = np.minimum(tilt, largest[block])
    return _Tilts(block, tilt, goal, _block_factors(bets, block, tilt), np.logaddexp)


# Theorems 4 and 5 of docs/proofs/shares.md
def _cell_tilts(bets: ShareBets, blocks: Indices, log_p: float) -> Iterator[_Tilts]:
    """Yield a tilt for each cell that overlaps the variance's interval, some blocks at a time.

    Shares above the first share that is not rejected do not matter, so they are computed last.
    """
    counted, scores = bets.counted, bets.counted.scores(BLOCK_EDGES)
    cells = _Cells(blocks, np.zeros(blocks.size), np.zeros(blocks.size))
    if counted.reports:
        cells = _met_cells(counted.counts, scores, blocks, log_p + math.log(CELL_CHOICE_SHARE))
        log_p += math.log1p(-2 * CELL_CHOICE_SHARE)
    of_subsets = _subset_variances(bets)
    ends = np.searchsorted(cells.block, blocks, side="right")
    number, begin = ROWS_AT_A_TIME // (1 + len(bets.subsets)), 0
    while begin < cells.block.size:
        end = int(ends[min(int(np.searchsorted(ends, begin + number)), blocks.size - 1)])
        part = _Cells(cells.block[begin:end], cells.low[begin:end], cells.high[begin:end])
        yield _tilts_of_cells(bets, part, scores, of_subsets[part.block], log_p)
        begin = end


def _tilts_of_cells(
    bets: ShareBets, cells: _Cells, scores: Floats, of_subsets: Floats, log_p: float
) -> _Tilts:
    """Return the tilts of some cells, and their goals.

    `bets`: the bets on the share; `cells`: the cells of the variance; `scores`, shape (edges,
    kinds): the scores of counted reports at the edges of the blocks; `of_subsets`, shape (rows,):
    the least variance of the subsets' part of the sum; `log_p`: ln p, where p is the failure
    probability of each side.
    """
    from scipy.special import erfcx

    block = cells.block
    expected = np.sqrt(np.maximum(cells.low, cells.high / CELL_RATIO) * cells.high)
    cost, largest = np.full(block.size, -log_p), bets.max_tilts(BLOCK_EDGES)[block]
    for _ in range(3):
        tilt = np.sqrt(np.maximum(2 * cost, 1.0) / (expected + of_subsets))
        if jump := max((x.weight for x in bets.subsets if x.of_values), default=0.0):
            tilt = np.log1p(jump * tilt + (jump * tilt) ** 2 / 2) / jump  # Bennett's tilt
        tilt = np.minimum(tilt, largest)
        cost = -log_p + np.log(erfcx(tilt * np.sqrt(2 * (cells.low + of_subsets))))
    factors = _block_factors(bets, block, tilt)
    variance, spread = np.zeros(block.size), np.zeros(block.size)
    for subset, ends in zip(bets.subsets, factors, strict=True):
        of_subset, of_report = subset.moments(ends)
        variance, spread = variance + of_subset, np.maximum(spread, of_report)
    log_remainder = log_wealth_remainder(np.sqrt(variance), spread)
    if bets.counted.reports:
        stakes = tilt[:, None, None] * np.stack([scores[block], scores[block + 1]], axis=1)
        stakes = stakes.reshape(block.size, -1)
        log_remainder = _log_remainder(bets, cells, tilt, stakes, (variance, spread))
    return _Tilts(block, tilt, log_remainder - log_p + LOG_P_SAFETY, factors, np.minimum)


def _met_cells(counts: Floats, scores: Floats, blocks: Indices, log_p: float) -> _Cells:
    """Return the cells of the variance V that overlap its interval, in each of some blocks.

    `counts`, shape (kinds,): how many reports are of each kind; `scores`, shape (edges, kinds): the
    scores of each kind at the edges of the blocks; `blocks`, shape (blocks,): the indices of the
    blocks; `log_p`: ln of the failure probability of each end of the interval.
    """
    at_first, at_last = scores[blocks], scores[blocks + 1]
    n = np.full(blocks.size, counts.sum())
    highest = np.maximum(at_first**2, at_last**2)
    lowest = np.where(at_first * at_last <= 0, 0.0, np.minimum(at_first**2, at_last**2))
    largest = highest.max(axis=-1)
    low, _ = square_limits(lowest, counts, largest, n, log_p)
    _, high = square_limits(highest, counts, largest, n, log_p)
    top, ranks = n * largest, []
    for end in (np.maximum(low, high), np.minimum(low, high)):
        rank = np.log(top / np.maximum(end, 1e-300)) / math.log(CELL_RATIO)
        ranks.append(np.clip(rank, 0, MAX_CELLS - 1).astype(np.intp))
    size = ranks[1] - ranks[0] + 1
    row = np.repeat(np.arange(blocks.size), size)
    rank = np.arange(row.size) - np.repeat(np.cumsum(size) - size - ranks[0], size)
    ends = [top[row] * CELL_RATIO ** -(rank + i).astype(np.float64) for i in range(2)]
    return _Cells(blocks[row], np.where(rank < MAX_CELLS - 1, ends[1], 0.0), ends[0])


# Theorem 5 of docs/proofs/shares.md
def _log_remainder(
    bets: ShareBets, rows: _Cells, tilt: Floats, stakes: Floats, of_subsets: tuple[Floats, Floats]
) -> Floats:
    """Return ln R minus what the variance of the users' means saves, for the worst variance.

    `bets`: the bets on the share; `rows`: the cells of the variance; `tilt`, shape (rows,): the
    tilt of each cell; `stakes`, shape (rows, kinds): t s z of all kinds of reports at both ends of
    each block; `of_subsets`, shape (rows,): the least variance of the subsets' part of the sum, and
    the largest range of one report.
    """
    lowest, highest = stakes.min(axis=-1), stakes.max(axis=-1)
    square, mean, spread = np.maximum(lowest**2, highest**2), np.zeros(tilt.size), np.zeros(2)
    if bets.free:
        ratio = np.maximum(BLOCK_EDGES[rows.block + 1], 1 - BLOCK_EDGES[rows.block])
        mean = np.minimum(tilt * bets.counted.weight.max() * ratio, MAX_STAKE)
        spread = np.linspace(0, 1, MEAN_PARTS + 1) ** 2
    logs, is_small = np.log1p(stakes), np.abs(stakes) < 1e-4
    curve = (1 + stakes) * (logs / np.where(is_small, 1.0, stakes)) ** 2
    curvature = np.where(is_small, 1 - stakes**2 / 6, curve).min(axis=-1) / (1 + mean)
    of_means = np.sqrt(square)[:, None] + np.sqrt(spread[1:]) / (1 - mean)[:, None]
    growth = (1 + lowest) / ((1 + highest) ** 2 * (1 + mean))
    factor = np.maximum(curvature[:, None] - of_means**2, growth[:, None] * (1 - spread[1:]))
    variance = (tilt**2 * rows.low)[:, None] * factor
    deviation = np.sqrt(variance + of_subsets[0][:, None])
    log_mean = np.log1p(mean + square / (1 - mean))
    max_deviation = np.maximum(np.log1p(highest) - np.log1p(-mean), log_mean - np.log1p(lowest))
    log_parts = log_wealth_remainder(deviation, np.maximum(max_deviation, of_subsets[1])[:, None])
    saving = ((tilt / (1 + mean)) ** 2 * rows.low / 2)[:, None] * spread[:-1]
    log_largest: Floats = (log_parts - saving).max(axis=-1)
    return log_largest
