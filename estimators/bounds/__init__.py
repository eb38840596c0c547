"""Confidence bounds that hold for every number of reports; docs/proofs has the proofs."""

from estimators.bounds.deviations import FlipNoise, LaplaceNoise, flip_noise_deviation
from estimators.bounds.intervals import interval, limits
from estimators.bounds.laws.law import Law
from estimators.bounds.laws.repeated import RepeatedLaw
from estimators.bounds.laws.window_law import WindowLaw
from estimators.bounds.spheres import Directions

__all__ = [
    "Directions",
    "FlipNoise",
    "LaplaceNoise",
    "Law",
    "RepeatedLaw",
    "WindowLaw",
    "flip_noise_deviation",
    "interval",
    "limits",
]
