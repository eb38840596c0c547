"""Trusted collection: devices send true values, and only noisy releases of their sums are shown.

`release_weights` has the weights of reports, `release` the noise, `bounds` the confidence bounds,
and `collection` the sums.
"""

from __future__ import annotations

from estimators.central.collection import TrueFrequency, TrueMean, TrueValues

COLLECTIONS: dict[str, type[TrueValues]] = {"mean": TrueMean, "frequency": TrueFrequency}
"""The collection that replaces a mechanism, for each kind that allows trusted collection."""

__all__ = ["COLLECTIONS", "TrueFrequency", "TrueMean", "TrueValues"]
