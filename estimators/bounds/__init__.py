"""Confidence bounds that hold, whatever the number of reports.

`law` says how reports add up, `repeated` how several of one user do, `tails` bounds the chance of a
large sum, `inversion` turns that chance into an interval for the mean, `deviations` bounds the
noise alone where the users' own values are the target, `projections` the bias of random signs,
`spheres` the mean of vectors. Of the Hadamard mechanisms, `difference_law` has the law,
`self_normalised` and `differences` the intervals; of a count sketch `collisions` and `own_signs`.
`anytime` has the mixture that holds at all times at once; `answer` chooses as a question asks.
"""

from estimators.bounds.answer import interval, limits
from estimators.bounds.deviations import (
    FlipNoise,
    LaplaceNoise,
    flip_noise_deviation,
    laplace_noise_deviation,
)
from estimators.bounds.laws.law import Law
from estimators.bounds.laws.repeated import RepeatedLaw
from estimators.bounds.spheres import Directions

__all__ = [
    "Directions",
    "FlipNoise",
    "LaplaceNoise",
    "Law",
    "RepeatedLaw",
    "flip_noise_deviation",
    "interval",
    "laplace_noise_deviation",
    "limits",
]
