"""Dead letters, made and looked at."""

from pathlib import Path

from click.testing import CliRunner, Result

from aggregator.cli.commands.deadletters import deadletters
from estimators import Metric
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment


def command(deployment: Deployment, *arguments: str, metrics: Path | None = None) -> Result:
    chosen = ["--metrics", str(metrics)] if metrics else []
    return CliRunner().invoke(deadletters, [*arguments, *deployment.flags, *chosen])


def payload(metric: Metric, number: int, time_ms: int = EPOCH, reports: int = 3) -> bytes:
    return batch(metric, [1.0] * reports, 2, time_ms, number).SerializeToString()


def counted(deployment: Deployment, metrics: tuple[str, ...] = ("delay", "age")) -> dict[str, int]:
    """Let a worker with these definitions count everything; return what was counted."""
    everything = deployment.metrics
    deployment.metrics = {name: everything[name] for name in metrics}
    try:
        with deployment.worker():
            deployment.wait_until_counted()
    finally:
        deployment.metrics = everything
    return deployment.counts()
