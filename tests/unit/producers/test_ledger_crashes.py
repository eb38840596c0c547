"""A device that is killed at any moment may lose a report, never its account."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from producers import Ledger
from tests.support.running.broker import Broker

DEVICE = """
import sys
from estimators import define
from producers import Ledger, Reporter
metric = define(name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[1])
ledger = Ledger(sys.argv[1])
config = {"bootstrap.servers": sys.argv[2], "linger.ms": 0}
with Reporter(metric, config, topic=sys.argv[3], batch_reports=1) as reporter:
    reporter.report(1.0, epsilon=1, ledger=ledger)
    reporter.flush()
    print("ready", flush=True)
    while True:
        reporter.report(1.0, epsilon=1, ledger=ledger)
"""


def kill_devices(broker: Broker, topic: str, path: Path, kills: int, together: int = 1) -> int:
    """Kill reporting devices at random moments; return the reports that Kafka acknowledged."""
    ledger, generator, acknowledged = Ledger(path, budget=10**6), random.Random(7), 0
    for _ in range(kills):
        devices = [
            subprocess.Popen(
                [sys.executable, "-c", DEVICE, str(path), broker.servers, topic],
                stdout=subprocess.PIPE,
            )
            for _ in range(together)
        ]
        try:
            for device in devices:
                assert device.stdout is not None
                assert device.stdout.readline() == b"ready\n"
            time.sleep(generator.uniform(0.0, 0.4))
        finally:
            for device in devices:
                device.kill()
                device.communicate(timeout=60)
        acknowledged = sum(len(batch.levels) for batch in broker.batches(topic))
        account = ledger.accounts()["late"]
        assert 0 < acknowledged <= account.reports
        assert account.spent == account.reports == account.ever_reports
    return acknowledged


def test_what_was_acknowledged_is_in_the_account_after_a_kill(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    kill_devices(broker, topic, tmp_path / "ledger", kills=2, together=2)


@pytest.mark.slow
def test_what_was_acknowledged_is_in_the_account_after_sixty_kills(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    kill_devices(broker, topic, tmp_path / "ledger", kills=60)
