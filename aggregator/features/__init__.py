"""The features of the service beside counting and estimating, one folder each."""

from __future__ import annotations

from typing import Final

from aggregator.feature import Feature
from aggregator.features.alarms.feature import Alarms
from aggregator.features.comparisons.feature import Comparisons
from aggregator.features.discovery.feature import DiscoverySearches
from aggregator.features.rounds.feature import SearchRounds
from aggregator.features.trusted.feature import TrustedCollection

FEATURES: Final[tuple[Feature, ...]] = (
    Comparisons(),
    Alarms(),
    DiscoverySearches(),
    TrustedCollection(),
    SearchRounds(),
)
"""In the order of the publisher, the exporter and the API's description."""
