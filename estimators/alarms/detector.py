"""A Shiryaev-Roberts detector: evidence that a mean has moved from its baseline.

After Shin, Ramdas and Rinaldo, "E-detectors" (2022). docs/alarms.md has the proofs.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from typing import Literal

import numpy as np

from estimators.alarms.panes import PaneMean, baseline_shares
from estimators.bounds import Law
from estimators.comparison.arms import arm_of, has_law
from estimators.estimate import Counts, Floats
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.question import Question

Direction = Literal["any", "up", "down"]
SHIFTS: Floats = np.ldexp(1.0, -np.arange(11))
"""The shifts of theta that there is a bet on, in each direction."""
BASELINE_TILTS = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
"""Over the standard error of the baseline."""
CELL, GROWTH, EVEN_CELLS = 0.08, 1.35, 10
"""The width of the cells of theta next to the baseline, in its standard errors; so many on each
side are even, and the further ones grow by this factor."""
MARGIN = 1e-6
"""What an alarm needs beyond ln(1/alpha), so that the last bit of a logarithm decides nothing."""
_HEADER = struct.Struct("<4sIIIq")
_MAGIC = b"SR1\0"


@dataclasses.dataclass(frozen=True)
class Step:
    """What a pane has changed.

    Attributes
    ----------
    evidence : float
        ln M, the least over all baselines that are possible; -inf before the first evidence.
    needed : float
        From here on an alarm is raised.
    raised : bool
    direction : "up", "down" or None
        None unless it is raised.
    since : int or None
        How many panes ago the change began, this one included, as far as can be told: 1 for this
        pane alone. None unless it is raised.
    informative : bool
        Whether the pane had reports at every level that has a share: else it is no evidence.
    """

    evidence: float
    needed: float
    raised: bool
    direction: Literal["up", "down"] | None
    since: int | None
    informative: bool


class Detector:
    """Watches one number of a metric, pane by pane, against its baseline.

    Every pane j has e-values L(x, sign): bets that theta, on the scale of signs, has moved by x. M
    = (M + 1) L for each, and an alarm is raised when their mean reaches 1 / alpha. If the baseline
    is estimated, that is asked of every theta, times an e-value of the baseline against this theta,
    and the least counts. After an alarm every M is 0.

    With an estimated baseline each level keeps the share that it has in the baseline, and may have
    a mean of its own: no alarm is raised because the mix of levels moves. With a stated baseline
    all levels have that mean.

    Parameters
    ----------
    metric : LocalMetric
        One that :func:`check_watchable` accepts.
    alpha : float
        In the first T panes at most alpha T false alarms are expected.
    baseline : ndarray of int64, optional
        The sums of the baseline's panes.
    baseline_value : float, optional
        Instead: the value itself, in the metric's unit.
    direction : {"any", "up", "down"}
        Which moves raise an alarm.
    least : float
        A move of at most so much is none; in the metric's unit.
    category : int, optional
        Which of the named numbers; None for a metric with one.

    Attributes
    ----------
    shares : tuple of float
        The share of each level, if the baseline is estimated.
    precision : float or None
        The inverse variance of the last pane that was evidence, on the scale of signs.
    baseline_precision : float or None
        That of the baseline; None if it is stated.

    Raises
    ------
    ValueError
        If this cannot be watched, with the reason.
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
        if (baseline is None) == (baseline_value is None):
            raise ValueError("baseline, baseline_value: expected one of the two")
        if (category is None) == bool(metric.labels):
            raise ValueError(
                f"category = {category!r}: expected one for a metric with named numbers, none else"
            )
        self.metric, self.alpha, self._category = metric, alpha, category
        self.needed = math.log(1 / alpha) + MARGIN
        self._signs = {"any": (1, -1), "up": (1,), "down": (-1,)}[direction]
        middle, scale = metric.domain.unit
        if metric.kind == "frequency":  # on the scale of signs
            middle, scale = middle + scale / 2, scale / 2
        self._unit, self._least = (middle, scale), least / scale
        self.least = least
        self.precision: float | None = None
        self.baseline_precision: float | None = None
        self.shares: tuple[float, ...] = ()
        self._reports: int | None = None
        self._shares: Floats | None = None
        if baseline is None:
            assert baseline_value is not None  # noqa: S101
            low, high = metric.domain.ends
            if not low <= baseline_value <= high:
                raise ValueError(
                    f"baseline_value = {baseline_value!r}: expected a value from {low:g} to "
                    f"{high:g}, the range of metric {metric.name!r}"
                )
            self._known = (baseline_value - middle) / scale
            self._low = self._high = np.array([self._known])
            self._log_baseline = np.zeros(1)
        else:
            self._freeze(baseline)
        cells = self._low.size
        self._log_m = np.full((len(self._signs), cells, SHIFTS.size), -np.inf)
        self._since = np.zeros((len(self._signs), SHIFTS.size), dtype=np.int64)
        self._product = np.full((len(self._signs), SHIFTS.size), -np.inf)
        self._panes = 0

    def _freeze(self, baseline: Counts) -> None:
        """Take a statistic as the baseline: the shares of levels, cells of theta, e-values."""
        reports = int(self.metric.counts(baseline).sum())
        if not reports:
            raise ValueError("the baseline has no reports: expected some before the start")
        self._shares = baseline_shares(self.metric, baseline)
        self.shares = tuple(self._shares.tolist())
        pane = PaneMean.of(self.metric, baseline, self._shares, self._category)
        assert pane is not None  # noqa: S101
        self._known, self._reports = float(np.clip(pane.mean, -1, 1)), reports
        self.baseline_precision, error = pane.precision, pane.precision**-0.5
        edges = _edges(self._known, error)
        self._low, self._high = edges[:-1], edges[1:]
        tilt = BASELINE_TILTS / error
        logs = []
        for sign, edge in ((1, self._high), (-1, self._low)):
            theta, tilts = (x.ravel() for x in np.broadcast_arrays(edge[:, None], tilt[None, :]))
            logs.append(pane.log_e_value(theta, tilts, sign).reshape(edge.size, tilt.size))
        self._log_baseline = np.logaddexp.reduce(np.concatenate(logs, axis=1), axis=1)
        self._log_baseline -= math.log(2 * tilt.size)

    @property
    def bets(self) -> int:
        """How many bets share the evidence: shifts and directions."""
        return len(self._signs) * SHIFTS.size

    @property
    def scale(self) -> float:
        """The length of 1 on the scale of signs, in the metric's unit."""
        return self._unit[1]

    @property
    def baseline_estimate(self) -> tuple[float, int | None]:
        """The baseline in the metric's unit, and its reports; None if it was stated."""
        middle, scale = self._unit
        return middle + scale * self._known, self._reports

    def update(self, statistic: Counts) -> Step:
        """Take a pane.

        Parameters
        ----------
        statistic : ndarray of int64
            Its sums.
        """
        self._panes += 1
        pane = PaneMean.of(self.metric, statistic, self._shares, self._category)
        if pane is None:
            return self._step(informative=False)
        self.precision, tilt = pane.precision, SHIFTS * pane.precision
        for row, sign in enumerate(self._signs):
            edge = (self._high if sign > 0 else self._low) + sign * self._least
            theta, tilts = (x.ravel() for x in np.broadcast_arrays(edge[:, None], tilt[None, :]))
            gain = pane.log_e_value(theta, tilts, sign).reshape(edge.size, tilt.size)
            self._log_m[row] = gain + np.logaddexp(self._log_m[row], 0.0)
            at_known = np.full(tilt.size, self._known + sign * self._least)
            gain = pane.log_e_value(at_known, tilt, sign)
            anew = self._product[row] <= 0
            self._since[row] = np.where(anew, self._panes, self._since[row])
            self._product[row] = gain + np.where(anew, 0.0, self._product[row])
        return self._step(informative=True)

    def _step(self, *, informative: bool) -> Step:
        """Return where the evidence stands; begin anew if it suffices."""
        logs = np.logaddexp.reduce(self._log_m, axis=2)
        whole = np.logaddexp.reduce(logs, axis=0) - math.log(len(self._signs) * SHIFTS.size)
        whole = whole + self._log_baseline
        cell = int(whole.argmin())
        evidence = float(whole[cell])
        if evidence < self.needed:
            return Step(evidence, self.needed, False, None, None, informative)
        row = int(logs[:, cell].argmax())
        since = self._panes + 1 - int(self._since[row, self._product[row].argmax()])
        self._log_m[:] = -np.inf
        self._product[:] = -np.inf
        direction: Literal["up", "down"] = "up" if self._signs[row] > 0 else "down"
        return Step(evidence, self.needed, True, direction, since, informative)

    def state(self) -> bytes:
        """Return all that the panes have changed."""
        signs, cells, shifts = self._log_m.shape
        header = _HEADER.pack(_MAGIC, signs, cells, shifts, self._panes)
        parts = (self._log_m, self._product, self._since)
        return header + b"".join(np.ascontiguousarray(part).tobytes() for part in parts)

    def restore(self, state: bytes) -> None:
        """Go on from a state of a detector that was made in the same way.

        Parameters
        ----------
        state : bytes
            From :meth:`state`.

        Raises
        ------
        ValueError
            If it is none of such a detector.
        """
        arrays = (self._log_m, self._product, self._since)
        if len(state) != _HEADER.size + sum(each.nbytes for each in arrays):
            raise ValueError(f"a state of {len(state)} bytes: expected one of this detector")
        magic, *shape, panes = _HEADER.unpack_from(state)
        if magic != _MAGIC or tuple(shape) != self._log_m.shape or panes < 0:
            raise ValueError("a state of another detector: expected one of this detector")
        at = _HEADER.size
        for each in arrays:
            read = np.frombuffer(state, each.dtype, each.size, at).reshape(each.shape)
            each[...] = read
            at += each.nbytes
        self._panes = panes


def check_watchable(metric: Metric) -> None:
    """Refuse a metric that no detector can watch.

    Parameters
    ----------
    metric : Metric

    Raises
    ------
    ValueError
        With the reason.
    """
    if not isinstance(metric, LocalMetric) or metric.kind not in ("mean", "frequency"):
        raise ValueError(
            f"metric {metric.name!r} is a {metric.kind} with trust {metric.trust!r}: expected a "
            "mean or frequencies with local privacy"
        )
    if metric.memoized:
        raise ValueError(
            f"metric {metric.name!r} is memoized: expected one that is not, because its panes "
            "repeat each other's answers"
        )
    if not _has_cumulant(metric):
        raise ValueError(
            f"metric {metric.name!r} has the mechanism {metric.randomizer.name!r}: expected one "
            "with a law for each single number, such as randomized_response, laplace, grr, "
            "subset_selection, oue or rappor"
        )


def _has_cumulant(metric: LocalMetric) -> bool:
    """Return whether each number has a law of its own: seen by that of one report."""
    question = Question(asked=np.array([0]) if metric.labels else None)
    if not has_law(metric, question, ratio=False):
        return False
    statistic = metric.zero()
    metric.table(statistic)[0, 0] = 1
    return isinstance(arm_of(metric, statistic, question).law, Law)


def _edges(middle: float, error: float) -> Floats:
    """Return the edges of cells that cover [-1, 1], fine next to the middle.

    Parameters
    ----------
    middle : float
        In [-1, 1].
    error : float
        The standard error there.
    """
    steps = [CELL * error] * EVEN_CELLS
    while sum(steps) < 2:
        steps.append(GROWTH * steps[-1])
    away = np.cumsum(steps)
    edges = np.concatenate([middle - away[::-1], [middle], middle + away])
    inside: Floats = edges[(edges > -1) & (edges < 1)]
    return np.concatenate([[-1.0], inside, [1.0]])
