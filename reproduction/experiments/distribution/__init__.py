"""The mechanism of distributions beside its rivals, which are simulated here and used nowhere."""

from reproduction.experiments.distribution.comparison import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
