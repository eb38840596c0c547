"""Whoever closes a reporter or its connection waits for what other threads do with it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from producers import HttpConnection, HttpReporter, Ledger, Reporter
from producers.device.base_reporter import BaseReporter
from tests.support.clocks import wait_until
from tests.support.rows import row
from tests.support.running.broker import LATE, Broker

NOWHERE = "http://127.0.0.1:9"


class SlowLedger(Ledger):
    """After a charge it waits for a word."""

    charged: threading.Event
    go_on: threading.Event

    def spend(self, *arguments: Any, **options: Any) -> None:
        super().spend(*arguments, **options)
        self.charged.set()
        assert self.go_on.wait(60)


def is_refused(reporter: BaseReporter) -> bool:
    """Return whether a call, here with no value, comes too late."""
    try:
        reporter.report([], epsilon=1)
    except ValueError:
        return True
    return False


def test_what_is_charged_is_reported_before_anything_is_closed(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    shared = HttpConnection(NOWHERE, queue=tmp_path / "shared")
    over_kafka = Reporter(LATE, broker.config, topic=topic)
    over_http = HttpReporter(LATE, NOWHERE, queue=tmp_path / "own")
    closing: list[tuple[BaseReporter, Any]] = [
        (over_kafka, over_kafka),
        (over_http, over_http),
        (HttpReporter(LATE, shared), shared),
    ]
    with ThreadPoolExecutor(2) as pool:
        for number, (reporter, closed) in enumerate(closing):
            ledger = SlowLedger(tmp_path / str(number), budget=1)
            ledger.charged, ledger.go_on = threading.Event(), threading.Event()
            with row(number):
                reported = pool.submit(reporter.report, 1.0, 1, ledger=ledger)
                assert ledger.charged.wait(60)
                left = pool.submit(closed.close, 60.0)
                try:
                    wait_until(lambda one=reporter: is_refused(one), "later calls are refused")  # type: ignore[misc]
                finally:
                    ledger.go_on.set()
                reported.result()
                assert left.result() == (None if closed is over_kafka else 1)
    assert sum(len(batch.levels) for batch in broker.batches(topic)) == 1
