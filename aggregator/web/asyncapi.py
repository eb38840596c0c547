"""The AsyncAPI document: what is in the Kafka topics."""

from __future__ import annotations

from typing import Any

from aggregator.settings import Settings


def document(settings: Settings) -> dict[str, Any]:
    """Return the document of a deployment's topics."""
    channels = {
        "reports": {"address": settings.topics.reports},
        "deadletters": {"address": settings.topics.deadletters},
    }
    info = {"title": "Dither", "version": "1"}
    return {"asyncapi": "3.0.0", "info": info, "channels": channels}
