"""Trusted collection: devices send true values, and only noisy releases of their sums leave.

`weights` says how much a report of each level counts, `release` draws the noise, `bounds` says what
is known of the truth then, `collection` holds the sums; `baselines` has other methods, to compare.
"""

from __future__ import annotations

from estimators.central.collection import TrueFrequency, TrueMean, TrueValues

COLLECTIONS: dict[str, type[TrueValues]] = {"mean": TrueMean, "frequency": TrueFrequency}
"""What takes the place of a mechanism, for each kind of metric that can be collected in trust."""

__all__ = ["COLLECTIONS", "TrueFrequency", "TrueMean", "TrueValues"]
