"""Trusted collection: devices send true values, and only noisy releases of their sums are shown.

`weights` has the weights of reports, `release` draws the noise, `bounds` has the confidence bounds,
and `collection` keeps the sums.
"""

from __future__ import annotations

from estimators.central.collection import TrueFrequency, TrueMean, TrueValues

COLLECTIONS: dict[str, type[TrueValues]] = {"mean": TrueMean, "frequency": TrueFrequency}
"""What takes the place of a mechanism, for each kind of metric that can be collected in trust."""

__all__ = ["COLLECTIONS", "TrueFrequency", "TrueMean", "TrueValues"]
