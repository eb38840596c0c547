"""A device's rules against strings: what leaves it, what it counts, what a server cannot change."""

from pathlib import Path
from typing import Any

import pytest

from estimators import DenyRule, LocalMetric, SeededBits, define
from producers import Ledger, Reporter
from tests.support.metrics import frequency_metric
from tests.support.running.broker import Broker

EMAIL = {"presets": ["email"]}
STRINGS = ["/home", "ann@example.org", "/users/17", "/home"]


def of_strings(**keys: Any) -> LocalMetric:
    return frequency_metric("page", "count_sketch", "open", [1, 4], **keys)


def sent(broker: Broker, metric: LocalMetric, strings: Any, **more: Any) -> bytes:
    """Return the reports that a new reporter sends, all with the same random words.

    A list is sent 50 times: two strings have one report in common far more often than 50.
    """
    ledger, topic = more.pop("ledger", None), broker.topic()
    with Reporter(metric, broker.config, topic=topic, bits=SeededBits(7), **more) as reporter:
        reporter.report(strings * 50 if isinstance(strings, list) else strings, 4, ledger=ledger)
    return bytes(broker.batches(topic)[0].values)


def test_what_is_denied_is_sent_as_other_and_counted_there(broker: Broker, topic: str) -> None:
    metric = of_strings(deny=EMAIL)
    with Reporter(
        metric, broker.config, topic=topic, deny=lambda text: text.startswith("/users/")
    ) as reporter:
        reporter.report(STRINGS, epsilon=1)
        reporter.report("bob@example.org", epsilon=1)
        reporter.report("/home", epsilon=1)
        assert reporter.denied == 3
        reporter.flush()
        assert reporter.delivered.reports == 6
    own = sent(broker, metric, STRINGS, deny=DenyRule(patterns=["/users/*"]))
    assert own == sent(broker, of_strings(), ["/home", "other", "other", "/home"])


def test_a_server_that_loosens_its_rule_does_not_switch_off_the_devices_own(broker: Broker) -> None:
    own = DenyRule(presets=["email"])
    expected = sent(broker, of_strings(), ["/home", "other", *STRINGS[2:]])
    for rule in (EMAIL, None, {"strings": ["x"]}, {"longer_than": 10**6}):
        assert sent(broker, of_strings(deny=rule), STRINGS, deny=own) == expected


def test_a_device_that_ships_its_definition_sees_that_the_rule_was_loosened() -> None:
    shipped, served = of_strings(deny=EMAIL), of_strings(deny={"strings": ["x"]})
    assert shipped.fingerprint != served.fingerprint


def test_a_denied_string_costs_what_every_string_costs(broker: Broker, tmp_path: Path) -> None:
    metric, sizes = of_strings(deny=EMAIL), set()
    for number, text in enumerate(["/home", "ann@example.org", "x@y.zz " * 100]):
        ledger = Ledger(tmp_path / str(number), budget=9)
        sizes.add(len(sent(broker, metric, text, ledger=ledger)))
        assert float(ledger.accounts()["page"].spent) == 4
    assert len(sizes) == 1


def test_a_rule_sees_the_normal_form(broker: Broker) -> None:
    seen: list[str] = []

    def notes(text: str) -> bool:
        seen.append(text)
        return False

    sent(broker, of_strings(), "e\u0301", deny=notes)
    assert seen == ["é"]


def test_a_rule_that_fails_reports_nothing(broker: Broker, topic: str, tmp_path: Path) -> None:
    def fails(text: str) -> bool:
        raise RuntimeError("no list")

    ledger = Ledger(tmp_path / "ledger", budget=9)
    with Reporter(of_strings(), broker.config, topic=topic, deny=fails) as reporter:
        with pytest.raises(RuntimeError, match="no list"):
            reporter.report("/home", epsilon=1, ledger=ledger)
        assert reporter.denied == 0
        reporter.flush()
        assert reporter.delivered.reports == 0
    assert ledger.accounts()[""].spent == 0


def test_only_strings_are_denied(broker: Broker, topic: str) -> None:
    metric = define(name="late", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
    with pytest.raises(ValueError, match="deny for 'late': expected a metric of strings"):
        Reporter(metric, broker.config, topic=topic, deny=DenyRule(longer_than=1))
    with (
        Reporter(of_strings(deny=EMAIL), broker.config, topic=topic) as reporter,
        pytest.raises(ValueError, match="expected a string"),
    ):
        reporter.report([1.5], epsilon=1)
