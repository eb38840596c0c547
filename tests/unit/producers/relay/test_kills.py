"""However a relay is killed, each acknowledged report is delivered once, or dropped as too few."""

import http.client
import itertools
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from producers.relay.crowd_folder import CrowdFolder, CrowdTerms, OpenCrowd
from producers.sealing import encode_post
from tests.support.rows import row
from tests.support.running.deployment import wait_until
from tests.support.running.fleet import CONTEXT
from tests.unit.producers.relay import crowds

pytestmark = pytest.mark.more
NEXT_TERMS = CrowdTerms(
    crowds.NEXT_LABEL, crowds.TERMS.report_bytes, 100, crowds.CLOSES_MS, crowds.TERMS.late_ms
)


@contextmanager
def relay(*arguments: Any) -> Iterator[BaseProcess]:
    """Run a relay, and kill it at the end."""
    process = CONTEXT.Process(target=crowds.serve_relay, args=arguments)
    process.start()
    yield process
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_a_kill_at_each_step_of_closing_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """A crowd of 230 in two parts and one of 99; of the first answers one is lost, one is 503.

    Mutants: parts of an unfinished run are posted; a closed crowd opens again.
    """
    clock = tmp_path / "clock"
    clock.write_text(str(crowds.CLOSES_MS / 1000))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for step in itertools.count(1):
            with row("step", step):
                if not was_killed(step, tmp_path / str(step), clock, listening):
                    break  # it had no further step
    assert step > 20


def was_killed(step: int, path: Path, clock: Path, listening: socket.socket) -> bool:
    """Return whether a relay was killed at a step; what it has left is closed by another one."""
    reports = crowds.sealed(230)
    with closing(CrowdFolder(path)) as folder:
        OpenCrowd(folder, crowds.TERMS).append(reports + reports[:9])
        OpenCrowd(folder, NEXT_TERMS).append(crowds.sealed(99))
    with crowds.serving() as service:
        service.statuses = [500, 503]
        arguments = path, service.port, clock, listening
        with relay(*arguments, step) as first:
            wait_until(lambda: not (first.is_alive() and crowds.files(path)), "it has ended")
            is_alive = first.is_alive()
        if not is_alive:
            with relay(*arguments):
                wait_until(lambda: not crowds.files(path), "all crowds have closed")
        assert sorted(service.reports) == sorted(reports)
        assert len(service.bodies) == 2
    return not is_alive


def test_kills_at_random_instants_lose_and_double_nothing(tmp_path: Path) -> None:
    generator = random.Random(seed := random.SystemRandom().randrange(2**32))
    clock, path = tmp_path / "clock", tmp_path / "relay"
    clock.write_text(str((crowds.CLOSES_MS - 1) / 1000))
    labels = {crowds.LABEL: crowds.sealed(200), crowds.NEXT_LABEL: crowds.sealed(60)}
    unposted = [(label, report) for label, reports in labels.items() for report in reports]
    with (
        row("seed", seed),
        crowds.serving() as service,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        service.statuses = [generator.choice([500, 503, 202]) for _ in range(8)]
        arguments, port = (path, service.port, clock, listening), listening.getsockname()[1]
        while unposted:
            with relay(*arguments):
                end = time.monotonic() + generator.uniform(1, 3)
                while unposted and time.monotonic() < end:
                    if is_acknowledged(port, encode_post(*unposted[-1])):
                        unposted.pop()
        clock.write_text(str((crowds.CLOSES_MS + crowds.PANE_MS) / 1000))
        for _ in range(3):
            with relay(*arguments):
                time.sleep(generator.uniform(0.5, 2))
        with relay(*arguments):
            wait_until(lambda: not crowds.files(path), "all crowds have closed")
    assert sorted(service.reports) == sorted(labels[crowds.LABEL])


def is_acknowledged(port: int, data: bytes) -> bool:
    """Post a report, and return whether the relay has acknowledged it."""
    headers = {"Content-Type": "application/octet-stream"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=0.5)) as connection:
        try:
            connection.request("POST", "/v1/sealed", data, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False
        assert status in (202, 503)
        return status == 202
