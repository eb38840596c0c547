"""Nothing is lost in silence: what Kafka does not acknowledge is kept, counted and said."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from producers import Connection, DeliveryError, Reporter
from tests.support.clocks import wait_until
from tests.support.running.broker import LATE, Broker, count

IMPATIENT = {
    "message.timeout.ms": 300,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "log_level": 0,
}


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """An address at which nobody listens yet."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def address(door: socket.socket) -> str:
    host, port = door.getsockname()
    return f"{host}:{port}"


def open_door(door: socket.socket, broker: Broker) -> None:
    """Let connections through to the broker from now on."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, target):
                each.close()

    def serve() -> None:
        host, port = broker.servers.split(",")[0].rsplit(":", 1)
        while True:
            try:
                near, _ = door.accept()
            except OSError:
                return
            far = socket.create_connection((host, int(port)))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=copy, args=ends, daemon=True).start()

    door.listen()
    threading.Thread(target=serve, daemon=True).start()


def test_what_is_not_acknowledged_is_kept_and_sent_by_the_next_flush(
    broker: Broker, topic: str, door: socket.socket
) -> None:
    config = {**IMPATIENT, "bootstrap.servers": address(door)}
    with Reporter(LATE, config, topic=topic, batch_reports=2) as reporter:
        reporter.report([1.0] * 5, epsilon=1, time=5.0)
        with pytest.raises(DeliveryError) as caught:
            reporter.flush(timeout=20)
        assert (caught.value.reports, caught.value.batches, caught.value.kept) == (5, 3, True)
        assert "timed out" in caught.value.first_error
        assert address(door) in str(caught.value)
        assert "flush() sends them again" in str(caught.value)

        open_door(door, broker)
        for _ in range(50):  # it may take a moment until the client finds the open door
            try:
                reporter.flush(timeout=20)
            except DeliveryError:
                continue
            break
        assert reporter.delivered.reports == 5
    assert LATE.counts(count(LATE, broker.batches(topic))).sum() == 5


def test_leaving_a_reporter_raises_what_was_lost_or_notes_it(door: socket.socket) -> None:
    config = {**IMPATIENT, "bootstrap.servers": address(door)}

    def application(error: Exception | None) -> None:
        with Reporter(LATE, config) as reporter:
            reporter.report(1.0, epsilon=1)
            if error is not None:
                raise error

    with pytest.raises(DeliveryError, match="1 reports in 1 batches"):
        application(None)
    with pytest.raises(KeyError, match="mine") as caught:
        application(KeyError("mine"))
    assert "1 reports in 1 batches" in caught.value.__notes__[0]


def test_closing_a_connection_closes_every_reporter_and_names_every_loss(
    door: socket.socket,
) -> None:
    config = {**IMPATIENT, "bootstrap.servers": address(door), "queue.buffering.max.messages": 1}
    connection = Connection(config)
    reporters = [Reporter(LATE, connection) for _ in range(2)]
    for size, reporter in enumerate(reporters, 1):
        reporter.report([1.0] * size, epsilon=1)
    with pytest.raises(DeliveryError) as caught:
        connection.close()
    said = str(caught.value) + "".join(caught.value.__notes__)
    assert "1 reports" in said
    assert "2 reports" in said
    for reporter in reporters:
        with pytest.raises(ValueError, match="closed"):
            reporter.report(1.0, epsilon=1)


def test_the_next_report_says_what_failed_for_good_and_once(door: socket.socket) -> None:
    reporter = Reporter(LATE, {**IMPATIENT, "bootstrap.servers": address(door)}, batch_reports=2)
    reporter.report([1.0] * 4, epsilon=1, time=5.0)
    wait_until(lambda: len(reporter._outbox._failed) == 2, "both batches failed")
    with pytest.raises(DeliveryError) as caught:
        reporter.report([], epsilon=1)
    assert (caught.value.reports, caught.value.batches, caught.value.kept) == (4, 2, True)
    assert "timed out" in caught.value.first_error
    assert "repeat it" in caught.value.__notes__[0]
    reporter.report([], epsilon=1)  # told once, it may go on
    with pytest.raises(DeliveryError):
        reporter.close()


def test_too_much_that_failed_stops_new_reports(
    door: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.device.reporter.KEPT_BYTES", 0)
    reporter = Reporter(LATE, {**IMPATIENT, "bootstrap.servers": address(door)})
    reporter.report(1.0, epsilon=1)
    report = partial(reporter.report, 1.0, epsilon=1)
    for use in (reporter.flush, report, reporter.close):
        with pytest.raises(DeliveryError, match="1 reports in 1 batches"):
            use()
