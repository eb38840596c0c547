"""The papers' tables and figures, and what goes beyond them, from the product's own estimators.

Pure computation: `dither reproduce` runs and prints it. Seeds decide everything; values are
synthetic wherever an experiment does not say otherwise.
"""

from __future__ import annotations

from reproduction.experiments import (
    adpm,
    adpm_appendix,
    bounds,
    discovery,
    distribution,
    errata,
    hdpwc_figures,
    hdpwc_tables,
    hist,
    hist_bounds,
    hldp,
    minimum,
    minimum_tasks,
)
from reproduction.experiments.outcome import Claim, Curve, Experiment, Number, Outcome, Plot, Tick

__all__ = ["EXPERIMENTS", "Claim", "Curve", "Experiment", "Number", "Outcome", "Plot", "Tick"]

EXPERIMENTS: dict[str, Experiment] = {
    **adpm.EXPERIMENTS,
    **adpm_appendix.EXPERIMENTS,
    **hdpwc_tables.EXPERIMENTS,
    **hdpwc_figures.EXPERIMENTS,
    **hist.EXPERIMENTS,
    **hist_bounds.EXPERIMENTS,
    **minimum.EXPERIMENTS,
    **minimum_tasks.EXPERIMENTS,
    **hldp.EXPERIMENTS,
    **bounds.EXPERIMENTS,
    **discovery.EXPERIMENTS,
    **distribution.EXPERIMENTS,
    **errata.EXPERIMENTS,
}
"""By the names that `dither reproduce` takes."""
