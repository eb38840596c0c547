"""`dither weights`: which policy of weights is in force, and another one from now on."""

from __future__ import annotations

import json

import click

from aggregator.cli.commands.options import (
    defined_metrics,
    metric_argument,
    opened_store,
    settings_options,
)
from aggregator.cli.format import table
from aggregator.config.settings import Settings
from aggregator.reading.reader import Reader
from estimators.errors import meant


@click.command()
@metric_argument(required=False)
@click.argument("policy", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def weights(settings: Settings, metric: str | None, policy: str | None, as_json: bool) -> None:
    """Show the weights in force, or set POLICY for METRIC: optimal, paper, uniform, proportional.

    A policy decides how much each privacy level counts. It takes effect at the next read that names
    no other weights; no report is read again, and no server restarts. Metrics with trusted
    collection have other policies (hpm-a, adpm, ...), which apply to future releases.
    """
    defined = defined_metrics(settings)
    store = opened_store(settings)
    reader = Reader(store, defined)
    if metric is not None:
        known = reader.metric(metric).policies
        if policy is not None and policy not in known:
            raise click.UsageError(f"no policy {policy!r}: {meant(policy, known)}")
    if metric is not None and policy is not None:
        store.registry.set_policy(metric, policy)
    found = store.registry.policies()
    shown = {
        name: found.get(name, defined[name].policies[0])
        for name in defined
        if metric is None or name == metric
    }
    if as_json:
        click.echo(json.dumps(shown))
    else:
        click.echo(table(("metric", "weights"), list(shown.items())))
