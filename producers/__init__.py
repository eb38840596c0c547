"""The edge: reports randomized on the device, batched, and handed to Kafka.

Names are imported on first use, so that a part of this package costs only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producers.accounts import BudgetSpent
    from producers.connection import Connection
    from producers.delivery import DeliveryError
    from producers.ledger import Ledger, LedgerError
    from producers.once import AlreadyAnswered
    from producers.pins import DefinitionChanged
    from producers.reporter import Reporter
    from producers.rounds import Round, Rounds

__all__ = [
    "AlreadyAnswered",
    "BudgetSpent",
    "Connection",
    "DefinitionChanged",
    "DeliveryError",
    "Ledger",
    "LedgerError",
    "Reporter",
    "Round",
    "Rounds",
]

_HOMES = {
    "AlreadyAnswered": "producers.once",
    "BudgetSpent": "producers.accounts",
    "Connection": "producers.connection",
    "DefinitionChanged": "producers.pins",
    "DeliveryError": "producers.delivery",
    "Ledger": "producers.ledger",
    "LedgerError": "producers.ledger",
    "Reporter": "producers.reporter",
    "Round": "producers.rounds",
    "Rounds": "producers.rounds",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'producers' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
