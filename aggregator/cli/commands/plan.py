"""`dither plan`: how wide bounds will be, and by which lottery devices best share a budget."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aggregator.config.settings import Settings
from aggregator.reading.frames.frame import Frame
from aggregator.terminal.estimate_text import table
from aggregator.terminal.options import NumberRange, defined_metrics, settings_options
from aggregator.terminal.output import Output, output_options
from estimators import LocalMetric, Metric
from estimators.durations import milliseconds
from estimators.errors import meant
from estimators.limits import LARGEST_LEVEL, LEVEL_DIGITS

if TYPE_CHECKING:
    from estimators.planning import Plan, Wish

EQUAL_RATIO = 1.05
"""Numbers of devices that differ by at most this factor count as equal."""
LARGEST_LOTTERY = 4
"""Above this budget, several lotteries may need fewer devices than a single one."""
MAX_NAMED_METRICS = 3
"""How many metrics are named as the most expensive."""
MOST_DEVICES = 10**12
PLAN_COLUMNS = ("metric", "wished", "drawn", "reports", "lottery", "split", "first_come")
FINEST = 1e-9
"""The smallest share of devices, and the smallest wish as a share of the range."""
TURN = "1d"


class Count(click.IntRange):
    """A whole number, which may have commas, such as ``200,000``."""

    name = "whole number"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the number; an error about an invalid text names the allowed range."""
        text: Any = str(value).replace(",", "")
        number: int = super().convert(text, param, ctx)
        return number


class MetricNumber(click.ParamType[tuple[str, float | None]]):
    """A metric, which may be followed by a number: ``late=0.02``."""

    name = "metric=number"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float | None]:
        """Return the name and the number; an error about an invalid text says what was expected."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        name, sign, text = value.partition("=")
        try:
            number = float(text) if sign else None
        except ValueError:
            number = math.nan
        if number is not None and not 0 < number < math.inf:
            self.fail(f"{value!r}: expected a number above 0, as in {name}=0.02", param, ctx)
        return name, number


@click.command()
@click.argument("wanted", nargs=-1, type=MetricNumber(), metavar="[METRIC[=WITHIN]]...")
@click.option(
    "--devices",
    type=Count(1, MOST_DEVICES),
    required=True,
    help="How many devices report in a turn.",
)
@click.option(
    "--budget",
    type=NumberRange(0, LARGEST_LEVEL, min_open=True),
    help="The epsilon that a person gives away in a turn, such as a day, for all these metrics.",
)
@click.option(
    "--happens",
    type=MetricNumber(),
    multiple=True,
    metavar="METRIC=SHARE",
    help="The share of devices that have something to report in a turn [default: 1].",
)
@output_options
@settings_options
def plan(
    settings: Settings,
    wanted: Sequence[tuple[str, float | None]],
    devices: int,
    budget: float | None,
    happens: Sequence[tuple[str, float | None]],
    output: Output,
) -> None:
    """Show how wide bounds will be before anything ships, and the best use of a budget.

    Each METRIC may have a wish: `late=0.02` asks for 95% bounds within 0.02 of the estimate, in the
    metric's unit. Without any METRIC, the plan has all defined metrics, with bounds that are as
    narrow as possible relative to their ranges.

    With --budget the table compares a lottery (each device draws one metric a turn, and answers it
    with the whole budget), the best split of the budget, and first come (each metric, in the order
    given, takes its level while budget is left). Below the table are the best tickets, to be pasted
    into the application, and what to change. Without --budget the table has the width at each level
    of each metric.

    The metrics' code computes the widths from synthetic values: numbers spread over the range,
    equally frequent categories, and strings that a tenth of the devices hold. The command needs
    neither Kafka nor Redis.
    """
    wishes = _wishes(defined_metrics(settings), wanted, dict(happens))
    if budget is None:
        _show_levels(wishes, devices, output)
        return
    drawable = [wish for wish in wishes if _can_be_drawn(wish.metric)]
    if not drawable:
        raise click.UsageError("no metric that a lottery can draw: leave --budget out")
    for wish in wishes:
        if wish not in drawable:
            click.echo(
                f"{wish.metric.name}: trusted, memoized, with a crowd or searched in rounds: it "
                "needs a ledger of its own, and is left out (without --budget it is shown)",
                err=True,
            )
    if round(budget, LEVEL_DIGITS) != budget:
        raise click.UsageError(
            f"--budget {budget}: expected at most {LEVEL_DIGITS} decimal digits, as in a ledger"
        )
    for wish in drawable:
        for fault in _faults(wish.metric):
            click.echo(f"{wish.metric.name}: {fault}", err=True)
    from estimators.planning import make_plan

    try:
        plan = make_plan(drawable, devices, budget)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    rows = _plan_rows(drawable, plan)
    document = {
        "devices": devices,
        "budget": budget,
        "tickets": plan.tickets,
        "split_levels": plan.split_levels,
        "needed": _finite(plan.needed),
        "needed_split": _finite(plan.needed_split),
        "metrics": [dict(zip(PLAN_COLUMNS, row, strict=True)) for row in rows],
    }
    output.show(
        lambda: Frame.of(PLAN_COLUMNS, rows),
        lambda: json.dumps(document),
        lambda: _as_text(rows, drawable, plan, devices, budget),
    )


def _wishes(
    defined: Mapping[str, Metric],
    wanted: Sequence[tuple[str, float | None]],
    happens: Mapping[str, float | None],
) -> list[Wish]:
    from estimators.planning import Wish

    max_widths = dict(wanted) or dict.fromkeys(defined)
    if len(max_widths) < len(wanted):
        raise click.UsageError("a metric is named twice: expected each with one wish")
    for name in (*max_widths, *happens):
        if name not in defined:
            raise click.UsageError(f"no metric {name!r}: {meant(name, defined)}")
    shares = dict.fromkeys(max_widths, 1.0)
    for name, share in happens.items():
        if share is None or name not in max_widths or not FINEST <= share <= 1:
            given = name if share is None else f"{name}={share:g}"
            raise click.UsageError(
                f"--happens {given}: expected a planned metric, and a share of at most 1 and at "
                f"least {FINEST:g}, as in {name}=0.5"
            )
        shares[name] = share
    wishes = [Wish(defined[name], within, shares[name]) for name, within in max_widths.items()]
    for wish in wishes:
        full_width = dataclasses.replace(wish, within=None).scale
        if wish.within is not None and not FINEST * full_width <= wish.within < full_width / 2:
            raise click.UsageError(
                f"{wish.metric.name}={wish.within:g}: expected at least {FINEST * full_width:g}, "
                f"and less than half of its range, {full_width / 2:g}, as bounds are never wider"
            )
    return wishes


def _faults(metric: Metric) -> Iterator[str]:
    """Yield why a roll-up over a turn refuses or loses a metric's reports, and what to change."""
    refused = f"no RollUp of a turn of {TURN} takes it"
    if not metric.lateness_ms:
        yield f'{refused}: its definition needs a lateness, as in lateness = "{TURN}"'
    elif metric.lateness_ms < milliseconds(TURN):
        yield (
            f"a device that is off for {metric.lateness} after a turn is not counted: expected a "
            f'longer lateness, as in lateness = "{TURN}"'
        )
    if milliseconds(TURN) % metric.pane_ms:
        yield f'{refused}: it is no multiple of its pane, {metric.pane}; take one, as pane = "1h"'


def _can_be_drawn(metric: Metric) -> bool:
    return isinstance(metric, LocalMetric) and not metric.memoized and metric.crowd is None


def _show_levels(wishes: Sequence[Wish], devices: int, output: Output) -> None:
    """Show the width at each level of each metric, and how many devices a wish needs."""
    from estimators.planning import half_width

    names: tuple[str, ...] = ("metric", "epsilon", "reports", "within", "needed")
    rows: list[tuple[Any, ...]] = [
        (
            wish.metric.name,
            level,
            round(devices * wish.happens),
            half_width(wish.metric, level, devices * wish.happens, wish.sums),
            wish.within and _finite(wish.needed(level, wish.within) / wish.happens),
        )
        for wish in wishes
        for level in wish.metric.levels
    ]
    wished_names = {wish.metric.name for wish in wishes if wish.within is not None}
    if not wished_names:
        rows, names = [row[:-1] for row in rows], names[:-1]

    def line(name: str, level: float, reports: int, within: float, *needed: float | None) -> Any:
        none = "never" if name in wished_names else "-"
        counts = (none if each is None else f"{each:,.0f}" for each in needed)
        return name, level, f"{reports:,}", _text(within), *counts

    output.show(
        lambda: Frame.of(names, rows),
        lambda: json.dumps(
            {"devices": devices, "widths": [dict(zip(names, row, strict=True)) for row in rows]}
        ),
        lambda: table(names, [line(*row) for row in rows]),
    )


def _plan_rows(wishes: Sequence[Wish], plan: Plan) -> list[tuple[Any, ...]]:
    total = sum(plan.tickets.values())
    return [
        (
            name := wish.metric.name,
            wish.within,
            plan.tickets[name] / total,
            round(plan.reports[name]),
            *(_finite(way[name]) for way in (plan.lottery, plan.split, plan.first_come)),
        )
        for wish in wishes
    ]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _text(number: float | None) -> str:
    return "never" if number is None else f"{number:.3g}"


def _as_text(
    rows: Sequence[Sequence[Any]], wishes: Sequence[Wish], plan: Plan, devices: int, budget: float
) -> str:
    cells = [
        (
            name,
            f"{wished_names:g}" if wished_names else "-",
            f"{drawable:.3f}",
            f"{reports:,}",
            *map(_text, ways),
        )
        for name, wished_names, drawable, reports, *ways in rows
    ]
    head = tuple(name.replace("_", " ") for name in PLAN_COLUMNS)
    lottery = f', turn="{TURN}", tickets={json.dumps(plan.tickets)}' if len(wishes) > 1 else ""
    return "\n".join(
        [
            f"{devices:,} devices, a budget of {budget:g} a turn; 95% bounds reach this far:\n",
            f"{table(head, cells)}\n",
            *_verdict(wishes, plan, devices, budget),
            f'\nLedger("daily.ledger", budget={budget:g}, period="20h"{lottery})',
        ]
    )


def _verdict(wishes: Sequence[Wish], plan: Plan, devices: int, budget: float) -> list[str]:
    """Return lines on how many devices the plan saves, and on what to change next."""
    if first := next((wish for wish in wishes if wish.within is None), None):
        lines = [
            "Widths are equal, in parts of each wish or range. To see how many devices are "
            f"missing, give each metric a wish, as in {first.metric.name}={first.scale / 50:g}."
        ]
    else:
        lines = _met_or_missed(wishes, plan, devices)
    if len(wishes) == 1:
        lines.append("One metric needs no lottery.")
    else:
        lines += _ways_compared(plan, budget)
    for wish in wishes:
        level = wish.level_for(budget) or 0.0
        if level < budget * 0.9:
            lines.append(
                f"{wish.metric.name}: its largest level within the budget is {level:g}; a level of "
                f"{budget:g} in its definition needs fewer reports. Add it before devices report: "
                "another list of levels is another revision."
            )
    return lines


def _ways_compared(plan: Plan, budget: float) -> list[str]:
    lines = []
    gain = plan.needed_split / plan.needed
    if math.isnan(gain):
        pass  # no number of devices is enough for either
    elif gain > EQUAL_RATIO:
        fewer = f"{gain:.1f} times fewer" if math.isfinite(gain) else "far fewer"
        lines.append(f"The lottery needs {fewer} devices than the best split.")
    elif gain >= 1 / EQUAL_RATIO:
        lines.append("The lottery and the best split need about as many devices.")
    else:
        parts = ", or several lotteries of 2 to 4 each" if budget > LARGEST_LOTTERY else ""
        lines.append(
            f"The best split needs {1 / gain:.1f} times fewer devices than the lottery: use an "
            f"ordinary ledger{parts}."
        )
    lines.append(
        "First come, in this order: answers of later metrics are also biased, because they depend "
        "on what happened before."
    )
    return lines


def _met_or_missed(wishes: Sequence[Wish], plan: Plan, devices: int) -> list[str]:
    if plan.needed <= devices:
        spare = f"; {plan.needed:,.0f} devices would do" if plan.needed < devices else ""
        return [f"Within all wishes: yes{spare}."]
    total = sum(plan.tickets.values())
    expensive = sorted(plan.tickets, key=plan.tickets.__getitem__, reverse=True)[:MAX_NAMED_METRICS]
    shares = ", ".join(f"{name} {plan.tickets[name] / total:.0%}" for name in expensive)
    if not math.isfinite(plan.needed):
        return ["Within all wishes: no, and no number of devices is enough. Widen a wish."]
    widest = max(plan.lottery[wish.metric.name] / wish.scale for wish in wishes)
    wider = f", all wishes {widest:.2f} times as wide" if math.isfinite(widest) else ""
    return [
        f"Within all wishes: no. {plan.needed:,.0f} devices are needed, "
        f"{plan.needed - devices:,.0f} are missing.",
        f"Most devices go to: {shares}. Change next: a wider wish or a longer turn for these"
        f"{wider}, or a larger budget.",
    ]
