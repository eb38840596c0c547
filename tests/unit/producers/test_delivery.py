"""Nothing is lost in silence: what Kafka does not acknowledge is kept, counted and said."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from deploy.kafka.cluster import free_ports
from producers import Connection, DeliveryError, Reporter
from tests.support.clocks import wait_until
from tests.support.running.broker import LATE, Broker, count
from tests.support.running.proxy import Network, Proxy


@pytest.fixture
def door(broker: Broker) -> Iterator[Proxy]:
    """A way to the broker that is closed."""
    port = int(broker.servers.split(",")[0].rpartition(":")[2])
    with Network() as network:
        proxy = network.proxy(free_ports(1)[0], lambda: port)
        proxy.refuse()
        yield proxy


def impatient(door: Proxy) -> dict[str, Any]:
    """Return the configuration of a client that goes through it."""
    return {
        "bootstrap.servers": f"127.0.0.1:{door.port}",
        "message.timeout.ms": 300,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "log_level": 0,
    }


def test_what_is_not_acknowledged_is_sent_again(broker: Broker, topic: str, door: Proxy) -> None:
    with Reporter(LATE, impatient(door), topic=topic, batch_reports=2) as reporter:
        reporter.report([1.0] * 5, epsilon=1, time=5.0)
        with pytest.raises(DeliveryError) as caught:
            reporter.flush(timeout=60)
        assert (caught.value.reports, caught.value.batches, caught.value.kept) == (5, 3, True)
        assert "timed out" in caught.value.first_error
        assert str(door.port) in str(caught.value)
        assert "flush() sends them again" in str(caught.value)

        door.heal()

        def is_flushed() -> bool:  # it may take a moment until the client finds the open door
            with suppress(DeliveryError):
                reporter.flush(timeout=60)
            return reporter.delivered.reports == 5

        wait_until(is_flushed, "what failed has arrived")
    assert LATE.counts(count(LATE, broker.batches(topic))).sum() == 5


def test_an_address_that_is_no_brokers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.delivery.server_probe.PROBE_SECONDS", 60.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        reporter = Reporter(LATE, {"bootstrap.servers": address, "log_level": 0})
        reporter.report(1.0, epsilon=1)
        for use in (reporter.flush, reporter.close):
            with pytest.raises(DeliveryError, match=f"{address} is an HTTP server without TLS"):
                use(timeout=0.1)
        server.shutdown()


def test_leaving_a_reporter_raises_what_was_lost_or_notes_it(door: Proxy) -> None:
    config = impatient(door)

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


def test_closing_a_connection_closes_every_reporter_and_names_every_loss(door: Proxy) -> None:
    connection = Connection({**impatient(door), "queue.buffering.max.messages": 1})
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


def test_the_next_report_says_what_failed_for_good_and_once(door: Proxy) -> None:
    reporter = Reporter(LATE, impatient(door), batch_reports=2)
    reporter.report([1.0] * 4, epsilon=1, time=5.0)
    wait_until(lambda: len(reporter._outbox.failed) == 2, "both batches failed")
    with pytest.raises(DeliveryError) as caught:
        reporter.report([], epsilon=1)
    assert (caught.value.reports, caught.value.batches, caught.value.kept) == (4, 2, True)
    assert "timed out" in caught.value.first_error
    assert "repeat it" in caught.value.__notes__[0]
    reporter.report([], epsilon=1)  # told once, it may go on
    with pytest.raises(DeliveryError):
        reporter.close()


def test_too_many_failures_stop_new_reports(door: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.kafka.transport.KEPT_BYTES", 0)
    reporter = Reporter(LATE, impatient(door))
    reporter.report(1.0, epsilon=1)
    for use in (reporter.flush, partial(reporter.report, 1.0, epsilon=1), reporter.close):
        with pytest.raises(DeliveryError, match="1 reports in 1 batches"):
            use()
