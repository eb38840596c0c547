"""The local mechanisms, one file each: randomizer and estimator side by side.

A new mechanism is a new file here and a line in :data:`MECHANISMS`; it then has to pass the
conformance suite of the tests, which goes through this list.
"""

from __future__ import annotations

from estimators.mechanisms.count_sketch import CountSketch
from estimators.mechanisms.grr import Grr
from estimators.mechanisms.hadamard_response import HadamardResponse
from estimators.mechanisms.hemisphere import Hemisphere
from estimators.mechanisms.laplace import Laplace
from estimators.mechanisms.mechanism import Mechanism
from estimators.mechanisms.oue import Oue
from estimators.mechanisms.projective_geometry_response import ProjectiveGeometryResponse
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.mechanisms.rappor import Rappor
from estimators.mechanisms.subset_selection import SubsetSelection

MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        RandomizedResponse,
        Laplace,
        Rappor,
        Grr,
        Oue,
        SubsetSelection,
        HadamardResponse,
        ProjectiveGeometryResponse,
        CountSketch,
        Hemisphere,
    )
}

__all__ = [
    "MECHANISMS",
    "CountSketch",
    "Grr",
    "HadamardResponse",
    "Hemisphere",
    "Laplace",
    "Mechanism",
    "Oue",
    "ProjectiveGeometryResponse",
    "RandomizedResponse",
    "Rappor",
    "SubsetSelection",
]
