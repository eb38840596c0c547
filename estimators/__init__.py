"""Locally private estimation: metrics, mechanisms, weights and bounds. Pure mathematics."""

from estimators.comparison.comparison import Comparison, compare
from estimators.discovery.discoveries import Discovery
from estimators.distribution import DistributionEstimate
from estimators.errors import DefinitionError, ReportError
from estimators.estimate import Estimate
from estimators.exact.randomness import SeededBits
from estimators.metrics.denial import DenyRule
from estimators.metrics.loading import define, load_metrics
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from estimators.metrics.trusted import TrustedMetric

__all__ = [
    "Comparison",
    "DefinitionError",
    "DenyRule",
    "Discovery",
    "DistributionEstimate",
    "Estimate",
    "LocalMetric",
    "Metric",
    "ReportError",
    "SearchMetric",
    "SeededBits",
    "TrustedMetric",
    "compare",
    "define",
    "load_metrics",
]
