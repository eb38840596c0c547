"""The local mechanisms, one file each: randomizer and estimator side by side.

A new mechanism is a new file here and a line in :data:`MECHANISMS`; it then has to pass the
conformance suite of the tests, which goes through this list.
"""

from __future__ import annotations

from estimators.mechanisms.auto import Auto
from estimators.mechanisms.count_sketch import CountSketch
from estimators.mechanisms.grr import Grr
from estimators.mechanisms.hadamard_response import HadamardResponse
from estimators.mechanisms.hemisphere import Hemisphere
from estimators.mechanisms.laplace import Laplace
from estimators.mechanisms.mechanism import Mechanism
from estimators.mechanisms.oue import Oue
from estimators.mechanisms.projection import Projection
from estimators.mechanisms.projective_geometry_response import ProjectiveGeometryResponse
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.mechanisms.rappor import Rappor
from estimators.mechanisms.recursive_hadamard import RecursiveHadamard
from estimators.mechanisms.repetition import Repetition
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
        RecursiveHadamard,
        Projection,
        CountSketch,
        Hemisphere,
        Auto,
        Repetition,
    )
}

__all__ = [
    "MECHANISMS",
    "Auto",
    "CountSketch",
    "Grr",
    "HadamardResponse",
    "Hemisphere",
    "Laplace",
    "Mechanism",
    "Oue",
    "Projection",
    "ProjectiveGeometryResponse",
    "RandomizedResponse",
    "Rappor",
    "RecursiveHadamard",
    "Repetition",
    "SubsetSelection",
]
