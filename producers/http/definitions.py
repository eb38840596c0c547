"""Definitions from a gateway: documents that are checked, stored, and pinned by name.

A server may change a definition at any time. A device computes for itself what a definition means.
It stores the first definition of a name in the queue's file, and refuses any with another meaning,
as :mod:`producers.ledger.past_answers` does for the ledger.
"""

from __future__ import annotations

import http.client
from typing import Any, TypeAlias

from msgspec import convert

from estimators.discovery.string_code import StringCode
from estimators.durations import UNITS_MS
from estimators.limits import MOST_SLICES
from estimators.metrics.axes import Axes
from estimators.metrics.categories import OPEN_VOCABULARY
from estimators.metrics.loading import read_definition
from estimators.metrics.metric import Metric
from producers.http.gateway_client import GatewayClient
from producers.http.queue_file import QueueFile
from producers.ledger.past_answers import DefinitionChanged
from producers.wire.decoding import decode_json

_SAME_KEYS = """
kind trust mechanism options unit description title group levels minimum_reports memoized
max_batch_reports range rounds split beta critical categories watch deny coordinates radius bins
scale edges quantiles by attributes
"""
SAME_KEYS = tuple(_SAME_KEYS.split())
"""Keys that are the same in a definition over HTTP and in ``metrics.toml``."""
ServedAxes: TypeAlias = dict[str, list[str]]
"""The values of each axis by its name, as in a definition over HTTP."""


def read_served(body: bytes, name: str) -> Metric:
    """Return the metric that ``GET /v1/metrics/NAME`` describes.

    Raises ValueError if the body is not a definition of this metric, or states a revision that does
    not follow from it. A device would send that revision with each batch, and could be recognised
    by it.
    """
    try:
        document = decode_json(body, dict[str, Any])
        keys = {key: document[key] for key in SAME_KEYS if key in document}
        domain: dict[str, Any] = document.get("domain", {})
        keys |= domain.items()
        keys.pop("shares", None)  # they cost a search each, and only answers have them
        pane = _duration(document["pane_seconds"])
        keys |= {"pane": pane, "lateness": _duration(document["lateness_seconds"])}
        if (crowd := document.get("crowd")) is not None:
            keys["crowd"] = crowd
            crowd["wait"] = _duration(crowd.pop("wait_seconds"))
        if keys.get("by"):  # which stretches the service keeps is not for devices to know
            keys |= {"by_pane": pane, "max_slices": MOST_SLICES}
        if (code := document.get("code")) is not None:
            keys |= {"categories": OPEN_VOCABULARY, "discover": True, "code": _code(code)}
        axes = Axes(convert(document["axes"], ServedAxes)) if "axes" in document else None
        revision = document["revision"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"metric {name!r}: not a whole definition ({type(error).__name__}: {error}): expected "
            f"what GET /v1/metrics/{name} of a gateway answers"
        ) from None
    if document.get("name") != name:
        raise ValueError(f"metric {name!r}: the gateway described {document.get('name')!r:.100}")
    if isinstance(keys.get("categories"), int):  # a few digits would fill the memory
        raise ValueError(f"metric {name!r}: a number of categories: expected their names")
    if axes is not None:
        if not axes.give(keys.get("categories")):
            raise ValueError(f"axes of {name}: expected those whose product is its categories")
        keys["categories"] = axes.values
    metric = read_definition(name, keys)
    if metric.revision != revision:
        raise ValueError(
            f"metric {name!r}: revision {revision!r:.100}: expected {metric.revision}, by what the "
            "definition says. This device's version of Dither may be older than the gateway's"
        )
    return metric


class GatewayDefinitions:
    """The definitions of a gateway; the queue's file stores the first definition of each name."""

    prefix = ""
    """Precedes the names under which definitions are stored."""

    def __init__(self, file: QueueFile, client: GatewayClient) -> None:
        self._file, self._client = file, client

    def get(self, name: str) -> tuple[Metric, bool]:
        """Return the definition of a name, and whether it was fetched for this call.

        Raises GatewayError if no definition is stored, and the gateway does not answer or its
        answer cannot be used.
        """
        with self._file.transaction() as database:
            stored = database.execute(
                "SELECT body FROM definitions WHERE metric = ?", (self.prefix + name,)
            ).fetchone()
        if stored is None:
            return self.fetch(name), True
        return read_served(stored[0], name), False

    def fetch(self, name: str) -> Metric:
        """Fetch the gateway's definition of a name, store it, and return it.

        Raises
        ------
        GatewayError
            If the gateway does not answer, or its answer cannot be used.
        DefinitionChanged
            If a definition with another meaning is stored.
        """
        body = self._client.get(name)
        try:
            metric = read_served(body, name)
        except ValueError as error:
            self._client.close()
            raise self._client.error(str(error), http.client.OK) from None
        key = self.prefix + name
        with self._file.transaction() as database:
            stored = database.execute(
                "SELECT fingerprint FROM definitions WHERE metric = ?", (key,)
            ).fetchone()
            if stored is not None and stored[0] != metric.fingerprint:
                raise DefinitionChanged(name)
            # of the same meaning: what it says of attributes and limits may be new
            database.execute(
                "INSERT OR REPLACE INTO definitions VALUES (?, ?, ?)",
                (key, metric.fingerprint, body),
            )
        return metric


def _duration(seconds: float) -> str:
    """Return a duration as definitions write it, in the largest unit of which it is a multiple."""
    if not isinstance(seconds, int | float):  # a thousand times a list would fill the memory
        raise TypeError("seconds: expected a number")
    length = round(seconds * 1000)
    *_, unit = (unit for unit in UNITS_MS if length % UNITS_MS[unit] == 0)
    return f"{length // UNITS_MS[unit]}{unit}" if length else "0s"


def _code(encoded: dict[str, Any]) -> str:
    """Return a code of strings in the form that definitions have."""
    try:
        tokens = tuple(bytes.fromhex(token) for token in encoded["tokens"])
        lengths = {int(c): tuple(bytes.fromhex(token)) for c, token in encoded["lengths"].items()}
        return StringCode(tokens, lengths).packed()
    except (ValueError, IndexError) as error:
        raise TypeError(f"code: {error}") from None
