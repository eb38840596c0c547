"""A port says whether a worker or a coordinator works, also when its watchdog cannot."""

import socket
import time

import httpx
import pytest

from aggregator.health_port import answer_health
from tests.support.running import http_client


def ask(port: int, path: str = "/healthz") -> tuple[int, str]:
    answer = http_client.get(f"http://127.0.0.1:{port}{path}")
    return answer.status_code, answer.text


def test_it_answers_what_the_trouble_is_while_there_is_one() -> None:
    troubles = [""]
    with answer_health(0, lambda: troubles[0]) as port:
        assert ask(port) == (200, "ok\n")
        assert ask(port, "/") == (404, "no such path: expected /healthz\n")
        troubles[0] = "counting for 301 seconds"
        assert ask(port) == (503, "counting for 301 seconds\n")
    with pytest.raises(httpx.ConnectError, match="refused"):
        ask(port)


def test_a_hostile_header_takes_no_time() -> None:
    header = {"Content-Type": 'multipart/x;"' + 60_000 * ";"}  # two seconds for `http.server`
    with answer_health(0, str) as port:
        began = time.process_time()
        assert http_client.get(f"http://127.0.0.1:{port}/healthz", headers=header).text == "ok\n"
        assert time.process_time() - began < 0.5


def test_a_client_that_says_nothing_keeps_no_other_from_its_answer() -> None:
    with answer_health(0, str) as port, socket.create_connection(("127.0.0.1", port)):
        assert ask(port) == (200, "ok\n")
