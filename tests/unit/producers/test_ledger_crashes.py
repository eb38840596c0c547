"""A device that is killed at any moment may lose a report, never its account."""

import random
import subprocess
import sys
import time
from pathlib import Path

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


def test_what_was_acknowledged_survives_a_kill(broker: Broker, topic: str, tmp_path: Path) -> None:
    ledger, generator = Ledger(tmp_path / "ledger", budget=10**6), random.Random(7)
    line = [sys.executable, "-c", DEVICE, str(ledger.path), broker.servers, topic]
    for _ in range(2):
        devices = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(2)]
        try:
            for device in devices:
                assert device.stdout is not None
                assert device.stdout.readline() == b"ready\n"
            time.sleep(generator.uniform(0.0, 0.2))  # killed at any moment
        finally:
            for device in devices:
                device.kill()
                device.communicate(timeout=60)
        acknowledged = sum(len(batch.levels) for batch in broker.batches(topic))
        account = ledger.accounts()["late"]
        assert 0 < acknowledged <= account.reports
        assert account.spent == account.reports == account.ever_reports
