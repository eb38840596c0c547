"""The device side: randomize reports, batch them, and send them to Kafka.

Names are imported on first use, so that each part of this package loads only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producers.device.reporter import Reporter
    from producers.device.rounds import Round, Rounds
    from producers.kafka.connection import Connection
    from producers.kafka.kafka_errors import DeliveryError
    from producers.ledger.accounts import BudgetSpent
    from producers.ledger.ledger import Ledger, LedgerError
    from producers.ledger.pane_participation import AlreadyAnswered
    from producers.ledger.pinned_definitions import DefinitionChanged

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
    "AlreadyAnswered": "producers.ledger.pane_participation",
    "BudgetSpent": "producers.ledger.accounts",
    "Connection": "producers.kafka.connection",
    "DefinitionChanged": "producers.ledger.pinned_definitions",
    "DeliveryError": "producers.kafka.kafka_errors",
    "Ledger": "producers.ledger.ledger",
    "LedgerError": "producers.ledger.ledger",
    "Reporter": "producers.device.reporter",
    "Round": "producers.device.rounds",
    "Rounds": "producers.device.rounds",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'producers' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
