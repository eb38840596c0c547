"""The cells of the variance: each has a tilt, a remainder, and limits of its own."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from estimators.bounds.bets.knot_gains import log_fourier
from estimators.bounds.bets.symbol_bets import SymbolBets, lower_limits
from estimators.bounds.inversion import SAFETY
from estimators.bounds.laws.window_law import WindowLaw
from estimators.bounds.tails import BERRY_ESSEEN
from estimators.estimate import Floats

RATIO = 1.15  # between neighbouring cells
BINS = 8  # of the mean: the third moment of Berry and Esseen is small near it
PARTS = 32  # of the range of the users' own variance, if their means are free


def cell_edges(law: WindowLaw) -> Floats:
    """Return the edges of the cells, from the least to the largest tau^2 or beyond."""
    number = math.ceil(math.log(law.worst_variance / law.least_variance) / math.log(RATIO))
    edges: Floats = law.least_variance * RATIO ** np.arange(max(number, 1) + 1.0)
    return edges


def cells_of(edges: Floats, ends: tuple[float, float]) -> range:
    """Return the cells that an interval for tau^2 meets.

    Parameters
    ----------
    edges : ndarray of float64, shape (cells + 1,)
    ends : tuple of float
        In any order: where bounds contradict each other, what is between them.
    """
    within = np.searchsorted(edges, sorted(ends), side="right") - 1
    first, last = np.clip(within, 0, edges.size - 2).tolist()
    return range(first, last + 1)


def bins_between(low: float, high: float) -> tuple[Floats, Floats]:
    """Return the ends of the bins of the mean that an interval meets, each of shape (bins,).

    Parameters
    ----------
    low, high : float
    """
    edges = np.linspace(-1, 1, BINS + 1)
    met = (edges[:-1] <= high) & (edges[1:] >= low)
    return edges[:-1][met], edges[1:][met]


class Bet:
    """The tilt for all data whose tau^2 is in a cell.

    Parameters
    ----------
    law : WindowLaw
    least, largest : float
        The ends of the cell.
    steepest : float
        The largest tilt.
    log_p : float
        ln p, the failure probability.
    """

    def __init__(
        self, law: WindowLaw, least: float, largest: float, steepest: float, log_p: float
    ) -> None:
        from scipy.special import erfcx

        self.law, self.least, self.largest, self.log_p = law, least, largest, log_p
        cost = -log_p
        for _ in range(3):
            tilt = math.sqrt(max(2 * cost, 1.0) / math.sqrt(least * largest))
            self.tilt = min(tilt, steepest)
            cost = -log_p + math.log(float(erfcx(self.tilt * math.sqrt(2 * least))))

    @functools.cached_property
    def fourier(self) -> float:
        """By Graham and Vaaler: ln R for all means. It takes longer than all the rest."""
        return min(0.0, log_fourier(self.law, self.tilt))

    def log_own(self, low: Floats | float, high: Floats | float) -> Floats:
        """Return ln R by Berry and Esseen, shape (..., parts): for each part of the variance.

        Parameters
        ----------
        low, high : float or ndarray of float64, shape (..., 1) or (..., levels)
            Ends of intervals for the means of each level's users; free means may be anywhere.
        """
        law, least = self.law, np.array([self.least])
        if law.free:  # the variance of the reports may be anything from that of the noise to tau^2
            return log_berry_esseen(law, self.tilt, self._parts[:-1], np.inf, (-1.0, 1.0))
        return log_berry_esseen(law, self.tilt, least, self.largest, (low, high))

    def with_own(self, own: Floats, fourier: float) -> Floats:
        """Return ln R of both: the largest one over the parts, less what free means save.

        Parameters
        ----------
        own : ndarray of float64, shape (..., parts)
            From :meth:`log_own`.
        fourier : float
            `fourier`, or more.
        """
        found = np.minimum(own, fourier)
        if self.law.free:
            concave = 1 / (1 + self.tilt * float(self.law.coefficient.max())) ** 2
            found = found - self.tilt**2 * concave * (self.least - self._parts[1:]) / 2
        largest: Floats = found.max(axis=-1)
        return largest

    @functools.cached_property
    def _parts(self) -> Floats:
        return np.linspace(min(self.law.least_variance, self.least), self.least, PARTS + 1)

    def log_remainder(self, low: Floats | float, high: Floats | float) -> Floats:
        """Return ln R for all means from `low` to `high`: as for :meth:`log_own`."""
        return self.with_own(self.log_own(low, high), self.fourier)


class Fourier(dict[float, float]):
    """The Fourier remainders of the cells of one law: those of one tilt are equal."""

    def of(self, cell: Bet) -> float:
        """Return `cell.fourier`."""
        if cell.tilt not in self:
            self[cell.tilt] = cell.fourier
        return self[cell.tilt]


def narrowest_common(
    bets: SymbolBets, cells: Sequence[Bet], known: tuple[float, float]
) -> tuple[float, float]:
    """Return lower limits of theta and of -theta that hold in all cells.

    Parameters
    ----------
    bets : SymbolBets
    cells : sequence of Bet
    known : tuple of float
        Lower limits of both that hold besides: the result is not below them.

    Notes
    -----
    A cell in which Berry's and Esseen's remainder alone has limits above those of another cell
    cannot decide, so its Fourier integral is left out.
    """
    tilts = np.array([cell.tilt for cell in cells])
    gains = bets.gains_of_sides(tilts)
    low, high = bins_between(known[0], -known[1])
    sides = np.stack([low, -high[::-1]]), np.stack([high, -low[::-1]])
    if bets.law.free:
        sides = np.full((2, 1), -1.0), np.full((2, 1), 1.0)
    own = [cell.log_own(*(end[..., None] for end in sides)) for cell in cells]

    def limits(chosen: list[int], fourier: list[float]) -> Floats:
        """Return both limits in some cells, shape (2, cells)."""
        pairs = zip(chosen, fourier, strict=True)
        cost = [cells[i].with_own(own[i], x) - cells[i].log_p for i, x in pairs]
        needed = np.array([np.broadcast_to(x, sides[0].shape) for x in cost]) + SAFETY
        left = gains[:, chosen, None] - needed.swapaxes(0, 1)
        tilt = np.broadcast_to(tilts[chosen][None, :, None], left.shape)
        reached = lower_limits(bets.law, tilt.reshape(-1, 1), left.reshape(-1, 1))
        return _through(reached.reshape(left.shape), sides[1], known)

    above = limits(list(range(len(cells))), [0.0] * len(cells))
    found, fourier = np.ones(2), Fourier()
    for cell in np.argsort(above.sum(axis=0), kind="stable").tolist():
        if (above[:, cell] < found).any():
            found = np.minimum(found, limits([cell], [fourier.of(cells[cell])])[:, 0])
    return float(found[0]), float(found[1])


def _through(reached: Floats, ends: Floats, known: tuple[float, float]) -> Floats:
    """Return how far all is rejected, bin by bin.

    Parameters
    ----------
    reached : ndarray of float64, shape (2, cells, bins)
        The limit by the remainder of each bin.
    ends : ndarray of float64, shape (2, bins)
        The last theta of each bin.
    known : tuple of float
    """
    found = np.broadcast_to(np.array(known)[:, None], reached.shape[:2]).copy()
    going = np.ones(found.shape, dtype=np.bool_)
    for row in range(ends.shape[1]):
        end = ends[:, row, None]
        inside = going & (end > found)
        found = np.where(inside, np.maximum(found, np.minimum(reached[..., row], end)), found)
        going &= ~inside | (found >= end)
    return found


def log_berry_esseen(
    law: WindowLaw,
    tilt: float,
    least: Floats,
    largest: float,
    within: tuple[Floats | float, Floats | float],
) -> Floats:
    """Return ln R by the Berry-Esseen theorem, for all data of these variances: shape (..., k).

    Parameters
    ----------
    law : WindowLaw
    tilt : float
        t.
    least : ndarray of float64, shape (k,)
        The least variance of S.
    largest : float
        The largest variance of S, infinite if it is unknown.
    within : tuple of float, or of ndarray of float64, shape (..., 1) or (..., levels)
        The ends of intervals for the means of all users.
    """
    from scipy.special import erfcx

    symbols, weight = law.symbols, law.counts * law.coefficient**2
    stake = tilt * law.coefficient
    each = np.minimum(symbols.squares.max(axis=1), largest / weight)
    low, high = 1 + stake * within[0], 1 + stake * within[1]
    top = (high + stake**2 * each / low)[..., None]
    p = 1 + stake[:, None] * symbols.values  # 1 where there is no symbol, which only lowers `kept`
    gain = np.log(p)
    ratio = gain - np.log(top)
    close = np.abs(ratio) < 1e-4
    mean = np.where(close, np.maximum(p, top), (p - top) / np.where(close, 1.0, ratio))
    kept = (p / mean**2 / high[..., None]).min(axis=(-2, -1))
    beyond = np.log(top[..., 0]) - gain.min(axis=1)
    farthest = np.maximum(gain.max(axis=1) - np.log(low), beyond).max(axis=-1)
    sd = np.sqrt(kept[..., None] * least) * tilt
    remainder: Floats = erfcx(math.sqrt(2) * sd) + 2 * BERRY_ESSEEN * farthest[..., None] / sd
    return np.log(np.minimum(remainder, 1.0))
