"""What a browser gets of a definition, and the module that it asks."""

from importlib import resources
from typing import Any

import msgspec

from aggregator.reading import serialization
from aggregator.web.pages import RANDOMIZER_FILES
from estimators import Metric


def definition(metric: Metric) -> dict[str, Any]:
    """Return what `GET /v1/metrics/NAME` answers."""
    found: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(serialization.definition(metric))
    )
    return found


def module(address: str) -> str:
    """Return the file of the randomizers that an address ends in."""
    found = [name for name in RANDOMIZER_FILES if address.endswith(f"/{name}")]
    assert found, address
    name = max(found, key=len)
    return resources.files("producers").joinpath("browser", name).read_text(encoding="utf-8")
