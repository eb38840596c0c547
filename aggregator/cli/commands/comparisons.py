"""`dither comparisons`: how the comparisons of the definitions stand."""

from __future__ import annotations

import click
import msgspec

from aggregator.cli.commands.compare import as_text
from aggregator.cli.commands.options import opened_reader, settings_options
from aggregator.config.settings import Settings
from aggregator.reading.comparisons.living import Living, LivingAnswers, living_answer
from aggregator.timestamps import iso

NONE_DEFINED = (
    "no comparisons: the definitions have no table [comparisons.NAME] (docs/comparisons.md)"
)


@click.command()
@click.argument("name", required=False)
@click.option("--each", is_flag=True, help="Give both arms bounds; all three intervals share beta.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def comparisons(settings: Settings, name: str | None, each: bool, as_json: bool) -> None:
    """Show how the comparisons of the definitions stand, or comparison NAME alone.

    Bounds and p-values hold at all times from a comparison's start on: look as often as you like.
    """
    reader = opened_reader(settings)
    if name is not None:
        one = reader.comparison(name, each=each)
        answer = living_answer(one, history=True)
        click.echo(msgspec.json.encode(answer).decode() if as_json else _as_text(one))
        return
    found = reader.comparisons(each=each)
    if as_json:
        answers = LivingAnswers(comparisons=[living_answer(one) for one in found])
        click.echo(msgspec.json.encode(answers).decode())
        return
    click.echo("\n\n".join(map(_as_text, found)) or NONE_DEFINED)


def _as_text(found: Living) -> str:
    run = found.run
    lines = [f"{found.definition.name}", as_text(found)]
    lines += [
        f"{'' if one.category is msgspec.UNSET else f'{one.category}  '}decided since {one.at}"
        for one in run.decided
    ]
    if run.has_begun:
        lines.append(f"looked at final panes until {iso(run.next_ms)}")
    if run.incomplete:
        lines.append(
            f"{run.incomplete} of these panes had reports that are in no table of slices: they "
            "had expired, or the attribute was not declared yet"
        )
    if found.reason:
        lines.append(found.reason)
    return "\n".join(lines)
