"""The feature of discovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from aggregator.feature import Feature

if TYPE_CHECKING:
    from aggregator.web.operations import Operation


class DiscoverySearches(Feature):
    """Finds the frequent strings of an open vocabulary."""

    commands: ClassVar = {"discover": ("Ask", "Find the frequent strings of an open vocabulary.")}

    def routes(self) -> Sequence[Operation]:
        """Return ``GET`` and ``DELETE /v1/metrics/{name}/discoveries``."""
        from aggregator.features.discovery.routes import cancel_discovery, discover

        return (discover, cancel_discovery)
