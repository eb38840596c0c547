"""However a relay is killed, each acknowledged report is delivered once, or dropped as too few."""

from __future__ import annotations

import http.client
import random
import signal
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from producers.relay.crowd_folder import CrowdFolder, CrowdTerms, OpenCrowd
from tests.support.rows import row
from tests.support.running.deployment import wait_until
from tests.support.running.fleet import CONTEXT
from tests.unit.producers.relay.crowds import (
    CLOSES_MS,
    LABEL,
    NEXT_LABEL,
    PANE_MS,
    TERMS,
    analyst,
    body,
    files,
    sealed,
)
from tests.unit.producers.relay.killed_relay import NEVER, close_crowds, serve

pytestmark = pytest.mark.more
NEXT_TERMS = CrowdTerms(NEXT_LABEL, TERMS.report_bytes, 100, CLOSES_MS, TERMS.late_ms)
MOST_STEPS = 60


def test_a_kill_at_each_step_of_closing_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """A crowd of 230 in two parts and one of 99; of the first answers one is lost, one is 503."""
    clock = tmp_path / "clock"
    clock.write_text(str(CLOSES_MS / 1000))
    for step in range(1, MOST_STEPS):
        path = tmp_path / str(step)
        reports = sealed(230)
        with closing(CrowdFolder(path)) as folder:
            for terms, arrived in ((TERMS, reports + reports[:9]), (NEXT_TERMS, sealed(99))):
                crowd = OpenCrowd(folder, terms)
                crowd.append(arrived)
        with row("step", step), analyst() as receiver:
            receiver.statuses = [0, 503]
            codes = []
            for kill_at in (step, NEVER):
                process = CONTEXT.Process(
                    target=close_crowds, args=(path, receiver.port, clock, kill_at)
                )
                process.start()
                process.join(60)
                codes.append(process.exitcode)
            assert sorted(receiver.reports) == sorted(reports)
            assert len(receiver.bodies) == 2
            assert not files(path)
        if codes[0] == 0:
            break  # it had no further step
        assert codes == [-signal.SIGKILL, 0]
    assert step > 20


def test_kills_at_random_instants_lose_and_double_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    generator = random.Random(seed)
    clock, path = tmp_path / "clock", tmp_path / "relay"
    clock.write_text(str((CLOSES_MS - 1) / 1000))
    labels = {LABEL: sealed(200), NEXT_LABEL: sealed(60)}
    acknowledged = set()
    with (
        row("seed", seed),
        analyst() as receiver,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        receiver.statuses = [generator.choice([0, 503, 202]) for _ in range(8)]
        is_over = threading.Event()

        def relays() -> None:
            while True:
                process = CONTEXT.Process(
                    target=serve, args=(path, receiver.port, clock, listening)
                )
                process.start()
                is_last = is_over.wait(generator.uniform(0.05, 0.5))
                if is_last:
                    wait_until(lambda: not files(path), "all crowds have closed")
                process.kill()
                process.join()
                assert process.exitcode == -signal.SIGKILL
                if is_last:
                    return

        thread = threading.Thread(target=relays)
        thread.start()
        port = listening.getsockname()[1]
        for label, reports in labels.items():
            for report in reports:
                while not post(port, body(report, label)):
                    time.sleep(0.002)
                acknowledged.add(report)
        clock.write_text(str((CLOSES_MS + PANE_MS) / 1000))
        time.sleep(0.3)
        is_over.set()
        thread.join(120)
        assert not thread.is_alive()
    assert sorted(receiver.reports) == sorted(labels[LABEL])
    assert acknowledged == {*labels[LABEL], *labels[NEXT_LABEL]}


def post(port: int, data: bytes) -> bool:
    """Post a report, and return whether the relay has acknowledged it."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request(
                "POST", "/v1/sealed", data, {"Content-Type": "application/octet-stream"}
            )
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False
        assert status in (202, 503)
        return status == 202
