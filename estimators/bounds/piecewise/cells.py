"""Cells of the variance, each with a tilt and a remainder: docs/proofs/bets.md."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from estimators.bounds.normal import log_wealth_remainder
from estimators.bounds.piecewise.bets import SymbolBets, solve_lower_limits
from estimators.bounds.piecewise.knot_gains import log_fourier_remainder
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats

CELL_VARIANCE_RATIO = 1.15  # between neighbouring cells
MEAN_BINS = 8  # of the mean: the third moment of Berry and Esseen is small near it
VARIANCE_PARTS = 32  # of the range of the users' own variance, if their means are free


def cell_edges(law: PiecewiseLaw) -> Floats:
    """Return the edges of the cells, from the least to the largest tau^2 or beyond."""
    log_range = math.log(law.worst_variance / law.least_variance)
    number = max(math.ceil(log_range / math.log(CELL_VARIANCE_RATIO)), 1)
    edges: Floats = law.least_variance * CELL_VARIANCE_RATIO ** np.arange(number + 1.0)
    return edges


def cells_meeting(edges: Floats, interval: tuple[float, float]) -> range:
    """Return the cells that an interval for tau^2 meets; its ends may be in any order."""
    end_cells = np.searchsorted(edges, sorted(interval), side="right") - 1
    first, last = np.clip(end_cells, 0, edges.size - 2).tolist()
    return range(first, last + 1)


def mean_bins_meeting(low: float, high: float) -> tuple[Floats, Floats]:
    """Return the ends of the bins of the mean that an interval meets, each of shape (bins,)."""
    edges = np.linspace(-1, 1, MEAN_BINS + 1)
    is_met = (edges[:-1] <= high) & (edges[1:] >= low)
    return edges[:-1][is_met], edges[1:][is_met]


class CellBet:
    """The tilt for all data whose tau^2 is in a cell; the failure probability is p.

    Parameters
    ----------
    law : PiecewiseLaw
    least_variance, largest_variance : float
        The ends of the cell.
    max_tilt, log_p : float
    """

    def __init__(
        self,
        law: PiecewiseLaw,
        least_variance: float,
        largest_variance: float,
        max_tilt: float,
        log_p: float,
    ) -> None:
        from scipy.special import erfcx

        self.law, self.log_p = law, log_p
        self.least_variance, self.largest_variance = least_variance, largest_variance
        cost = -log_p
        for _ in range(3):
            tilt = math.sqrt(max(2 * cost, 1.0) / math.sqrt(least_variance * largest_variance))
            self.tilt = min(tilt, max_tilt)
            cost = -log_p + math.log(float(erfcx(self.tilt * math.sqrt(2 * least_variance))))

    @functools.cached_property
    def log_fourier(self) -> float:
        """The ln R of Graham and Vaaler for all means; far slower than :meth:`log_berry_esseen`."""
        return min(0.0, log_fourier_remainder(self.law, self.tilt))

    def log_berry_esseen(self, low: Floats | float, high: Floats | float) -> Floats:
        """Return ln R by Berry and Esseen, shape (..., parts): for each part of the variance.

        The means of each level's users are in intervals with these ends, of shape (..., 1) or (...,
        levels); free means may be anywhere.
        """
        if self.law.free:  # the reports' variance is anything from that of the noise to tau^2
            variances, largest = self._parts[:-1], np.inf
            low, high = -1.0, 1.0
        else:
            variances, largest = np.array([self.least_variance]), self.largest_variance
        return log_berry_esseen_remainder(self.law, self.tilt, variances, largest, (low, high))

    # Theorem 6 of docs/proofs/bets.md
    def combine_remainders(self, log_berry_esseen_parts: Floats, fourier: float) -> Floats:
        """Return ln R of both: the largest one over the parts, less what free means save.

        The parts are from :meth:`log_berry_esseen`; `fourier` is :attr:`log_fourier`, or more.
        """
        log_parts = np.minimum(log_berry_esseen_parts, fourier)
        if self.law.free:
            concavity = 1 / (1 + self.tilt * float(self.law.coefficient.max())) ** 2
            spread_of_means = self.least_variance - self._parts[1:]
            log_parts = log_parts - self.tilt**2 * concavity * spread_of_means / 2
        log_largest: Floats = log_parts.max(axis=-1)
        return log_largest

    @functools.cached_property
    def _parts(self) -> Floats:
        noise_variance = min(self.law.least_variance, self.least_variance)
        return np.linspace(noise_variance, self.least_variance, VARIANCE_PARTS + 1)

    def log_remainder(self, low: Floats | float, high: Floats | float) -> Floats:
        """Return ln R for all means from `low` to `high`: as for :meth:`log_berry_esseen`."""
        return self.combine_remainders(self.log_berry_esseen(low, high), self.log_fourier)


class FourierRemainders(dict[float, float]):
    """The Fourier remainders of the cells of one law: those of one tilt are equal."""

    def remainder_of(self, cell: CellBet) -> float:
        """Return `cell.log_fourier`."""
        if cell.tilt not in self:
            self[cell.tilt] = cell.log_fourier
        return self[cell.tilt]


# Theorem 7 of docs/proofs/bets.md
def limits_in_all_cells(
    bets: SymbolBets, cells: Sequence[CellBet], mean_limits: tuple[float, float]
) -> tuple[float, float]:
    """Return lower limits of theta and of -theta that hold in all cells.

    Parameters
    ----------
    bets : SymbolBets
    cells : sequence of CellBet
    mean_limits : tuple of float
        Lower limits of both that hold besides: the result is not below them.
    """
    tilts = np.array([cell.tilt for cell in cells])
    gains = bets.gains_of_both_sides(tilts)
    bin_low, bin_high = mean_bins_meeting(mean_limits[0], -mean_limits[1])
    bin_ends = np.stack([bin_low, -bin_high[::-1]]), np.stack([bin_high, -bin_low[::-1]])
    if bets.law.free:
        bin_ends = np.full((2, 1), -1.0), np.full((2, 1), 1.0)
    log_parts = [cell.log_berry_esseen(*(end[..., None] for end in bin_ends)) for cell in cells]

    def limits(cell_rows: list[int], fourier: list[float]) -> Floats:
        """Return both limits in some cells, shape (2, cells)."""
        pairs = zip(cell_rows, fourier, strict=True)
        costs = [cells[i].combine_remainders(log_parts[i], x) - cells[i].log_p for i, x in pairs]
        cost = np.array([np.broadcast_to(x, bin_ends[0].shape) for x in costs]) + LOG_P_SAFETY
        surplus = gains[:, cell_rows, None] - cost.swapaxes(0, 1)
        tilt = np.broadcast_to(tilts[cell_rows][None, :, None], surplus.shape)
        bin_limits = solve_lower_limits(bets.law, tilt.reshape(-1, 1), surplus.reshape(-1, 1))
        return _advance_through_bins(bin_limits.reshape(surplus.shape), bin_ends[1], mean_limits)

    optimistic_limits = limits(list(range(len(cells))), [0.0] * len(cells))
    common_limits, remainders = np.ones(2), FourierRemainders()
    for row in np.argsort(optimistic_limits.sum(axis=0), kind="stable").tolist():
        # a cell whose optimistic limits are above another's cannot decide
        if (optimistic_limits[:, row] < common_limits).any():
            cell_limits = limits([row], [remainders.remainder_of(cells[row])])[:, 0]
            common_limits = np.minimum(common_limits, cell_limits)
    return float(common_limits[0]), float(common_limits[1])


def _advance_through_bins(
    bin_limits: Floats, ends: Floats, mean_limits: tuple[float, float]
) -> Floats:
    """Return how far all is rejected, bin by bin, shape (2, cells).

    `bin_limits`, shape (2, cells, bins), are the limits by the remainder of each bin; `ends`, shape
    (2, bins), the last theta of each bin.
    """
    limits = np.broadcast_to(np.array(mean_limits)[:, None], bin_limits.shape[:2]).copy()
    is_advancing = np.ones(limits.shape, dtype=np.bool_)
    for bin_number in range(ends.shape[1]):
        end = ends[:, bin_number, None]
        is_in_bin = is_advancing & (end > limits)
        limits = np.where(
            is_in_bin, np.maximum(limits, np.minimum(bin_limits[..., bin_number], end)), limits
        )
        is_advancing &= ~is_in_bin | (limits >= end)
    return limits


def log_berry_esseen_remainder(
    law: PiecewiseLaw,
    tilt: float,
    least_variance: Floats,
    largest_variance: float,
    mean_interval: tuple[Floats | float, Floats | float],
) -> Floats:
    """Return ln R for all data of these variances.

    Theorem 5 of docs/proofs/bets.md; shape (..., k).

    Parameters
    ----------
    law : PiecewiseLaw
    tilt : float
    least_variance : ndarray of float64, shape (k,)
        The least variance of S.
    largest_variance : float
        The largest variance of S, infinite if it is unknown.
    mean_interval : tuple of float, or of ndarray of float64, shape (..., 1) or (..., levels)
        The ends of intervals for the means of all users.
    """
    symbols, weight = law.symbols, law.counts * law.coefficient**2
    stake = tilt * law.coefficient
    report_variance = np.minimum(symbols.squares.max(axis=1), largest_variance / weight)
    growth_at_low, growth_at_high = 1 + stake * mean_interval[0], 1 + stake * mean_interval[1]
    highest_growth = (growth_at_high + stake**2 * report_variance / growth_at_low)[..., None]
    # 1 where there is no symbol, which only lowers `variance_factor`
    growth = 1 + stake[:, None] * symbols.values
    log_growth = np.log(growth)
    log_ratio = log_growth - np.log(highest_growth)
    is_near = np.abs(log_ratio) < 1e-4
    log_mean = np.where(
        is_near,
        np.maximum(growth, highest_growth),
        (growth - highest_growth) / np.where(is_near, 1.0, log_ratio),
    )
    variance_factor = (growth / log_mean**2 / growth_at_high[..., None]).min(axis=(-2, -1))
    gap_below = np.log(highest_growth[..., 0]) - log_growth.min(axis=1)
    gap_above = log_growth.max(axis=1) - np.log(growth_at_low)
    max_deviation = np.maximum(gap_above, gap_below).max(axis=-1)
    sd = np.sqrt(variance_factor[..., None] * least_variance) * tilt
    return log_wealth_remainder(sd, max_deviation[..., None])
