"""Cells of the variance, each with a tilt and a remainder: docs/proofs/bets.md."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from estimators.bounds.normal import log_wealth_remainder
from estimators.bounds.piecewise.bets import SymbolBets, log_expected_wealth, solve_lower_limits
from estimators.bounds.piecewise.knot_gains import COARSE, FINE, Spacing, log_fourier_remainders
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Indices, Limits

CELL_VARIANCE_RATIO = 1.15  # ratio of the variances at both ends of a cell
FEW_BOUNDS = 2  # so few bounds are computed at once
LEAST_MISSES = 0.0625
"""With fewer expected reports outside their windows, times the noise's standard deviation up to 1,
Fourier integrals give R = 1, or hardly less: within windows, moduli stay near 1."""
MEAN_BINS = 8  # bins of the mean: bounds by Berry and Esseen are better for a narrow bin
VARIANCE_PARTS = 32  # parts of the range of the variance of the users' means, if these are free
_BIN_EDGES = np.linspace(-1, 1, MEAN_BINS + 1)


def mean_bins_meeting(low: float, high: float) -> tuple[Floats, Floats]:
    """Return the ends of the mean's bins that overlap [`low`, `high`], shapes (bins,)."""
    is_met = (_BIN_EDGES[:-1] <= high) & (_BIN_EDGES[1:] >= low)
    return _BIN_EDGES[:-1][is_met], _BIN_EDGES[1:][is_met]


@dataclasses.dataclass(frozen=True)
class CellBets:
    """Cells of tau^2, each with a tilt for all data whose tau^2 is in the cell.

    `law`: in rows, one law for each cell; `least_variance`, `largest_variance`, shape (cells,): the
    ends of the cells; `max_tilt`, shape (cells,): the largest tilt of each cell; `log_p`: ln p,
    where p is the failure probability of each side; `window`, shape (cells,): the window of each
    cell.
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
        """Return the cells that overlap intervals for tau^2, whose ends may be in any order.

        `law`: the laws of the windows, shape (windows, levels); cells go from the least to the
        largest tau^2 or beyond; `interval`, shape (windows,): the ends of an interval for tau^2 of
        each window; `max_tilt`, shape (windows,): the largest tilt of each window; `log_p`: ln p,
        where p is the failure probability of each side.
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

    @functools.cached_property
    def tilt(self) -> Floats:
        """The tilt t of each cell, shape (cells,)."""
        from scipy.special import erfcx

        cost = np.full(self.window.shape, -self.log_p)
        middle = np.sqrt(self.least_variance * self.largest_variance)
        for _ in range(3):
            tilt = np.minimum(np.sqrt(np.maximum(2 * cost, 1.0) / middle), self.max_tilt)
            cost = -self.log_p + np.log(erfcx(tilt * np.sqrt(2 * self.least_variance)))
        tilts: Floats = tilt
        return tilts

    def log_berry_esseen(self, low: Floats, high: Floats) -> Floats:
        """Return bounds on ln R by Berry and Esseen, for parts of the variance.

        The shape is (cells, bins, parts). `low`, `high`, shape (bins, 1) or (bins, levels): the
        ends of intervals for the means of each level's users; free means may be anywhere.
        """
        if self.law.free:  # the variance may be anything from that of the noise to tau^2
            variances, largest = self._parts[:, :-1], np.full(self.window.shape, np.inf)
            low, high = -np.ones((1, 1)), np.ones((1, 1))
        else:
            variances, largest = self.least_variance[:, None], self.largest_variance
        return log_berry_esseen_remainder(self.law, self.tilt, variances, largest, (low, high))

    # Theorem 6 of docs/proofs/bets.md
    def combine_remainders(
        self, chosen: Indices, log_berry_esseen_parts: Floats, fourier: FourierRemainders | Floats
    ) -> Floats:
        """Return the better of both bounds on ln R for some cells, shape (chosen, bins).

        The bound is the largest over the parts of the variance, minus what free means save in each
        part. `chosen`: the indices of the cells; `log_berry_esseen_parts`, shape (cells, bins,
        parts): from :meth:`log_berry_esseen`; `fourier`: the bounds of Graham and Vaaler for the
        cells.
        """
        log_parts = np.minimum(log_berry_esseen_parts[chosen], fourier[chosen][:, None, None])
        if self.law.free:
            concavity = 1 / (1 + self.tilt * self.law.coefficient.max(axis=-1)) ** 2
            spread_of_means = self.least_variance[:, None] - self._parts[:, 1:]
            saved = (self.tilt**2 * concavity)[:, None] * spread_of_means / 2
            log_parts -= saved[chosen, None]
        log_largest: Floats = log_parts.max(axis=-1)
        return log_largest

    @functools.cached_property
    def _parts(self) -> Floats:
        noise_variance = np.minimum(self.law.least_variances, self.least_variance)
        return np.linspace(noise_variance, self.least_variance, VARIANCE_PARTS + 1, axis=-1)


class FourierRemainders:
    """Bounds of Graham and Vaaler on ln R, for all means; 0 until they are computed.

    Cells with the same law and tilt share a bound, which is computed once. `number`: how many
    bounds there are; `predicted`, shape (cells,): ln R of a normal law of twice the noise's
    variance, below which they hardly go; or 0, if they hardly go below 0, or not below other bounds
    `log_others`, and are not computed.
    """

    def __init__(self, cells: CellBets, log_others: Floats | float = 0.0) -> None:
        from scipy.special import erfcx

        self._law, self._tilt = cells.law, cells.tilt
        rows = np.concatenate([cells.law.counts, cells.law.coefficient, self._tilt[:, None]], -1)
        first: dict[bytes, int] = {}
        self._first = np.array([first.setdefault(x.tobytes(), cell) for cell, x in enumerate(rows)])
        self.number = len(first)
        self._log_remainders = np.zeros(self._tilt.shape)  # of the first cell of each law and tilt
        noise_sd = self._tilt * np.sqrt(cells.law.least_variances)
        log_normal = np.log(erfcx(noise_sd) / 2)
        has_misses = cells.law.expected_misses * np.minimum(noise_sd, 1.0) >= LEAST_MISSES
        self.predicted: Floats = np.where(has_misses & (log_normal < log_others), log_normal, 0.0)

    def __getitem__(self, chosen: Indices) -> Floats:
        """Return the current bounds of some cells, shape (cells,)."""
        log_remainders: Floats = self._log_remainders[self._first[chosen]]
        return log_remainders

    def sharing(self, chosen: Indices) -> Indices:
        """Return all cells that share a bound with one of the `chosen` cells."""
        return np.flatnonzero(np.isin(self._first, self._first[chosen]))

    def refine(self, chosen: Indices, spacing: Spacing = FINE) -> None:
        """Compute bounds of `chosen` cells with nodes of a `spacing`; keep those that improve."""
        first = np.unique(self._first[chosen[self.predicted[chosen] < 0]])
        if not first.size:
            return
        law, tilt = self._law.rows(first), self._tilt[first]
        log_remainders = log_fourier_remainders(law, tilt, spacing)
        self._log_remainders[first] = np.minimum(self._log_remainders[first], log_remainders)


# Theorem 7 of docs/proofs/bets.md
def limits_in_all_cells(bets: SymbolBets, cells: CellBets, mean_limits: Limits) -> Floats:
    """Return lower limits of theta and of -theta that hold in all cells, shape (2, windows).

    `bets`: the bets of the windows, in rows; `cells`: all cells that may contain a window's tau^2;
    `mean_limits`, shape (windows,): lower limits of theta and of -theta that also hold: the result
    is not below them.
    """
    window, mean_low = cells.window, np.stack(mean_limits)
    gains = bets.gains_of_both_sides(cells.tilt[:, None], window)
    low, high = mean_bins_meeting(mean_low[0].min(), -mean_low[1].min())
    begin, end = np.stack([low, -high[::-1]]), np.stack([high, -low[::-1]])
    if bets.law.free:
        begin, end = np.full((2, 1), -1.0), np.full((2, 1), 1.0)
    log_parts, bins = cells.log_berry_esseen(begin.reshape(-1, 1), end.reshape(-1, 1)), end.shape[1]
    fourier = FourierRemainders(cells, log_parts.max(axis=(1, 2)))
    sides = log_parts.shape[1] // bins
    begin, end = begin[:, None], end[:, None]

    def surplus(chosen: Indices, log_fourier: FourierRemainders | Floats = fourier) -> Floats:
        """Return the largest K that is rejected, with the current bounds, (2, cells, bins)."""
        log_remainders = cells.combine_remainders(chosen, log_parts, log_fourier)
        cost = log_remainders.reshape(chosen.size, sides, bins).swapaxes(0, 1) - cells.log_p
        return gains[:, chosen] - cost - LOG_P_SAFETY

    def limits(chosen: Indices, log_fourier: FourierRemainders | Floats = fourier) -> Floats:
        """Return both limits in some cells, shape (2, cells).

        A limit is in the first bin, counted from the least mean, that is not entirely rejected.
        """
        laws, tilts = cells.law.rows((chosen, None)), cells.tilt[chosen, None, None]
        bin_limits = solve_lower_limits(laws, tilts, surplus(chosen, log_fourier)[..., None])
        least, most = (side[:, window[chosen], None] for side in (mean_low, -mean_low[::-1]))
        is_met = (end > least) & (begin <= most)
        is_last = is_met & (bin_limits < end)
        reached = np.where(is_last, np.maximum(bin_limits, begin), np.inf).min(axis=-1)
        reached = np.minimum(reached, np.where(is_met, end, -1.0).max(axis=-1))
        limits: Floats = np.maximum(reached, least[..., 0])
        return limits

    def may_decide(chosen: Indices) -> Indices:
        """Return the cells among `chosen` whose limits may be below the limits found so far.

        The first one of each window is the one that may be the farthest below.
        """
        so_far, least = (x[:, window[chosen], None] for x in (common_limits, mean_low))
        wealth = log_expected_wealth(
            cells.law.rows(chosen), cells.tilt[chosen, None], np.minimum(end, so_far)
        )
        is_met = (begin < so_far) & (end > least) & (so_far > least)
        depth = np.where(is_met, (wealth.value - surplus(chosen)) / wealth.slope, 0.0)
        depth = depth.max(axis=(0, 2))
        order = np.lexsort((-depth, window[chosen]))
        cells_below: Indices = chosen[order[depth[order] > 0]]
        return cells_below

    deciding = others = np.arange(window.size)
    if fourier.number > FEW_BOUNDS:  # those with the widest limits, on either side
        estimates = limits(others, fourier.predicted)
        orders = [np.lexsort((*sides, window)) for sides in (estimates, estimates[::-1])]
        deciding = np.unique([x[np.diff(window, prepend=-1) != 0] for x in orders])
    common_limits, is_refined = np.ones((2, len(bets.counts))), False
    while deciding.size:
        fourier.refine(deciding)
        deciding = fourier.sharing(deciding)
        for side, side_limits in zip(common_limits, limits(deciding), strict=True):
            np.minimum.at(side, window[deciding], side_limits)
        others = may_decide(np.setdiff1d(others, deciding))
        if others.size and not is_refined:  # larger bounds show that most of them cannot
            fourier.refine(others, COARSE)
            others, is_refined = may_decide(others), True
        deciding = others[np.diff(window[others], prepend=-1) != 0]
    return common_limits


def log_berry_esseen_remainder(
    law: PiecewiseLaw,
    tilt: Floats,
    least_variance: Floats,
    largest_variance: Floats,
    mean_interval: tuple[Floats, Floats],
) -> Floats:
    """Return an upper bound on ln R for all data with these variances, shape (k, bins, parts).

    Theorem 5 of docs/proofs/bets.md. `law`: k laws, in rows; `tilt`, shape (k,): the tilt of each
    law; `least_variance`, shape (k, parts): the least variance of S; `largest_variance`, shape
    (k,): the largest variance of S, infinite if it is unknown; `mean_interval`, shape (bins, 1) or
    (bins, levels): the ends of intervals for the means of all users.
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
