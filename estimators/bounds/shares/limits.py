"""Limits of a share of A among B, by bets: Theorems 2, 4 and 5 of docs/proofs/shares.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS
from estimators.bounds.normal import log_wealth_remainder
from estimators.bounds.piecewise.bets import MAX_STAKE
from estimators.bounds.piecewise.limits import square_limits
from estimators.bounds.shares.bets import CountedReports, ShareBets
from estimators.bounds.shares.subsets import SubsetFactors
from estimators.bounds.signs.law import blocks
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Indices, Limits
from estimators.interruption import checkpoint

SHARE_BLOCKS = 64
BLOCK_EDGES = np.sin(np.linspace(0, np.pi / 2, SHARE_BLOCKS + 1)) ** 2
"""The edges of blocks of shares r that share tilts; widths are proportional to sqrt(r (1 - r))."""
BLOCK_MIDDLES = (BLOCK_EDGES[:-1] + BLOCK_EDGES[1:]) / 2
CELL_RATIO = 1.15  # ratio of the variances at both ends of a cell
MAX_CELLS = 120  # beyond the last, the variance may be zero
QUICK_STRIDE, QUICK_SHARE = 4, 1e-4
"""The blocks that the quick test joins, and its part of the failure probability."""
CELL_CHOICE_SHARE = 0.01
"""The part of the failure probability for each end of the interval for the variance."""
MEAN_PARTS = 16
"""Parts of the range of the variance of the users' means."""
TILT_BAND = 10.0
"""Tilts of the mixture beyond this ratio to the best one are left out."""
ROWS_AT_A_TIME = 1024
"""Tilts that are computed together: arrays that a processor's cache holds."""
MAX_REFINEMENTS, REFINEMENT_PARTS = 3, 32
"""How often, and into how many parts, the block of a limit is divided."""


class _Cells(NamedTuple):
    """Rows about a block of shares in a window, in ascending order: the indices of both.

    In bounds for a fixed number of reports, a row is a cell of the variance, from `low` to `high`.
    """

    window: Indices
    block: Indices
    low: Floats
    high: Floats

    def rows(self, rows: Any) -> _Cells:
        """Return the rows that a numpy index selects."""
        return _Cells(*(array[rows] for array in self))

    @property
    def ends(self) -> Floats:
        """Both ends of the blocks, shape (rows, 2)."""
        return np.stack([BLOCK_EDGES[self.block], BLOCK_EDGES[self.block + 1]], axis=-1)


class _Tilts(NamedTuple):
    """Rows of tilts, block by block.

    `cells`, `tilt`: the window and block, and the tilt of each row; `goal`: the gain that a row
    needs; `of_subsets`, shape (rows, 2): the gains of levels with subsets at both ends of the
    block; `surplus`: a lower bound on the gain in the block, minus the goal; `combine`: a function
    from the surplus of a block's rows to a number that is at least 0 if the block's share is
    rejected.
    """

    cells: _Cells
    tilt: Floats
    goal: Floats
    of_subsets: Floats
    surplus: Floats
    combine: np.ufunc


_Rows = tuple[_Cells, Callable[[Indices], _Tilts]]
"""The window and block of each row, and a function that returns the tilts of some rows."""
_Gains = tuple[Floats, Floats, list[SubsetFactors]]


def share_limits(bets: ShareBets, log_p: float, anytime_totals: Floats | None) -> Limits:
    """Return bounds on the share of A among B; [0, 1] if the two limits exclude all shares.

    `bets`: the bets on the share in each window, with sum n s = 1 over all levels; `log_p`: ln of
    the failure probability of each side; `anytime_totals`, shape (windows,): for bounds at all
    times, from :func:`estimators.weights.total_weight`; the share must then be the same at all
    times and levels. None if the number of reports is fixed in advance.
    """
    lower, mirrored = np.empty((2, len(bets.counted.counts)))
    # blocks longer than a cache are quicker: most of their shares are soon rejected
    for part in blocks(lower.size, 8 * (20 + bets.counted.counts.shape[1])):
        side, totals = bets.rows(part), None if anytime_totals is None else anytime_totals[part]
        lower[part] = _lower_limits(side, log_p, totals)
        mirrored[part] = _lower_limits(side.mirrored(), log_p, totals)
    is_empty = lower + mirrored >= 1
    return np.where(is_empty, 0.0, lower), np.where(is_empty, 1.0, 1 - mirrored)


# Theorem 2 of docs/proofs/shares.md
def _lower_limits(bets: ShareBets, log_p: float, anytime_totals: Floats | None) -> Floats:
    """Return the largest r such that all shares from 0 to r are rejected as too small.

    The estimated share is not rejected, so larger shares are hardly ever computed.
    """
    first, base = bets.sums.T
    share = np.divide(first, base, out=np.ones_like(first), where=base > 0)
    middle, limits = np.searchsorted(BLOCK_EDGES, share) + 1, np.full(first.size, np.nan)
    number, rejected = np.arange(SHARE_BLOCKS), np.zeros_like(middle)
    if anytime_totals is None:
        rejected = _quickly_rejected(bets, share, log_p + math.log(QUICK_SHARE))
        log_p += math.log1p(-QUICK_SHARE)
    is_left, is_below = number >= rejected[:, None], number < middle[:, None]
    for is_asked in (is_below, ~is_below):
        window, block = np.nonzero(is_left & is_asked & np.isnan(limits)[:, None])
        if not block.size:
            continue
        cells = _Cells(window, block, *np.zeros((2, block.size)))
        if anytime_totals is None:
            _search(bets, _cell_tilts(bets, cells, log_p), limits)
        else:
            _search(bets, _mixture_tilts(bets, cells, log_p, anytime_totals), limits)
    return np.where(np.isnan(limits), 1.0, limits)


def _quickly_rejected(bets: ShareBets, share: Floats, log_p: float) -> Indices:
    """Return how many blocks, from the first on, one tilt rejects, whatever the variance is.

    `share`, shape (windows,): the estimates, up to which blocks are tried; `log_p`: ln of the
    failure probability, of which the largest tilt has half, half of it a sixth, and so on.
    """
    edges = BLOCK_EDGES[::QUICK_STRIDE]
    variance, largest = bets.variances((edges[:-1] + edges[1:]) / 2), bets.max_tilts(edges)
    halvings = np.maximum(np.rint(np.log2(largest * np.sqrt(variance / (-2 * log_p)))), 0.0)
    tilts = largest / 2**halvings
    goals = LOG_P_SAFETY - log_p + np.log((halvings + 1) * (halvings + 2))
    tried = window, block = np.nonzero(edges[1:] <= share[:, None])
    ends = np.stack([edges[block], edges[block + 1]], axis=-1)
    is_rejected = np.zeros(tilts.shape, dtype=np.bool_)
    is_rejected[tried] = _gains(bets.rows(window), ends, tilts[tried])[1] >= goals[tried]
    rejected: Indices = QUICK_STRIDE * np.logical_and.accumulate(is_rejected, axis=1).sum(axis=1)
    return rejected


def _search(bets: ShareBets, all_rows: _Rows, limits: Floats) -> None:
    """Set the share up to which blocks are rejected, in each window in which not all are.

    `limits`, shape (windows,), is changed. Some blocks of each window are computed at a time.
    """
    cells, tilts = all_rows
    starts = np.flatnonzero(np.diff(cells.window * SHARE_BLOCKS + cells.block, prepend=-1))
    windows, begin = np.unique(cells.window[starts], return_index=True)
    end, starts = np.append(begin[1:], starts.size), np.append(starts, cells.window.size)
    while windows.size:
        checkpoint()
        stop = np.searchsorted(starts, starts[begin] + ROWS_AT_A_TIME // windows.size, "right") - 1
        stop = np.clip(stop, begin + 1, end)
        pairs, rows = _ranges(begin, stop), tilts(_ranges(starts[begin], starts[stop]))
        sizes = np.diff(starts)[pairs]
        first = np.cumsum(sizes) - sizes
        unsure = np.flatnonzero(rows.combine.reduceat(rows.surplus, first) < 0)
        if unsure.size:
            owners, nearest = np.unique(rows.cells.window[first[unsure]], return_index=True)
            unsure = unsure[nearest]  # the first block of each window
            chosen = _ranges(first[unsure], first[unsure] + sizes[unsure])
            limits[owners] = _refined(bets, rows, chosen, sizes[unsure])
            stop[np.searchsorted(windows, owners)] = pairs[unsure] + 1
        is_open = np.isnan(limits[windows]) & (stop < end)
        windows, begin, end = windows[is_open], stop[is_open], end[is_open]


def _ranges(begin: Indices, end: Indices) -> Indices:
    """Return the indices of all ranges from `begin` to `end`."""
    return np.concatenate([np.arange(*pair) for pair in zip(begin, end, strict=True)])


def _refined(bets: ShareBets, rows: _Tilts, chosen: Indices, sizes: Indices) -> Floats:
    """Return the share up to which blocks are rejected; NaN if they are rejected entirely.

    `chosen`: the rows of the blocks; `sizes`, shape (blocks,): the number of rows of each block.
    """
    cells, starts = rows.cells.rows(chosen), np.cumsum(sizes) - sizes
    counted, ends = bets.counted.rows(cells.window), cells.ends
    low, high = ends[starts].T
    at_first, at_last = rows.of_subsets[chosen].T[..., None]
    for _ in range(MAX_REFINEMENTS):
        ratio = np.linspace(low, high, REFINEMENT_PARTS + 1, axis=-1)
        ratios = np.repeat(ratio, sizes, axis=0)
        part = (ratios - ends[:, :1]) / np.diff(ends)
        gains = counted.gains(rows.tilt[chosen], ratios) - rows.goal[chosen, None]
        gains += at_first + part * (at_last - at_first)
        surplus = rows.combine.reduceat(np.minimum(gains[:, :-1], gains[:, 1:]), starts, axis=0)
        is_full = (surplus >= 0).all(axis=1)
        index = (np.arange(sizes.size), (surplus < 0).argmax(axis=1))
        low = np.where(is_full, high, ratio[:, :-1][index])
        high = np.where(is_full, high, ratio[:, 1:][index])
    return np.where(low == ends[starts, 1], np.nan, low)


def _gains(bets: ShareBets, ends: Floats, tilt: Floats) -> _Gains:
    """Return the gains in rows of tilts at both ends of their blocks.

    `bets`: those of each row's window; `ends`, shape (rows, 2); `tilt`, shape (rows,).

    Returns
    -------
    of_subsets : ndarray of float64, shape (rows, 2)
        The gains of levels with subsets.
    gains : ndarray of float64, shape (rows,)
        The gains of all levels, at the end where they are smaller.
    factors : list of SubsetFactors
        The factors of each level with subsets; both ends are on one axis.
    """
    of_subsets, factors = np.zeros((tilt.size, 2)), []
    for subset in bets.subsets:
        twice = subset.rows(np.tile(np.arange(tilt.size), 2))
        exponents, price = twice.factors(np.tile(tilt, 2), ends.T.ravel())
        exponents = exponents.reshape(2, -1, 2).swapaxes(0, 1)
        factors.append(SubsetFactors(exponents, price.reshape(2, -1).T))
        of_subsets += subset.gains(factors[-1])
    return of_subsets, (bets.counted.gains(tilt, ends) + of_subsets).min(axis=-1), factors


# Theorem 2 (2) of docs/proofs/shares.md
def _mixture_tilts(bets: ShareBets, cells: _Cells, log_p: float, totals: Floats) -> _Rows:
    """Return rows for the mixture's tilts near the best ones in some blocks, and their tilts."""
    variance = bets.variances(BLOCK_MIDDLES)
    best = np.sqrt(-2 * log_p / variance)
    lowest, highest = best.min(axis=1, keepdims=True), best.max(axis=1, keepdims=True)
    mixture, largest = MIXTURE_TILTS * totals[:, None], bets.max_tilts(BLOCK_EDGES)
    is_near = (mixture >= lowest / TILT_BAND) & (mixture <= highest * TILT_BAND)
    is_near[np.arange(totals.size), np.abs(np.log(mixture / lowest)).argmin(axis=1)] = True
    row, rank = np.nonzero(is_near[cells.window])
    cells = cells.rows(row)
    tilt, largest = mixture[cells.window, rank], largest[cells.window, cells.block]
    goal = LOG_P_SAFETY - log_p - LOG_MIXTURE_WEIGHTS[rank]
    goal[tilt > largest] = np.inf
    tilt = np.minimum(tilt, largest)

    def tilts_of(rows: Indices) -> _Tilts:
        chosen, goals = cells.rows(rows), goal[rows]
        of_subsets, gains, _ = _gains(bets.rows(chosen.window), chosen.ends, tilt[rows])
        return _Tilts(chosen, tilt[rows], goals, of_subsets, gains - goals, np.logaddexp)

    return cells, tilts_of


# Theorems 4 and 5 of docs/proofs/shares.md
def _cell_tilts(bets: ShareBets, cells: _Cells, log_p: float) -> _Rows:
    """Return rows for the cells that overlap the variance's interval in blocks, and their tilts."""
    from scipy.special import erfcx

    variances, max_tilts = bets.subset_variances(BLOCK_MIDDLES), bets.max_tilts(BLOCK_EDGES)
    jumps = np.array([subset.weight for subset in bets.subsets if subset.of_values])
    if bets.counted.counts.size:
        log_choice_p = log_p + math.log(CELL_CHOICE_SHARE)
        log_p += math.log1p(-2 * CELL_CHOICE_SHARE)
        least_cost = max(-log_p + math.log(erfcx(2 * math.sqrt(-log_p))), 0.5)
        steepest = (0.0 if jumps.size else 2 * least_cost / max_tilts**2) - variances
        cells = _met_cells(bets.counted, cells, log_choice_p, steepest)

    def tilts_of(rows: Indices) -> _Tilts:
        window, block, low, high = chosen = cells.rows(rows)
        of_subsets, cost = variances[window, block], np.full(rows.size, -log_p)
        expected = np.sqrt(np.maximum(low, high / CELL_RATIO) * high)
        for _ in range(3):
            tilt = np.sqrt(np.maximum(2 * cost, 1.0) / (expected + of_subsets))
            if jumps.size:
                jump = jumps[:, window].max(axis=0)
                tilt = np.log1p(jump * tilt + (jump * tilt) ** 2 / 2) / jump  # Bennett's tilt
            tilt = np.minimum(tilt, max_tilts[window, block])
            cost = -log_p + np.log(erfcx(tilt * np.sqrt(2 * (low + of_subsets))))
        subset_gains, gains, factors = _gains(bets.rows(window), chosen.ends, tilt)
        goal = np.full(rows.size, LOG_P_SAFETY - log_p)
        unsure = np.flatnonzero(gains < goal)  # other rows reject without R, which is at most 1
        factors = [SubsetFactors(x.exponents[unsure], x.price[unsure]) for x in factors]
        if unsure.size:
            goal[unsure] += _log_remainder(bets, chosen.rows(unsure), tilt[unsure], factors)
        return _Tilts(chosen, tilt, goal, subset_gains, gains - goal, np.minimum)

    return cells, tilts_of


def _met_cells(counted: CountedReports, cells: _Cells, log_p: float, steepest: Floats) -> _Cells:
    """Return the cells of the variance V that overlap its interval, in each of some blocks.

    `counted`: the reports; `cells`: the windows and blocks; `log_p`: ln of the failure probability
    of each end of the interval; `steepest`, shape (windows, blocks): all cells up to this variance
    have the largest tilt, so only the last of them is returned: R is the largest there.
    """
    window, block, *_ = cells
    scores, counts = counted.scores(BLOCK_EDGES), counted.counts[window]
    at_first, at_last = scores[window, block], scores[window, block + 1]
    n = counts.sum(axis=1)
    highest = np.maximum(at_first**2, at_last**2)
    lowest = np.where(at_first * at_last <= 0, 0.0, np.minimum(at_first**2, at_last**2))
    largest = highest.max(axis=-1)
    low, _ = square_limits(lowest, counts, largest, n, log_p)
    _, high = square_limits(highest, counts, largest, n, log_p)
    top, ranks = n * largest, []
    for end in (np.maximum(low, high), np.minimum(low, high)):
        rank = np.log(top / np.maximum(end, 1e-300)) / math.log(CELL_RATIO)
        ranks.append(np.clip(rank, 0, MAX_CELLS - 1).astype(np.intp))
    steep = top * math.sqrt(CELL_RATIO) / np.maximum(steepest[window, block], 1e-300)
    first_steep = np.ceil(np.log(steep) / math.log(CELL_RATIO)).astype(np.intp)
    size = np.clip(first_steep, *ranks) - ranks[0] + 1
    row = np.repeat(np.arange(block.size), size)
    rank = np.arange(row.size) - np.repeat(np.cumsum(size) - size - ranks[0], size)
    rank[np.cumsum(size) - 1] = ranks[1]
    ends = [top[row] * CELL_RATIO ** -(rank + i).astype(np.float64) for i in range(2)]
    low_ends = np.where(rank < MAX_CELLS - 1, ends[1], 0.0)
    return _Cells(window[row], block[row], low_ends, ends[0])


# Theorem 5 of docs/proofs/shares.md
def _log_remainder(
    bets: ShareBets, rows: _Cells, tilt: Floats, factors: Sequence[SubsetFactors]
) -> Floats:
    """Return ln R minus what the variance of the users' means saves, for the worst variance.

    `bets`: the bets on the share; `rows`: the cells of the variance; `tilt`, shape (rows,): the
    tilt of each cell; `factors`: for each level with subsets, the factors of each row.
    """
    bets, of_subsets = bets.rows(rows.window), np.zeros((2, tilt.size))
    for subset, ends in zip(bets.subsets, factors, strict=True):
        variance, largest_range = subset.moments(ends)
        of_subsets = np.stack([of_subsets[0] + variance, np.maximum(of_subsets[1], largest_range)])
    if not bets.counted.counts.size:
        return log_wealth_remainder(np.sqrt(of_subsets[0]), of_subsets[1])
    stakes = tilt[:, None, None] * bets.counted.scores(rows.ends)
    stakes = stakes.reshape(tilt.size, -1)
    lowest, highest = stakes.min(axis=-1), stakes.max(axis=-1)
    square, mean, spread = np.maximum(lowest**2, highest**2), np.zeros(tilt.size), np.zeros(2)
    if bets.free:
        first, last = rows.ends.T
        weight = bets.counted.weight.max(axis=-1)
        mean = np.minimum(tilt * weight * np.maximum(last, 1 - first), MAX_STAKE)
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
