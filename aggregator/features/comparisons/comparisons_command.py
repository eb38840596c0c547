"""`dither comparisons`: the comparisons of the definitions."""

from __future__ import annotations

import click
import msgspec

from aggregator.config.settings import Settings
from aggregator.features.comparisons.compare_command import as_text, intervals
from aggregator.features.comparisons.living import (
    Living,
    LivingAnswers,
    all_comparisons,
    definition_of,
    living,
    living_answer,
)
from aggregator.features.comparisons.query import comparison_frame
from aggregator.features.comparisons.run import ComparisonDecided
from aggregator.terminal.options import opened_reader, settings_options
from aggregator.terminal.output import Output, output_options
from aggregator.timestamps import iso

NONE_DEFINED = (
    "no comparisons: the definitions have no table [comparisons.NAME] (docs/comparisons.md)"
)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--each",
    "with_arm_bounds",
    is_flag=True,
    help="Give both arms bounds; all three intervals share beta.",
)
@output_options
@settings_options
def comparisons(
    settings: Settings, name: str | None, with_arm_bounds: bool, output: Output
) -> None:
    """Show the state of the defined comparisons, or of comparison NAME alone.

    Bounds and p-values hold at all times from a comparison's start on: look as often as you like.
    """
    reader = opened_reader(settings)
    if name is not None:
        definition = definition_of(reader.metrics, name)
        comparison = living(reader, definition, with_arm_bounds=with_arm_bounds)
        return output.show(
            comparison.to_frame,
            lambda: msgspec.json.encode(living_answer(comparison, history=True)).decode(),
            lambda: _as_text(comparison),
        )
    all_living = all_comparisons(reader, with_arm_bounds=with_arm_bounds)
    return output.show(
        lambda: comparison_frame(all_living),
        lambda: msgspec.json.encode(
            LivingAnswers(comparisons=[living_answer(comparison) for comparison in all_living])
        ).decode(),
        lambda: "\n\n".join(map(_as_text, all_living)) or NONE_DEFINED,
    )


def _as_text(comparison: Living) -> str:
    run = comparison.run
    lines = [comparison.definition.name, as_text(comparison, ("different now", "not decided now"))]
    lines += map(_decision, run.decided)
    if run.has_begun:
        lines.append(f"looked at final panes until {iso(run.next_ms)}")
    if run.incomplete:
        lines.append(
            f"{run.incomplete} of these panes had reports that are in no table of slices: they "
            "had expired, or the attribute was not declared yet"
        )
    if comparison.reason:
        lines.append(comparison.reason)
    return "\n".join(lines)


def _decision(decided: ComparisonDecided) -> str:
    """Return a decision as text: its time, its direction, and the bounds at that time."""
    label = "" if decided.category is msgspec.UNSET else f"{decided.category}  "
    unit = f" {decided.unit}" if decided.unit else ""
    (ends,) = intervals(decided.value, decided.lower, decided.upper, unit)
    equal = 1 if decided.of == "ratio" else 0
    is_above = isinstance(decided.lower, float | int) and decided.lower > equal
    return f"{label}decided at {decided.at}: a {'above' if is_above else 'below'} b, {ends} by then"
