"""Figures of experiments, as small PNG files."""

from __future__ import annotations

from pathlib import Path

from aggregator.errors import DitherError
from reproduction.experiments import Outcome

INCHES, DOTS_PER_INCH = (6.4, 4.0), 100
COLOURS, LEGEND_INCHES = 10, 3.0
"""The number of curves with different colours. Further curves are dashed, and the legend then
stands beside the figure, which becomes this many inches wider."""


def draw(outcome: Outcome, title: str, file: Path) -> None:
    """Draw an outcome's plot.

    Parameters
    ----------
    outcome : Outcome
        An outcome with a plot.
    title : str
        The title above the plot.
    file : Path
        The PNG file to write.

    Raises
    ------
    DitherError
        If the outcome has no plot, or matplotlib is not installed.
    """
    if outcome.plot is None:
        raise DitherError(f"{title}: it has no figure, only numbers; leave out --plot")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DitherError(
            "--plot needs matplotlib: install Dither with its extra `plots`, as "
            "`pip install dither[plots]`"
        ) from None
    plot = outcome.plot
    has_many_curves = len(plot.curves) > COLOURS
    figure = Figure((INCHES[0] + LEGEND_INCHES * has_many_curves, INCHES[1]), layout="constrained")
    axes = figure.subplots()
    for i, curve in enumerate(plot.curves):
        style = "--" if i >= COLOURS else "-"
        axes.plot(curve.x, curve.y, style, marker="o", markersize=3, linewidth=1, label=curve.name)
    for scale, is_logarithmic in zip(
        (axes.set_xscale, axes.set_yscale), plot.logarithmic, strict=True
    ):
        scale("log" if is_logarithmic else "linear")
    axes.set(xlabel=plot.x, ylabel=plot.y, title=title)
    axes.title.set_fontsize(9)
    axes.grid(visible=True, which="major", alpha=0.3)
    if has_many_curves:
        figure.legend(loc="outside right center", fontsize=7)
    else:
        axes.legend(fontsize=7)
    figure.savefig(file, format="png", dpi=DOTS_PER_INCH)
