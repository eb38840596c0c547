"""A Shiryaev-Roberts detector: bets give evidence that a mean has moved from its baseline.

The source is Shin, Ramdas and Rinaldo, "E-detectors" (2022).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import struct
from typing import Literal

import numpy as np

from estimators.alarms import evidence
from estimators.alarms.evidence import EValues, PaneMean, baseline_shares
from estimators.comparison.arms import has_law
from estimators.estimate import Counts, Floats
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.question import Question
from estimators.shapes import Shape

Direction = Literal["any", "up", "down"]
FEWEST_SHIFTS = 11
"""The least number of bets in each direction, on the shifts 1, 1/2, 1/4, ... of theta; there are
more if the baseline's standard error is smaller than the last shift."""
BASELINE_TILTS = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
"""Tilts in units of the reciprocal standard error of the baseline."""
EVIDENCE_MARGIN = 1e-6
"""The evidence that an alarm needs beyond ln(1/alpha), so that rounding errors decide nothing."""
_STATE_HEADER, _STATE_MAGIC = struct.Struct("<4s8sIIqddd"), b"SR3\0"
POWER_Z = 1.2816
"""The 90% quantile of the normal law."""
BASELINE_BETS = 2 * BASELINE_TILTS.size


@dataclasses.dataclass(frozen=True)
class Step:
    """The evidence after a pane.

    Attributes
    ----------
    evidence : float
        The least ln M over all possible baselines; M is the detector's evidence. -inf if no pane
        since the start or the last alarm gave evidence.
    needed : float
        The evidence at which an alarm is raised.
    raised : bool
        Whether the pane raised an alarm.
    direction : "up", "down" or None
        The direction of the move; None unless an alarm is raised.
    since : int or None
        The estimated number of panes since the move, this pane included; None unless an alarm is
        raised.
    informative : bool
        Whether the pane had reports at every level with a share; otherwise it is not used as
        evidence.
    """

    evidence: float
    needed: float
    raised: bool
    direction: Literal["up", "down"] | None
    since: int | None
    informative: bool


class Detector:
    """Watches one number of a metric, pane by pane, against its baseline.

    Theorems 1 to 5 of docs/proofs/alarms.md. After an alarm the evidence restarts.

    Parameters
    ----------
    metric : LocalMetric
        One that :func:`check_watchable` accepts.
    alpha : float
        The rate of false alarms: at most alpha T are expected in the first T panes.
    baseline : ndarray of int64, optional
        The sums of the baseline's panes. Each level keeps the share that it has in them, and levels
        may have different means: an alarm is false if no level's mean has moved, whatever the mix
        of levels is.
    baseline_value : float, optional
        A stated value, in the metric's unit, instead of `baseline`. An alarm is false if the mean
        of every level differs from this value by at most `least`.
    direction : {"any", "up", "down"}
        Which moves raise an alarm.
    least : float
        The largest difference from the baseline that does not count as a move, in the metric's
        unit.
    category : int, optional
        The index of the watched number; None for a metric with a single number. For a distribution,
        the index of an edge between two bins: the share of the users below it is watched.

    Attributes
    ----------
    shares : tuple of float
        The share of each level; empty if the baseline is stated.
    shifts : ndarray of float64
        The shifts of theta on which the detector bets, in each direction; the first is 1.
    bets : int
        The number of bets: the number of shifts times the number of directions.
    scale : float
        The length of 1 on the scale of theta, in the metric's unit.
    tilts : ndarray of float64 or None
        The tilt of the last informative pane's sum, for each shift; None before that pane.
    precision : float or None
        On the scale of theta, the inverse variance of the last informative pane at the baseline's
        mean.
    gathered : float
        The sum of the precisions since the start or the last alarm.
    baseline_precision : float or None
        The precision of the baseline; None if the baseline is stated.

    Raises
    ------
    ValueError
        With the reason, if the metric or its baseline cannot be watched.

    Examples
    --------
    >>> import numpy as np
    >>> from estimators import SeededBits, define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[2])
    >>> def pane(late, seed):
    ...     level, statistic = np.zeros(4000, dtype=np.uint8), metric.zero()
    ...     reports = metric.randomize(np.arange(4000) < 4000 * late, level, SeededBits(seed))
    ...     metric.accumulate(statistic, level, reports)
    ...     return statistic
    >>> detector = Detector(metric, 1e-3, baseline=pane(0.3, 1))
    >>> [detector.update(pane(late, 2)).raised for late in (0.3, 0.3, 0.4)]
    [False, False, True]
    """

    def __init__(
        self,
        metric: LocalMetric,
        alpha: float,
        *,
        baseline: Counts | None = None,
        baseline_value: float | None = None,
        direction: Direction = "any",
        least: float = 0.0,
        category: int | None = None,
    ) -> None:
        check_watchable(metric)
        if not 0 < alpha < 1:
            raise ValueError(f"alpha = {alpha!r}: expected a rate between 0 and 1 a pane")
        if not 0 <= least < math.inf:
            raise ValueError(f"least = {least!r}: expected a move of 0 or more")
        if (baseline is None) == (baseline_value is None):
            raise ValueError("baseline, baseline_value: expected one of the two")
        numbers = len(metric.labels)
        if metric.shape is Shape.DISTRIBUTION:
            numbers = metric.domain.parameters["bins"]
            if category == 0:
                raise ValueError("category = 0: expected an edge between two bins")
        if (category is None) == (numbers > 0) or not 0 <= (category or 0) < max(numbers, 1):
            raise ValueError(
                f"category = {category!r}: expected one for a metric with named numbers, none else"
            )
        self.metric, self.alpha, self._category = metric, alpha, category
        self.needed = math.log(1 / alpha) + EVIDENCE_MARGIN
        self._signs = {"any": (1, -1), "up": (1,), "down": (-1,)}[direction]
        middle, scale = metric.domain.unit
        if metric.kind != "mean":  # theta = 2 f - 1
            middle, scale = middle + scale / 2, scale / 2
        self._middle, self.scale, self.least = middle, scale, least
        self.precision: float | None = None
        self.gathered = 0.0
        self.tilts: Floats | None = None
        self.shifts = np.ldexp(1.0, -np.arange(FEWEST_SHIFTS))
        self.baseline_precision: float | None = None
        self.shares: tuple[float, ...] = ()
        self._reports: int | None = None
        self._shares: Floats | None = None
        if baseline is None:
            assert baseline_value is not None  # noqa: S101
            self._set_stated_baseline(baseline_value)
        else:
            self._set_estimated_baseline(baseline)
        meaning = (metric.revision, alpha, baseline_value, direction, float(least), category)
        fingerprint = repr(meaning).encode() + (b"" if baseline is None else baseline.tobytes())
        self._mark = hashlib.blake2b(fingerprint, digest_size=8).digest()
        bets = (len(self._signs), self._points.size, self.shifts.size)
        self._bets = EValues(np.full(bets, -np.inf), np.zeros(bets))
        self._run = np.full((len(self._signs), self.shifts.size), -np.inf)
        self._change_start = np.zeros(self._run.shape, dtype=np.int64)
        self._panes, self.bets = 0, self._run.size

    def _set_stated_baseline(self, value: float) -> None:
        low, high = self.metric.domain.ends
        if not low <= value <= high:
            raise ValueError(
                f"baseline_value = {value!r}: expected a value from {low:g} to {high:g}, the range "
                f"of metric {self.metric.name!r}"
            )
        theta = (value - self._middle) / self.scale
        self._baseline_mean, self._centre = float(np.clip(theta, -1, 1)), 0
        self._points, self._baseline = np.array([self._baseline_mean]), (np.zeros(1), np.zeros(1))

    def _set_estimated_baseline(self, baseline: Counts) -> None:
        """Compute the levels' shares, and e-values against each theta, from the baseline's sums.

        Raises ValueError if the baseline has no reports.
        """
        reports = int(self.metric.counts(baseline).sum())
        if not reports:
            raise ValueError("the baseline has no reports: expected some before the start")
        self._shares = baseline_shares(self.metric, baseline)
        self.shares = tuple(self._shares.tolist())
        pooled = PaneMean.of(self.metric, baseline, self._shares, self._category)
        assert pooled is not None  # noqa: S101
        self._baseline_mean, self._reports = float(np.clip(pooled.mean, -1, 1)), reports
        self.baseline_precision = 1 / pooled.variance(self._baseline_mean)
        error = self.baseline_precision**-0.5
        useful = max(FEWEST_SHIFTS, 1 + math.ceil(-math.log2(error)))
        self.shifts = np.ldexp(1.0, -np.arange(useful))
        self._points = evidence.points_around(self._baseline_mean, error)
        self._centre = int(np.searchsorted(self._points, self._baseline_mean))
        tilts = BASELINE_TILTS * math.sqrt(pooled.precision)
        sides = [pooled.e_values(self._points, tilts, sign) for sign in (1, -1)]
        log, slope = (np.concatenate(parts, axis=1) for parts in zip(*sides, strict=True))
        self._baseline = evidence.mixed(log, slope)

    @property
    def baseline_estimate(self) -> tuple[float, int | None]:
        """The baseline in the metric's unit, and its number of reports (None if it was stated)."""
        return self._middle + self.scale * self._baseline_mean, self._reports

    def update(self, statistic: Counts) -> Step:
        """Add the evidence of a pane with the sums `statistic`; return the evidence after it."""
        self._panes += 1
        pane = PaneMean.of(self.metric, statistic, self._shares, self._category)
        if pane is None:
            return self._step(informative=False)
        self.precision = 1 / pane.variance(self._baseline_mean)
        self.gathered += self.precision
        self.tilts, least_shift = self.shifts * pane.precision, self.least / self.scale
        begins = self.tilts * self.shifts >= 2 * self.alpha * self.needed
        for row, sign in enumerate(self._signs):
            pane_bets = pane.e_values(self._points, self.tilts, sign, least_shift)
            previous = EValues(self._bets.log[row], self._bets.slope[row])
            updated = evidence.update_bets(previous, pane_bets, begins)
            self._bets.log[row], self._bets.slope[row] = updated
            anew = self._run[row] <= 0
            self._change_start[row] = np.where(anew, self._panes, self._change_start[row])
            self._run[row] = pane_bets.log[self._centre] + np.where(anew, 0.0, self._run[row])
        return self._step(informative=True)

    def _step(self, *, informative: bool) -> Step:
        """Return the state of the evidence; reset it if it suffices for an alarm."""
        if np.isneginf(self._bets.log.max()):  # no evidence since the start, or an alarm
            return Step(-math.inf, self.needed, False, None, None, informative)
        log, slope = (x.swapaxes(0, 1).reshape(self._points.size, -1) for x in self._bets)
        total = np.add(evidence.mixed(log, slope), self._baseline)
        least, point = evidence.lowest(self._points, *total)
        if least < self.needed:
            return Step(least, self.needed, False, None, None, informative)
        row = int(np.logaddexp.reduce(self._bets.log[:, point], axis=1).argmax())
        panes_since = self._panes + 1 - int(self._change_start[row, self._run[row].argmax()])
        self._bets.log[:], self._bets.slope[:], self._run[:] = -np.inf, 0.0, -np.inf
        self.gathered = 0.0
        direction: Literal["up", "down"] = "up" if self._signs[row] > 0 else "down"
        return Step(least, self.needed, True, direction, panes_since, informative)

    def state(self) -> bytes:
        """Return the state that panes change, as bytes for :meth:`restore`."""
        _, points, shifts = self._bets.log.shape
        precision = math.nan if self.precision is None else self.precision
        max_tilt = math.nan if self.tilts is None else self.tilts[0]
        counted = self._panes, precision, max_tilt, self.gathered
        header = _STATE_HEADER.pack(_STATE_MAGIC, self._mark, points, shifts, *counted)
        return header + b"".join(part.tobytes() for part in self._arrays)

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return *self._bets, self._run, self._change_start

    def restore(self, state: bytes) -> None:
        """Continue from the :meth:`state` of a detector with the same arguments.

        Raises ValueError if the bytes are not the state of such a detector.
        """
        size = _STATE_HEADER.size + sum(array.nbytes for array in self._arrays)
        if len(state) != size:
            raise ValueError(
                f"a state of {len(state)} bytes: expected one of this detector, {size} bytes"
            )
        magic, mark, *shape, panes, precision, max_tilt, gathered = _STATE_HEADER.unpack_from(state)
        if (magic, mark, *shape) != (_STATE_MAGIC, self._mark, *self._bets.log.shape[1:]):
            raise ValueError("a state of another detector: expected one of this detector")
        at = _STATE_HEADER.size
        for array in self._arrays:
            array[...] = np.frombuffer(state, array.dtype, array.size, at).reshape(array.shape)
            at += array.nbytes
        self._panes, self.gathered = panes, gathered
        is_new = math.isnan(precision)
        self.precision = None if is_new else precision
        self.tilts = None if is_new else self.shifts * max_tilt


def smallest_shift(detector: Detector, panes: int | None = None) -> float | None:
    """Return the least move that `panes` panes detect with a probability of about 90%.

    Parameters
    ----------
    detector : Detector
        The detector, which has seen the panes so far.
    panes : int, optional
        How many panes like the last informative pane follow the move. By default, the panes since
        the last alarm or the start; at least one.

    Returns
    -------
    float or None
        The least move, in the metric's unit; None before the first informative pane, or if it
        exceeds the width of the range.

    Notes
    -----
    The result is computed for normal laws. Let P be the precision of the panes, or of their
    difference from the baseline. At a move of delta, a bet on the shift x gains P (x delta - x^2
    / 2) on average, with the standard deviation x sqrt(P). In simulations, 84% to 99% of such moves
    were detected.
    """
    if detector.precision is None or detector.tilts is None or (panes is not None and panes < 1):
        return None
    cost, precision = detector.needed + math.log(detector.bets), (panes or 1) * detector.precision
    if panes is None:
        precision = max(precision, detector.gathered)
    if detector.baseline_precision is not None:
        precision = 1 / (1 / precision + 1 / detector.baseline_precision)
        cost += math.log(BASELINE_BETS)
    shifts = detector.tilts / detector.precision
    reached = shifts / 2 + cost / (precision * shifts) + POWER_Z / math.sqrt(precision)
    low, high = detector.metric.domain.ends
    shift = detector.scale * float(reached.min()) + detector.least
    return shift if shift <= high - low else None


def check_watchable(metric: Metric) -> None:
    """Raise ValueError, with the reason, if no detector can watch a metric."""
    watched = ("mean", "frequency", "distribution")
    if not isinstance(metric, LocalMetric) or metric.kind not in watched:
        raise ValueError(
            f"metric {metric.name!r} is a {metric.kind} with trust {metric.trust!r}: expected a "
            "mean, frequencies or a distribution, with local privacy"
        )
    if metric.memoized:
        raise ValueError(
            f"metric {metric.name!r} is memoized: expected one that is not, because its panes "
            "repeat each other's answers"
        )
    if metric.shape is Shape.DISTRIBUTION:
        return
    question = Question(asked=np.array([0]) if metric.labels else None)
    if not has_law(metric, question, ratio=False):
        raise ValueError(
            f"metric {metric.name!r} has the mechanism {metric.randomizer.name!r}: expected one "
            "whose numbers have no bias that moves with other values, as collisions of hashes "
            "(count_sketch, projective_sketch, prefix_tree) and random signs (projection with "
            "rows) have"
        )
