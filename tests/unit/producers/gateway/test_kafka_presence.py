"""A Kafka that is slow is not away, and one of which nothing is known is not there."""

import threading

import pytest

from producers.gateway import kafka_presence
from producers.gateway.kafka_presence import KafkaPresence


@pytest.mark.parametrize(("takes", "is_away"), [(3.0, False), (30.0, True)])
def test_patience_is_in_proportion_to_what_kafka_takes(
    takes: float, is_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_presence, "AGAIN_SECONDS", 0.0)
    now, asked, left = 1e6, list[float](), threading.Event()

    def ask(seconds: float) -> bool:
        nonlocal now
        now += min(takes, seconds)
        asked.append(seconds)
        return takes <= seconds

    watching = KafkaPresence(ask, left.set, lambda: now)
    watching.start()
    assert watching.check(60.0) is not is_away
    now += 10
    assert watching.check(60.0) is not is_away
    watching.close()
    watching._thread.join(60.0)
    watching.confirm()  # as an acknowledgement does
    assert not watching.is_away
    assert left.is_set() is is_away
    assert asked[:3] == [1, 2, 4]
    assert is_away or asked[3:] == [12]


def test_what_has_not_answered_yet_is_neither_away_nor_known_to_be_there() -> None:
    asked, answered = threading.Event(), threading.Event()

    def ask(seconds: float) -> bool:
        asked.set()
        answered.wait(60.0)
        return False

    watching = KafkaPresence(ask, lambda: None)
    watching.start()
    assert not watching.check(0.0)
    assert not watching.is_away
    assert asked.wait(60.0)
    watching.close()
    answered.set()
