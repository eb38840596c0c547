"""The device side: randomize reports, batch them, and send them to Kafka.

Names are imported on first use, so that each part of this package loads only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producers.device.reporter import Reporter as Reporter
    from producers.device.rounds import Round as Round
    from producers.device.rounds import Rounds as Rounds
    from producers.kafka.connection import Connection as Connection
    from producers.kafka.kafka_errors import DeliveryError as DeliveryError
    from producers.ledger.accounts import BudgetSpent as BudgetSpent
    from producers.ledger.ledger import Ledger as Ledger
    from producers.ledger.ledger import LedgerError as LedgerError
    from producers.ledger.pane_participation import AlreadyAnswered as AlreadyAnswered
    from producers.ledger.pinned_definitions import DefinitionChanged as DefinitionChanged

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
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'producers' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
