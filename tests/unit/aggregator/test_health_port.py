"""A port says whether a worker or a coordinator works, also when its watchdog cannot."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request

import pytest

from aggregator.counting.watchdog import Watchdog
from aggregator.health_port import answer_health
from tests.support.running.deployment import wait_until


def ask(port: int, path: str = "/healthz", host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_answers_what_the_trouble_is_while_there_is_one() -> None:
    troubles = [""]
    with answer_health(0, lambda: troubles[0]) as port:
        assert ask(port) == (200, "ok\n")
        assert ask(port, "/") == (404, "no such path: expected /healthz\n")
        troubles[0] = "counting for 301 seconds"
        assert ask(port) == (503, "counting for 301 seconds\n")
    with pytest.raises(OSError, match="refused"):
        ask(port)


def test_a_client_that_says_nothing_keeps_no_other_from_its_answer() -> None:
    with answer_health(0, str) as port, socket.create_connection(("127.0.0.1", port)):
        assert ask(port) == (200, "ok\n")


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
