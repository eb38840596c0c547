"""The device side: randomize reports, batch them, and send them to Kafka or a gateway.

Names are imported on first use, so that each part of this package loads only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producers.delivery.delivery_errors import DeliveryError as DeliveryError
    from producers.device.async_reporter import AsyncReporter as AsyncReporter
    from producers.device.reporter import Reporter as Reporter
    from producers.device.roll_up import RollUp as RollUp
    from producers.device.round_follower import Rounds as Rounds
    from producers.device.rounds import Round as Round
    from producers.http.async_http_reporter import AsyncHttpReporter as AsyncHttpReporter
    from producers.http.gateway_client import GatewayError as GatewayError
    from producers.http.http_connection import HttpConnection as HttpConnection
    from producers.http.http_reporter import HttpReporter as HttpReporter
    from producers.http.posting_thread import Failure as Failure
    from producers.http.queue_file import QueueError as QueueError
    from producers.kafka.connection import Connection as Connection
    from producers.ledger.accounts import BudgetSpent as BudgetSpent
    from producers.ledger.ledger import Ledger as Ledger
    from producers.ledger.ledger import LedgerError as LedgerError
    from producers.ledger.past_answers import AlreadyAnswered as AlreadyAnswered
    from producers.ledger.past_answers import DefinitionChanged as DefinitionChanged
    from producers.otel.exporter import DitherMetricExporter as DitherMetricExporter
    from producers.otel.mapping import EachExport as EachExport
    from producers.otel.mapping import Gathered as Gathered

_HOME_MODULES = {
    "AsyncHttpReporter": "producers.http.async_http_reporter",
    "AsyncReporter": "producers.device.async_reporter",
    "AlreadyAnswered": "producers.ledger.past_answers",
    "BudgetSpent": "producers.ledger.accounts",
    "Connection": "producers.kafka.connection",
    "DefinitionChanged": "producers.ledger.past_answers",
    "DeliveryError": "producers.delivery.delivery_errors",
    "DitherMetricExporter": "producers.otel.exporter",
    "EachExport": "producers.otel.mapping",
    "Failure": "producers.http.posting_thread",
    "Gathered": "producers.otel.mapping",
    "GatewayError": "producers.http.gateway_client",
    "HttpConnection": "producers.http.http_connection",
    "HttpReporter": "producers.http.http_reporter",
    "Ledger": "producers.ledger.ledger",
    "LedgerError": "producers.ledger.ledger",
    "QueueError": "producers.http.queue_file",
    "Reporter": "producers.device.reporter",
    "RollUp": "producers.device.roll_up",
    "Round": "producers.device.rounds",
    "Rounds": "producers.device.round_follower",
}
__all__ = [name for name, home in _HOME_MODULES.items() if not home.startswith("producers.otel.")]
"""The public names, without those that need the extra ``otel``, so that ``import *`` works without
it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME_MODULES:
        raise AttributeError(f"module 'producers' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_MODULES[name]), name)
