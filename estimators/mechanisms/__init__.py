"""The local mechanisms, one file each: randomizer and estimator side by side.

A new mechanism is a new file here and a line in :data:`MECHANISMS`; it then has to pass the
conformance suite of the tests, which goes through this list.
"""

from __future__ import annotations

from estimators.mechanisms.hemisphere import Hemisphere
from estimators.mechanisms.laplace import Laplace
from estimators.mechanisms.mechanism import Mechanism
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.mechanisms.rappor import Rappor

MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism for mechanism in (RandomizedResponse, Laplace, Rappor, Hemisphere)
}

__all__ = ["MECHANISMS", "Hemisphere", "Laplace", "Mechanism", "RandomizedResponse", "Rappor"]
