"""Locally private estimation: metrics, mechanisms, weights and bounds. Pure mathematics."""

from estimators.definitions import load_metrics
from estimators.errors import DefinitionError, ReportError
from estimators.estimate import Estimate
from estimators.metric import Metric

__all__ = ["DefinitionError", "Estimate", "Metric", "ReportError", "load_metrics"]
