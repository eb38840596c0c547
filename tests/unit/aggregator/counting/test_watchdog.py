"""A stalled thread is detected, its step and stack are logged, and it is ended."""

import subprocess
import sys
import threading

import pytest
from structlog.testing import capture_logs

from aggregator.counting import watchdog
from aggregator.counting.watchdog import EXIT_CODE, Watchdog
from tests.support.paths import ROOT
from tests.support.running.deployment import wait_until

STUCK = """
import time
from aggregator.counting import watchdog
watchdog.TICK_SECONDS = 0.05
def sleeping_deeply():
    time.sleep(60)
with watchdog.Watchdog(0.2, 0.5) as dog:
    dog.enter("counting", 3, 17)
    sleeping_deeply()
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "TICK_SECONDS", 0.02)


def test_a_stuck_thread_is_told_of_with_its_step_and_its_stack_until_it_gets_on() -> None:
    told: list[tuple[str, float]] = []
    with (
        capture_logs() as logged,
        Watchdog(0.1, 0, lambda step, seconds: told.append((step, seconds))) as dog,
    ):
        dog.enter("committing", 3, 17)
        wait_until(lambda: bool(told), "it is told")
        dog.enter("consuming")
        wait_until(lambda: len(told) > 2, "that it got on, and is stuck again")
    wait_until(lambda: len(told) > 3, "a thread that is watched no longer is not stuck")
    assert told[0][0] == "committing"
    assert told[0][1] >= 0.1
    assert told[1] == told[-1] == ("consuming", 0.0)
    stuck = next(line for line in logged if line["event"] == "stuck")
    assert (stuck["step"], stuck["partition"], stuck["offset"]) == ("committing", 3, 17)
    assert "wait_until" in stuck["stack"]


def test_a_process_ends_by_itself_and_says_in_which_function_it_was() -> None:
    command = [sys.executable, "-c", STUCK]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert ran.returncode == EXIT_CODE
    assert "in sleeping_deeply" in ran.stdout
    assert "step=counting" in ran.stdout


def test_a_thread_is_in_trouble_from_the_time_at_which_its_process_should_have_ended() -> None:
    entered, leave = threading.Event(), threading.Event()
    dog = Watchdog(0, 0.2, end=lambda _: None)

    def hang() -> None:
        dog.enter("counting", 3, 17)
        entered.set()
        leave.wait(30)
        dog.enter("consuming")

    hung = threading.Thread(target=hang)
    hung.start()
    assert entered.wait(30)
    wait_until(lambda: dog.trouble().startswith("counting for "), "it is in trouble")
    leave.set()
    hung.join()
    assert dog.trouble() == ""
    assert Watchdog(0, 0).trouble() == "", "never, if it should never end"
