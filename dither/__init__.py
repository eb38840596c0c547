"""All public names of Dither: ``from dither import Reporter, load_metrics``.

A name is imported from its package on first use, so that a device loads nothing of a server.

Examples
--------
>>> import dither
>>> late = dither.define(name="late", kind="mean", range=(0, 1), levels=[1, 2], pane="1m")
>>> isinstance(late, dither.LocalMetric)
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregator import Reader as Reader
    from aggregator.errors import DitherError as DitherError
    from aggregator.errors import StoreUnreachable as StoreUnreachable
    from estimators import *  # noqa: F403
    from producers import AlreadyAnswered as AlreadyAnswered
    from producers import AsyncHttpReporter as AsyncHttpReporter
    from producers import AsyncReporter as AsyncReporter
    from producers import BudgetSpent as BudgetSpent
    from producers import Connection as Connection
    from producers import DefinitionChanged as DefinitionChanged
    from producers import DeliveryError as DeliveryError
    from producers import DitherMetricExporter as DitherMetricExporter
    from producers import EachExport as EachExport
    from producers import Failure as Failure
    from producers import GatewayError as GatewayError
    from producers import Gathered as Gathered
    from producers import HttpConnection as HttpConnection
    from producers import HttpReporter as HttpReporter
    from producers import Ledger as Ledger
    from producers import LedgerError as LedgerError
    from producers import QueueError as QueueError
    from producers import Reporter as Reporter
    from producers import RollUp as RollUp
    from producers import Round as Round
    from producers import Rounds as Rounds

    __version__: str

_NAMES_BY_MODULE = {
    "aggregator": "Reader",
    "aggregator.errors": "DitherError StoreUnreachable",
    "estimators": """
        Comparison DefinitionError DenyRule Discovery DistributionEstimate Estimate
        LocalMetric Metric ReportError SearchMetric SeededBits TrustedMetric compare define
        load_metrics
    """,
    "producers": """
        AlreadyAnswered AsyncHttpReporter AsyncReporter BudgetSpent Connection
        DefinitionChanged DeliveryError DitherMetricExporter EachExport Failure GatewayError
        Gathered HttpConnection HttpReporter Ledger LedgerError QueueError Reporter RollUp
        Round Rounds
    """,
}
_HOME_MODULES = {
    name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()
}
"""The package from which each name is imported."""
__all__ = sorted(_HOME_MODULES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _import_name(name: str) -> Any:
    if name in _HOME_MODULES:
        return getattr(importlib.import_module(_HOME_MODULES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("dither")
    from difflib import get_close_matches

    close = " or ".join(map(repr, get_close_matches(name, __all__)))
    hint = f"did you mean {close}?" if close else "dither.__all__ lists the names"
    raise AttributeError(f"module 'dither' has no attribute {name!r}: {hint}")


if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = _import_name
