"""Cells of the variance, each with a tilt and a remainder: docs/proofs/bets.md."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from estimators.bounds.normal import log_wealth_remainder
from estimators.bounds.piecewise import knot_gains
from estimators.bounds.piecewise.bets import SymbolBets, solve_lower_limits
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Indices, Limits

CELL_VARIANCE_RATIO = 1.15  # between neighbouring cells
MEAN_BINS = 8  # of the mean: the third moment of Berry and Esseen is small near it
CELLS_GROWTH = 3  # of a window: of one cell first the integral is computed, then of 3, 9, ...
VARIANCE_PARTS = 32  # of the range of the users' own variance, if their means are free
_BIN_EDGES = np.linspace(-1, 1, MEAN_BINS + 1)


def mean_bins_meeting(low: float, high: float) -> tuple[Floats, Floats]:
    """Return the ends of the bins of the mean that an interval meets, each of shape (bins,)."""
    is_met = (_BIN_EDGES[:-1] <= high) & (_BIN_EDGES[1:] >= low)
    return _BIN_EDGES[:-1][is_met], _BIN_EDGES[1:][is_met]


@dataclasses.dataclass(frozen=True)
class CellBets:
    """The tilts for all data whose tau^2 is in one of some cells; the failure probability is p.

    Parameters
    ----------
    law : PiecewiseLaw
        In rows, one for each cell.
    least_variance, largest_variance : ndarray of float64, shape (cells,)
        The ends of the cells.
    max_tilt : ndarray of float64, shape (cells,)
    log_p : float
    window : ndarray of intp, shape (cells,)
        The window of each cell.
    """

    law: PiecewiseLaw
    least_variance: Floats
    largest_variance: Floats
    max_tilt: Floats
    log_p: float
    window: Indices

    @classmethod
    def meeting(
        cls, law: PiecewiseLaw, interval: Limits, max_tilt: Floats, log_p: float
    ) -> CellBets:
        """Return the cells that intervals for tau^2 meet; their ends may be in any order.

        Parameters
        ----------
        law : PiecewiseLaw
            Of shape (windows, levels). The cells are from the least to the largest tau^2 or beyond.
        interval : tuple of ndarray of float64, shape (windows,)
        max_tilt : ndarray of float64, shape (windows,)
        log_p : float
        """
        log_range = np.log(law.worst_variances / law.least_variances)
        number = np.maximum(np.ceil(log_range / math.log(CELL_VARIANCE_RATIO)), 1).astype(np.intp)
        powers = CELL_VARIANCE_RATIO ** np.arange(number.max() + 1.0)
        edges = law.least_variances[:, None] * powers
        first, last = (
            np.clip((edges <= end[:, None]).sum(axis=1) - 1, 0, number - 1)
            for end in (np.minimum(*interval), np.maximum(*interval))
        )
        size = last - first + 1
        window = np.repeat(np.arange(size.size), size)
        cell = np.arange(window.size) - np.repeat(np.cumsum(size) - size - first, size)
        low, high = edges[window, cell], edges[window, cell + 1]
        return cls(law.rows(window), low, high, max_tilt[window], log_p, window)

    def rows(self, chosen: Indices) -> CellBets:
        """Return some of the cells."""
        names = ("least_variance", "largest_variance", "max_tilt", "window")
        changed = {name: getattr(self, name)[chosen] for name in names}
        return dataclasses.replace(self, law=self.law.rows(chosen), **changed)

    @functools.cached_property
    def tilt(self) -> Floats:
        """t, shape (cells,)."""
        from scipy.special import erfcx

        cost = np.full(self.window.shape, -self.log_p)
        middle = np.sqrt(self.least_variance * self.largest_variance)
        for _ in range(3):
            tilt = np.minimum(np.sqrt(np.maximum(2 * cost, 1.0) / middle), self.max_tilt)
            cost = -self.log_p + np.log(erfcx(tilt * np.sqrt(2 * self.least_variance)))
        tilts: Floats = tilt
        return tilts

    def log_berry_esseen(self, low: Floats, high: Floats) -> Floats:
        """Return ln R by Berry and Esseen, shape (cells, bins, parts): for parts of the variance.

        The means of each level's users are in intervals with these ends, of shape (bins, 1) or
        (bins, levels); free means may be anywhere.
        """
        if self.law.free:  # the reports' variance is anything from that of the noise to tau^2
            variances, largest = self._parts[:, :-1], np.full(self.window.shape, np.inf)
            low, high = np.full((1, 1), -1.0), np.full((1, 1), 1.0)
        else:
            variances, largest = self.least_variance[:, None], self.largest_variance
        return log_berry_esseen_remainder(self.law, self.tilt, variances, largest, (low, high))

    # Theorem 6 of docs/proofs/bets.md
    def combine_remainders(self, log_berry_esseen_parts: Floats, fourier: Floats) -> Floats:
        """Return ln R of both: the largest one over the parts, less what free means save.

        The parts are from :meth:`log_berry_esseen`, the result has the shape (cells, bins);
        `fourier`, shape (cells,), is a bound for all data.
        """
        log_parts = np.minimum(log_berry_esseen_parts, fourier[:, None, None])
        if self.law.free:
            concavity = 1 / (1 + self.tilt * self.law.coefficient.max(axis=-1)) ** 2
            spread_of_means = self.least_variance[:, None] - self._parts[:, 1:]
            log_parts -= ((self.tilt**2 * concavity)[:, None] * spread_of_means / 2)[:, None]
        log_largest: Floats = log_parts.max(axis=-1)
        return log_largest

    @functools.cached_property
    def _parts(self) -> Floats:
        noise_variance = np.minimum(self.law.least_variances, self.least_variance)
        return np.linspace(noise_variance, self.least_variance, VARIANCE_PARTS + 1, axis=-1)


class FourierRemainders:
    """Bounds of Graham and Vaaler on ln R for all means: at most 0, until they are computed.

    `log_remainders`, shape (cells,), has the present bounds, which are computed for all cells with
    the same law and tilt at once.
    """

    def __init__(self, cells: CellBets) -> None:
        self.cells, self.log_remainders = cells, np.zeros(cells.window.shape)
        self.is_refined = np.zeros(cells.window.shape, dtype=np.bool_)
        self.coarseness = knot_gains.coarseness_of(cells.law)
        law, tilt = cells.law, cells.tilt[:, None]
        rows = np.concatenate([law.counts, law.coefficient, tilt], axis=-1)
        _, self._first, self._game = np.unique(rows, axis=0, return_index=True, return_inverse=True)

    def refine(self, chosen: Indices) -> Indices:
        """Compute the bounds of some cells; return all whose bounds are new."""
        changed = self._compute(chosen, self.coarseness, knot_gains.LAST_NODE)
        self.is_refined[changed] = True
        return changed

    def estimate(self, chosen: Indices) -> Indices:
        """Compute larger bounds, with fewer nodes; return all cells whose bounds are new."""
        coarseness = np.full_like(self.coarseness, knot_gains.MAX_COARSENESS)
        return self._compute(chosen, coarseness, knot_gains.COARSE_LAST_NODE)

    def _compute(self, chosen: Indices, coarseness: Floats, last_node: float) -> Indices:
        games = np.unique(self._game[chosen])
        first = self._first[games]
        law, tilt = self.cells.law.rows(first), self.cells.tilt[first]
        remainders = knot_gains.log_fourier_remainders(law, tilt, coarseness[first], last_node)
        changed = np.flatnonzero(np.isin(self._game, games))
        self.log_remainders[changed] = remainders[np.searchsorted(games, self._game[changed])]
        return changed


# Theorem 7 of docs/proofs/bets.md
def limits_in_all_cells(bets: SymbolBets, cells: CellBets, mean_limits: Limits) -> Floats:
    """Return lower limits of theta and of -theta that hold in all cells, shape (2, windows).

    Parameters
    ----------
    bets : SymbolBets
        Of windows in rows.
    cells : CellBets
    mean_limits : tuple of ndarray of float64, shape (windows,)
        Lower limits of both that hold besides: the result is not below them.
    """
    window, mean_low = cells.window, np.stack(mean_limits)
    gains = bets.rows(window).gains_of_both_sides(cells.tilt[:, None])
    is_met = (_BIN_EDGES[:-1] <= -mean_low[1].min()) & (_BIN_EDGES[1:] >= mean_low[0].min())
    low, high = _BIN_EDGES[:-1][is_met], _BIN_EDGES[1:][is_met]
    ends = np.stack([low, -high[::-1]]), np.stack([high, -low[::-1]])
    if bets.law.free:
        ends = np.full((2, 1), -1.0), np.full((2, 1), 1.0)
    log_parts = [
        cells.log_berry_esseen(*(end[:, None] for end in pair)) for pair in zip(*ends, strict=True)
    ]

    def limits(chosen: Indices) -> Floats:
        """Return both limits in some cells with the present bounds, shape (2, cells)."""
        some, remainders = cells.rows(chosen), fourier.log_remainders[chosen]
        cost = [some.combine_remainders(x[chosen], remainders) - some.log_p for x in log_parts]
        surplus = gains[:, chosen] - np.stack(cost) - LOG_P_SAFETY
        laws = some.law.rows((slice(None), None))
        bin_limits = solve_lower_limits(laws, some.tilt[:, None, None], surplus[..., None])
        return _advance_through_bins(bin_limits, ends, mean_low[:, some.window])

    fourier, cell_limits = FourierRemainders(cells), np.empty((2, window.size))
    every = np.arange(window.size)
    cell_limits[:] = limits(every)
    common_limits = np.ones(mean_low.shape)
    turn = 0
    while True:
        # a cell whose limits are above another's cannot decide, though a better bound raised them
        is_open = ~fourier.is_refined & (cell_limits < common_limits[:, window]).any(axis=0)
        dear = every[is_open & (fourier.coarseness == 1)]
        if turn == 1 and dear.size:
            estimated = fourier.estimate(dear)
            cell_limits[:, estimated] = limits(estimated)
            is_open &= (cell_limits < common_limits[:, window]).any(axis=0)
        if not is_open.any():
            break
        order = np.lexsort((np.where(is_open, cell_limits.sum(axis=0), np.inf), window))
        rank = every - np.searchsorted(window, window)  # in `order`, among those of its window
        refined = fourier.refine(order[is_open[order] & (rank < CELLS_GROWTH**turn)])
        turn += 1
        cell_limits[:, refined] = limits(refined)
        for side, side_limits in zip(common_limits, cell_limits, strict=True):
            np.minimum.at(side, window[refined], side_limits[refined])
    return common_limits


def _advance_through_bins(bin_limits: Floats, ends: Limits, mean_limits: Floats) -> Floats:
    """Return how far all is rejected, bin by bin, shape (2, cells).

    `bin_limits`, shape (2, cells, bins), are the limits by the remainder of each bin; `ends`, each
    of shape (2, bins), the first and the last theta of each bin; `mean_limits`, shape (2, cells).
    """
    limits, is_advancing = mean_limits.copy(), np.ones(mean_limits.shape, dtype=np.bool_)
    for bin_number in range(ends[1].shape[1]):
        begin, end = (side[:, bin_number, None] for side in ends)
        is_in_bin = is_advancing & (end > limits) & (begin <= -mean_limits[::-1])
        limits = np.where(
            is_in_bin, np.maximum(limits, np.minimum(bin_limits[..., bin_number], end)), limits
        )
        is_advancing &= ~is_in_bin | (limits >= end)
    return limits


def log_berry_esseen_remainder(
    law: PiecewiseLaw,
    tilt: Floats,
    least_variance: Floats,
    largest_variance: Floats,
    mean_interval: tuple[Floats, Floats],
) -> Floats:
    """Return ln R for all data of these variances.

    Theorem 5 of docs/proofs/bets.md; shape (k, bins, parts).

    Parameters
    ----------
    law : PiecewiseLaw
        In k rows.
    tilt : ndarray of float64, shape (k,)
    least_variance : ndarray of float64, shape (k, parts)
        The least variance of S.
    largest_variance : ndarray of float64, shape (k,)
        The largest variance of S, infinite if it is unknown.
    mean_interval : tuple of ndarray of float64, shape (bins, 1) or (bins, levels)
        The ends of intervals for the means of all users.
    """
    symbols, weight = law.symbols, law.counts * law.coefficient**2
    stake = (tilt[:, None] * law.coefficient)[:, None]
    report_variance = np.minimum(symbols.squares.max(axis=1), largest_variance[:, None] / weight)
    growth_at_low, growth_at_high = 1 + stake * mean_interval[0], 1 + stake * mean_interval[1]
    highest_growth = growth_at_high + stake**2 * report_variance[:, None] / growth_at_low
    # p / L(p, q)^2 is least for the symbol whose ln p is farthest from ln q: the first or last one
    log_first, log_last = (np.log1p(sign * stake * symbols.largest) for sign in (-1, 1))
    log_highest, log_lowest = np.log(highest_growth), np.log(growth_at_low)
    farthest = np.maximum(log_highest - log_first, log_last - log_highest) / 2
    variance_factor = (farthest / np.sinh(farthest)) ** 2 / (highest_growth * growth_at_high)
    max_deviation = np.maximum(log_last - log_lowest, log_highest - log_first).max(axis=-1)
    sd = np.sqrt(variance_factor.min(axis=-1)[..., None] * least_variance[:, None])
    sd *= tilt[:, None, None]
    return log_wealth_remainder(sd, max_deviation[..., None])
