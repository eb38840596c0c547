"""Confidence bounds that hold, whatever the number of reports.

`law` says how reports add up, `tails` bounds the chance of a large sum, `inversion` turns that
chance into an interval for the mean, `deviations` bounds the noise alone where the users' own
values are the target, `spheres` the mean of vectors.
"""

from estimators.bounds.deviations import flip_noise_deviation, laplace_noise_deviation
from estimators.bounds.inversion import interval
from estimators.bounds.law import Law
from estimators.bounds.spheres import Directions

__all__ = ["Directions", "Law", "flip_noise_deviation", "interval", "laplace_noise_deviation"]
