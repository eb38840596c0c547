"""An estimate of a distribution: F at the edges of bins, with a band, and quantiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from estimators.estimate import Estimate, Floats, Indices
from estimators.rounding import certainty, interval

EDGE_TOLERANCE, EDGE_ULPS = 1e-9, 4
"""A limit counts as an edge within this share of a bin, or this many units in the last place."""
MAX_PRINTED_QUANTILES = 8


def number_text(number: float) -> str:
    """Return a quantile or an edge as text, distinct for distinct numbers.

    >>> number_text(250.0), number_text(0.1 + 0.2)
    ('250', '0.30000000000000004')
    """
    short = f"{number:.12g}"
    return short if float(short) == number else repr(float(number))


def share_names(limits: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the shares below limits.

    >>> share_names([250.0])
    ('below 250',)
    """
    return tuple(f"below {number_text(limit)}" for limit in limits)


def edge_texts(edges: Floats) -> list[str]:
    """Return edges as texts of 12 digits, or more if needed to tell them apart.

    >>> edge_texts(np.array([1000 ** (1 / 3), 100])), edge_texts(np.array([1, 1 + 1e-15]))
    (['10', '100'], ['1', '1.000000000000001'])
    """
    short = [f"{edge:.12g}" for edge in edges.tolist()]
    return short if len(set(short)) == len(short) else [number_text(x) for x in edges.tolist()]


def edge_indices(edges: Floats, limits: Sequence[float]) -> Indices:
    """Return the indices of limits among ascending edges, up to rounding; -1 for no edge.

    >>> edge_indices(np.array([1, 1000 ** (1 / 3), 100, 1000]), [10, 11, np.nan])
    array([ 1, -1, -1])
    """
    numbers = np.asarray(limits, dtype=np.float64)
    upper_edge = np.clip(np.searchsorted(edges, numbers), 1, edges.size - 1)
    low, high = edges[upper_edge - 1], edges[upper_edge]
    nearest = np.where(numbers - low < high - numbers, upper_edge - 1, upper_edge)
    allowed = np.maximum(
        EDGE_TOLERANCE * (high - low), EDGE_ULPS * np.spacing(np.abs(edges[nearest]))
    )
    return np.where(np.abs(numbers - edges[nearest]) <= allowed, nearest, -1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileEstimates(Estimate):
    """Quantiles as named numbers, in the metric's unit: `labels` are their names."""

    def largest(self, size: int) -> Indices:
        """Return the first `size` indices, because quantiles keep their order."""
        return np.arange(max(0, min(size, len(self.labels))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributionEstimate(Estimate):
    """An estimate of the distribution of a bounded value.

    `value`, `lower` and `upper` are for F(t), the share of the users below an edge t, at all edges;
    the limits hold at all edges at once. `labels` name the quantiles.

    Attributes
    ----------
    edges : ndarray of float64, shape (B + 1,)
        The edges of the bins, in the metric's unit.
    monotone : ndarray of float64, shape (B + 1,)
        The displayed distribution function: ascending, and within the band.
    smooth : ndarray of float64, shape (B + 1,)
        A smoother and biased curve: closer to the truth if that is smooth, but wrong at spikes.
    quantiles : ndarray of float64, shape (k, 4)
        Rows of q, value, lower, upper. Bounds hold for all quantiles and the band together; if a
        single quantile is requested, its bounds hold separately from the band.
    crossed : bool
        Whether the limits crossed, so that no distribution fits the reports. For honest reports
        this happens with probability at most beta. The band is then the widest possible.
    """

    edges: Floats
    monotone: Floats
    smooth: Floats
    quantiles: Floats
    crossed: bool = False

    @classmethod
    def of(cls, estimate: Estimate, **fields: Any) -> DistributionEstimate:
        """Return the estimate of a distribution; `fields` are the attributes that it adds."""
        return cls(**_fields_of(estimate), **fields)

    def __str__(self) -> str:
        """Return, line by line, the number of reports, and the first quantiles with bounds."""
        lines = [f"{self.reports:,} reports, {certainty(self.beta)} {self.bound} bounds"]
        for quantile, *numbers in self.quantiles[:MAX_PRINTED_QUANTILES].tolist():
            value, lower, upper = interval(numbers)
            lines.append(f"{number_text(quantile)}: {value} in [{lower}, {upper}]")
        hidden = len(self.quantiles) - MAX_PRINTED_QUANTILES
        return "\n".join([*lines, *[f"and {hidden} more"] * (hidden > 0)])

    @property
    def cdf(self) -> Floats:
        """Unbiased estimates of F at the edges; they need not ascend."""
        return np.asarray(self.value)

    @property
    def cdf_lower(self) -> Floats:
        """The lower limit of F at the edges."""
        return np.asarray(self.lower)

    @property
    def cdf_upper(self) -> Floats:
        """The upper limit of F at the edges."""
        return np.asarray(self.upper)

    @property
    def shown(self) -> Floats:
        """F for display: ascending, from 0 to 1, and within its limits."""
        return self.monotone

    @property
    def histogram(self) -> Floats:
        """The share of each bin, shape (B,): the differences of `shown`."""
        return np.diff(self.monotone)

    def histogram_in(self, edges: Floats) -> Floats:
        """Return the share of the users between neighbours of `edges`: shape (len(edges) - 1,).

        `edges`: some of the edges of the bins, ascending.
        """
        return np.diff(self.monotone[np.searchsorted(self.edges, edges)])

    def below(self, value: float) -> tuple[float, float, float]:
        """Return the share of the users below a value, with limits.

        At an edge the limits are those of the band. Between two edges the share is interpolated,
        and the limits are the lower one of the edge below and the upper one of the edge above.

        Raises
        ------
        ValueError
            If the value is outside the range: devices clip to it, so nothing is known beyond.

        Examples
        --------
        >>> from estimators import define
        >>> metric = define(name="m", kind="distribution", range=(0, 4), bins=4, levels=[1])
        >>> metric.estimate(metric.zero()).below(2.5)
        (nan, 0.0, 1.0)
        """
        index = int(edge_indices(self.edges, [value])[0])
        if index in (0, self.edges.size - 1):
            return (float(index > 0),) * 3
        if index < 0 and not self.edges[0] < value < self.edges[-1]:
            low, high = (number_text(edge) for edge in self.edges[[0, -1]].tolist())
            raise ValueError(
                f"below = {number_text(value)}: expected a number from {low} to {high}, the range "
                "to which devices clip values"
            )
        first = int(np.searchsorted(self.edges, value)) - 1 if index < 0 else index
        last = first + (index < 0)
        share = float(np.interp(value, self.edges, self.monotone))
        return share, float(self.cdf_lower[first]), float(self.cdf_upper[last])

    def shares_below(self, limits: Sequence[float]) -> Estimate:
        """Return the unbiased shares of users below the edges `limits`, with the band's bounds."""
        indices = edge_indices(self.edges, limits)
        bounds = {"lower": self.cdf_lower[indices], "upper": self.cdf_upper[indices]}
        shares = bounds | {"value": self.cdf[indices], "labels": share_names(limits)}
        return Estimate(**_fields_of(self) | shares)

    @property
    def numbers(self) -> QuantileEstimates:
        """The quantiles as named numbers, as displays show them."""
        names = ("value", "lower", "upper")
        columns = dict(zip(names, self.quantiles[:, 1:].T.copy(), strict=True))
        return QuantileEstimates(**_fields_of(self) | columns)

    def largest(self, size: int) -> Indices:
        """Return the indices of all edges in their order, because F has no largest numbers."""
        return np.arange(self.edges.size)

    def top(self, size: int) -> DistributionEstimate:
        """Return the whole estimate, because F has no largest numbers."""
        return self

    def rescaled(self, offset: float, scale: float) -> DistributionEstimate:
        """Return the distribution of ``offset + scale * x`` for values x; `scale` is positive."""
        return self.moved(offset + scale * self.edges)

    def moved(self, edges: Floats) -> DistributionEstimate:
        """Return this distribution with new `edges`; quantiles are interpolated between them."""
        quantiles = self.quantiles.copy()
        quantiles[:, 1:] = np.interp(quantiles[:, 1:], self.edges, edges)
        return dataclasses.replace(self, edges=edges, quantiles=quantiles)

    def unknown(self, status: str) -> Self:
        """Return the estimate with this `status`, and NaN for all numbers but edges and q."""
        nothing = np.full(self.edges.shape, np.nan)
        quantiles = self.quantiles.copy()
        quantiles[:, 1:] = np.nan
        unknown = super().unknown(status)
        return dataclasses.replace(unknown, monotone=nothing, smooth=nothing, quantiles=quantiles)


def _fields_of(estimate: Estimate) -> dict[str, Any]:
    return {field.name: getattr(estimate, field.name) for field in dataclasses.fields(Estimate)}
