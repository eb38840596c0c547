"""The local mechanisms: each has a file or folder, with its randomizer and its estimator.

A new mechanism is a new file here and a line in `_BUILT_IN`. The conformance suite of the tests
covers every entry of this list. Other distributions add mechanisms as entry points of the group
:data:`MECHANISM_GROUP`: the mechanism's name, and the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from estimators.errors import nearest
from estimators.mechanisms.auto import AutoFrequency, AutoMean
from estimators.mechanisms.caps import Caps
from estimators.mechanisms.count_sketch import CountSketch
from estimators.mechanisms.dyadic_hadamard.mechanism import DyadicHadamard
from estimators.mechanisms.grr import Grr
from estimators.mechanisms.hadamard_response import HadamardResponse
from estimators.mechanisms.hemisphere import Hemisphere
from estimators.mechanisms.laplace import Laplace
from estimators.mechanisms.lifted_caps import LiftedCaps
from estimators.mechanisms.mechanism import Mechanism
from estimators.mechanisms.oue import Oue
from estimators.mechanisms.piecewise import Piecewise
from estimators.mechanisms.prefix_tree import PrefixTree
from estimators.mechanisms.projection import Projection
from estimators.mechanisms.projective_geometry_response import ProjectiveGeometryResponse
from estimators.mechanisms.projective_sketch import ProjectiveSketch
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.mechanisms.rappor import Rappor
from estimators.mechanisms.recursive_hadamard import RecursiveHadamard
from estimators.mechanisms.repetition import RepeatedFrequency, RepeatedMean
from estimators.mechanisms.repetition import Repetition as Repetition
from estimators.mechanisms.subset_selection import SubsetSelection
from estimators.plugin_registry import PluginRegistry

MECHANISM_GROUP = "dither.mechanisms"

_BUILT_IN: tuple[type[Mechanism], ...] = (
    RandomizedResponse,
    Piecewise,
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
    ProjectiveSketch,
    PrefixTree,
    Caps,
    LiftedCaps,
    Hemisphere,
    DyadicHadamard,
    AutoMean,
    AutoFrequency,
    RepeatedMean,
    RepeatedFrequency,
)


def _by_kind(*mechanisms: type[Mechanism]) -> dict[str, type[Mechanism]]:
    return {kind: mechanism for mechanism in mechanisms for kind in sorted(mechanism.kinds)}


def _accept(name: str, loaded: Any) -> Mapping[str, type[Mechanism]]:
    is_mechanism = isinstance(loaded, type) and issubclass(loaded, Mechanism)
    if (
        not is_mechanism
        or getattr(loaded, "name", None) != name
        or not getattr(loaded, "kinds", None)
    ):
        raise ValueError(f"a subclass of estimators.mechanisms.Mechanism with name {name!r}, kinds")
    if missing := sorted(loaded.__abstractmethods__):
        raise ValueError(f"a mechanism that has {', '.join(missing)}")
    return _by_kind(loaded)


MECHANISMS: PluginRegistry[Mapping[str, type[Mechanism]]] = PluginRegistry(
    MECHANISM_GROUP,
    {m.name: _by_kind(*(n for n in _BUILT_IN if n.name == m.name)) for m in _BUILT_IN},
    _accept,
)
"""The mechanisms by name, and then by the kind of metric that they serve."""


def mechanisms_for(kind: str) -> dict[str, type[Mechanism]]:
    """Return the mechanisms for a kind of metric, by name."""
    return {name: by_kind[kind] for name, by_kind in MECHANISMS.usable() if kind in by_kind}


def mechanism_class(name: str, kind: str) -> type[Mechanism]:
    """Return the mechanism with this name for a kind of metric; raise ValueError if there is none.

    >>> mechanism_class("auto", "mean").__name__, mechanism_class("auto", "frequency").__name__
    ('AutoMean', 'AutoFrequency')
    """
    if name not in MECHANISMS:
        raise ValueError(nearest(name, MECHANISMS))
    if kind not in MECHANISMS[name]:
        raise ValueError(f"a mechanism for kind {kind!r}: {', '.join(mechanisms_for(kind))}")
    return MECHANISMS[name][kind]
