"""Confidence bounds that hold for every number of reports.

`laws` has the laws of sums of reports. `tails` bounds the probability of a large sum, and
`inversion` turns it into an interval for the mean. `fourier` has the remainder that sharpens
Chernoff's bound for any independent terms. `deviations` bounds the noise alone, for the users' own
values; `projections` bounds the bias of random signs, and `spheres` the mean of vectors.
`self_normalised` and `differences` have the intervals of the Hadamard mechanisms; `collisions` and
`own_signs` those of a count sketch. `anytime` has the mixture that holds at all times at once.
`intervals` chooses the interval for a question.
"""

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
