"""`dither weights`: show or change how a metric's privacy levels are weighted."""

from __future__ import annotations

import json

import click

from aggregator.config.settings import Settings
from aggregator.terminal.estimate_text import table
from aggregator.terminal.options import metric_argument, opened_reader, settings_options
from estimators.errors import meant


@click.command()
@metric_argument(required=False)
@click.argument("policy", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def weights(settings: Settings, metric: str | None, policy: str | None, as_json: bool) -> None:
    """Show the weights in force, or set POLICY for METRIC: optimal, paper, uniform, proportional.

    A policy decides how much each privacy level counts. A new policy takes effect at the next read
    that names no other weights; no report is read again, and no server restarts. Metrics with
    trusted collection have other policies (hpm-a, adpm, ...), which apply to future releases.
    """
    reader = opened_reader(settings)
    registry = reader.store.registry
    if metric is not None:
        policies = reader.metric(metric).policies
        if policy is not None and policy not in policies:
            raise click.UsageError(f"no policy {policy!r}: {meant(policy, policies)}")
    if metric is not None and policy is not None:
        registry.set_policy(metric, policy)
    set_policies = registry.policies()
    policy_by_metric = {
        name: set_policies.get(name, definition.policies[0])
        for name, definition in reader.metrics.items()
        if metric is None or name == metric
    }
    click.echo(
        json.dumps(policy_by_metric)
        if as_json
        else table(("metric", "weights"), [*policy_by_metric.items()])
    )
