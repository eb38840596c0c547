"""What the service offers beside counting and estimating: a folder for each feature."""

from __future__ import annotations

from typing import Final

from aggregator.feature import Feature
from aggregator.features.alarms.feature import Alarms
from aggregator.features.comparisons.feature import Comparisons
from aggregator.features.discovery.feature import DiscoverySearches
from aggregator.features.rounds.feature import Rounds
from aggregator.features.trusted.feature import TrustedCollection

FEATURES: Final[tuple[Feature, ...]] = (
    Comparisons(),
    Alarms(),
    DiscoverySearches(),
    TrustedCollection(),
    Rounds(),
)
"""In the order in which the publisher, the exporter and the API's description ask them."""
