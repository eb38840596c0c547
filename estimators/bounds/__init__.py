"""Confidence bounds that hold for every number of reports; docs/proofs has the proofs."""

from estimators.bounds.hemispheres import Directions
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.signs.law import Law
from estimators.bounds.signs.limits import interval, limits
from estimators.bounds.signs.noise import FlipNoise, LaplaceNoise
from estimators.bounds.signs.repeated import RepeatedLaw

__all__ = [
    "Directions",
    "FlipNoise",
    "LaplaceNoise",
    "Law",
    "PiecewiseLaw",
    "RepeatedLaw",
    "interval",
    "limits",
]
