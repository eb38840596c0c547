"""The law of how far a report among ranked candidates points in the value's direction."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from estimators.estimate import Floats

MAX_STANDARD_SCORE = 20.0
"""The largest score that is integrated over, in standard deviations; the rest is below 10^-80."""
QUADRATURE_PANELS, POINTS_PER_PANEL = 40, 6  # for the rule of Gauss and Legendre
RANK_DEVIATIONS = 8.0
"""Panels are narrower where the number of better candidates is within this many standard deviations
of W."""


# Theorem 1 of docs/proofs/ranked-directions.md
@dataclasses.dataclass(frozen=True)
class Candidates:
    """The scores of k / 2 uniform directions and their opposites, of which the best W are inside.

    `dimension`: d, at least 1; `candidates`: k, even, at least 2; `inside`: W, 1 to k / 2.
    """

    dimension: int
    candidates: int
    inside: int

    @functools.cached_property
    def rule(self) -> tuple[Floats, Floats, Floats]:
        """Nodes z in (0, 1], their weights in the law of abs(Z), and P(abs(Z) > z) at each node."""
        if self.dimension == 1:
            return np.ones(1), np.ones(1), np.zeros(1)
        pairs, inside_pairs = self.candidates // 2, float(self.inside)
        coarse, share_beyond = _coarse_shares(self.dimension)
        spread = RANK_DEVIATIONS * math.sqrt(inside_pairs) + RANK_DEVIATIONS
        ends = np.clip(
            [(inside_pairs + spread) / pairs, (inside_pairs - spread) / pairs], 1e-12, 1.0
        )
        low, high = np.interp(ends, share_beyond[::-1], coarse[::-1])
        fine = np.linspace(low, high, QUADRATURE_PANELS + 1)
        edges = np.unique(np.append(coarse, fine), return_index=True)[0]  # without numpy.ma
        z, weight, tail, _ = _integrate(self.dimension, edges)
        return z, weight, tail

    def chances_inside(self) -> Floats:
        """Return, for each node z, the probability that a candidate of score z is inside."""
        chances: Floats = _rank_probabilities(
            self.candidates // 2 - 1, self.inside, self.rule[2]
        ).sum(axis=0)
        return chances

    def best_scores(self) -> Floats:
        """Return the means of the sums of the best 1, 2, ..., W scores."""
        z, weight, tail = self.rule
        of_rank = _rank_probabilities(self.candidates // 2 - 1, self.inside, tail) @ (weight * z)
        return np.cumsum(of_rank) * (self.candidates / 2)


def _largest_angle(dimension: int) -> float:
    return min(math.pi / 2, MAX_STANDARD_SCORE / math.sqrt(max(dimension - 1, 1)))


@functools.lru_cache(maxsize=16)
def _coarse_shares(dimension: int) -> tuple[Floats, Floats]:
    """Return coarse edges phi, and P(abs(Z) > sin(phi)) at each."""
    edges = np.linspace(0.0, _largest_angle(dimension), QUADRATURE_PANELS + 1)
    return edges, _integrate(dimension, edges)[3]


@functools.cache
def _legendre() -> tuple[Floats, Floats, Floats]:
    """Return a panel's points, weights and matrix of integrals from its start to each point."""
    points, weights = np.polynomial.legendre.leggauss(POINTS_PER_PANEL)
    powers = np.arange(POINTS_PER_PANEL)
    # integrals from a panel's start to its points, of the polynomial through the values there
    primitive = (points[:, None] ** (powers + 1) - (-1.0) ** (powers + 1)) / (powers + 1)
    return points, weights, primitive @ np.linalg.inv(points[:, None] ** powers)


def _integrate(dimension: int, edges: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return nodes z, their weights, and P(abs(Z) > x) for x at each node and each edge's sine."""
    points, weights, partial = _legendre()
    half = np.diff(edges)[:, None] / 2
    phi = edges[:-1, None] + half * (1 + points)
    density = np.cos(phi) ** (dimension - 2)
    shares = density * half * weights
    share_after = np.append(np.cumsum(shares.sum(axis=1)[::-1])[::-1], 0.0)
    tail = share_after[:-1, None] - half * (density @ partial.T)
    total = share_after[0]
    z, tail = np.sin(phi).ravel(), np.clip(tail, 0.0, None).ravel() / total
    return z, shares.ravel() / total, tail, share_after / total


def _rank_probabilities(competitors: int, count: int, tail: Floats) -> Floats:
    """Return the probabilities that 0, 1, ... competitors are better, shape (count, nodes)."""
    rank = np.arange(min(count, competitors + 1))
    log_all = math.lgamma(competitors + 1)
    log_ways = np.array([log_all - math.lgamma(competitors - i + 1) for i in rank.tolist()])
    log_ways -= np.array([math.lgamma(i + 1) for i in rank.tolist()])
    with np.errstate(divide="ignore"):
        log_in, log_out = np.log(np.maximum(tail, 1e-300)), np.log1p(-np.minimum(tail, 1 - 1e-16))
    chances: Floats = np.exp(
        log_ways[:, None] + np.outer(rank, log_in) + np.outer(competitors - rank, log_out)
    )
    return chances
