"""What a worker's log says of Kafka while it is away."""

from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from aggregator.kafka.clients import ThrottledErrorLog

REFUSED = KafkaError(KafkaError._TRANSPORT, "localhost:1: Connection refused")
BROKEN = KafkaError(
    KafkaError._TRANSPORT,
    "GroupCoordinator: localhost:1: Receive failed: Connection reset (after 394ms in state UP)",
)
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
WRONG = KafkaError(KafkaError._AUTHENTICATION, "wrong password")


def test_brokers_that_are_all_away_are_told_once_a_minute_with_the_cause() -> None:
    now = [0.0]
    complain = ThrottledErrorLog(lambda: now[0])
    with capture_logs() as logs:
        for second in range(119):
            now[0] = float(second)
            complain(REFUSED)
            complain(DOWN)
    assert [line["error"] for line in logs] == ["1/1 brokers are down"] * 2
    assert logs[0]["cause"] == "localhost:1: Connection refused"


def test_brokers_that_close_all_connections_and_take_new_ones_are_not_away() -> None:
    """As they do whenever a token has expired."""
    now = [0.0]
    complain = ThrottledErrorLog(lambda: now[0])
    with capture_logs() as logs:
        for hour in range(4):
            now[0] = 3600.0 * hour
            complain(BROKEN)
            complain(DOWN)
            complain(BROKEN)
            now[0] += 600
            complain(REFUSED)
    assert logs == []


def test_a_refusal_is_told_with_its_remedy() -> None:
    with capture_logs() as logs:
        ThrottledErrorLog()(WRONG)
    assert "check sasl.username" in logs[0]["error"]
