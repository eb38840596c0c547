"""Confidence bounds that hold for every number of reports; docs/proofs has the proofs."""

from estimators.bounds.hemispheres import Directions as Directions
from estimators.bounds.piecewise.law import PiecewiseLaw as PiecewiseLaw
from estimators.bounds.signs.law import Law as Law
from estimators.bounds.signs.limits import interval as interval
from estimators.bounds.signs.limits import limits as limits
from estimators.bounds.signs.noise import FlipNoise as FlipNoise
from estimators.bounds.signs.noise import LaplaceNoise as LaplaceNoise
from estimators.bounds.signs.repeated import RepeatedLaw as RepeatedLaw
