"""Locally private estimation: metrics, mechanisms, weights and bounds. Pure mathematics."""

from estimators.errors import DefinitionError, ReportError
from estimators.estimate import Estimate
from estimators.exact.randomness import SeededBits
from estimators.metrics.loading import define, load_metrics
from estimators.metrics.metric import Metric

__all__ = [
    "DefinitionError",
    "Estimate",
    "Metric",
    "ReportError",
    "SeededBits",
    "define",
    "load_metrics",
]
