"""Definitions that change while the service runs: nothing is lost, and the log still proves all."""

from typing import Any

import pytest

from aggregator.config.live_metrics import LiveMetrics
from aggregator.storage.redis_keys import definitions_key
from estimators import load_metrics
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.metrics import METRICS
from tests.support.rows import row
from tests.support.running.deployment import Deployment, wait_until

ADDED = """
clicked = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [1], \
pane = "1h"}
"""
SIZE, HOUR = 20, 3_600_000


def reports(deployment: Deployment, name: str, numbers: range) -> list[tuple[int, bytes]]:
    """Return batches of a metric as the file now defines it, an hour each, over all partitions."""
    metric = load_metrics(deployment.metrics_file)[name]
    found = []
    for number in numbers:
        value = 0 if metric.kind == "frequency" else 0.5
        one = batch(metric, [value] * SIZE, 1, EPOCH + number * HOUR, seed=number)
        found.append((number % deployment.partitions, one.SerializeToString()))
    return found


@pytest.fixture
def live(deployment: Deployment) -> Deployment:
    """A deployment whose workers follow their file; 60 batches of delay are in the log."""
    deployment.metrics = LiveMetrics(deployment.metrics_file)
    deployment.produce(reports(deployment, "delay", range(60)))
    return deployment


def redefine(deployment: Deployment, text: str) -> None:
    """Replace the file at once, as whoever deploys does."""
    fresh = deployment.metrics_file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(deployment.metrics_file)


CHANGES = [
    [('lateness = "1h"', 'lateness = "30h"')],
    [('lateness = "1h"', 'lateness = "0s"')],
    [('unit = "minutes"', "max_batch_reports = 5")],
    [('unit = "minutes"', "max_key_reports = 25")],
    [("delay = {", "delayed = {")],
    [],
    [("range = [-60, 180]", "range = [-60, 200]")],
    [('by = ["country"]', "by = []")],
    [('["DE", "FR"]', '["DE", "FR", "GB"]')],
    [('["DE", "FR"]', '["DE", "FR", "GB", "IT"]')],
    [('by = ["country"]', 'by = ["country"], by_pane = "2h"')],
]


@pytest.mark.more
def test_each_message_is_verified_by_the_definitions_that_counted_it(live: Deployment) -> None:
    first = 58  # reports that only the first of the changes does not find late
    with live.worker():
        live.wait_until_counted()
        for changes in CHANGES:
            with row(*changes):
                text = METRICS
                for old, new in changes:
                    assert old in text
                    text = text.replace(old, new)
                redefine(live, text)
                metrics = load_metrics(live.metrics_file)
                wait_until(lambda metrics=metrics: metrics == dict(live.metrics), "redefined")  # type: ignore[misc]
                name = "delayed" if "delayed = {" in text else "delay"
                live.produce(reports(live, name, range(first, first + 30)))
                live.wait_until_counted()
                first += 100
    outcome = live.verify()
    assert outcome.verified, [str(one) for one in outcome.differences][:5]
    assert len(outcome.definitions) >= len(CHANGES)
    counts = live.counts()
    assert counts["accepted:delayed"] == 30 * SIZE
    assert counts["too_many_reports:delay"] == 30 * SIZE


def kept(deployment: Deployment) -> set[str]:
    """Return the digests of the definitions that Redis has."""
    return set(deployment.store.registry.definitions())


def test_lost_definitions_are_rewritten(live: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = live.store.client
    client.lpush(definitions_key(live.topic), "a list")
    with live.worker():
        live.wait_until_counted()
    client.delete(definitions_key(live.topic))
    with live.worker():
        wait_until(lambda: bool(kept(live)), "they are kept")
    before = kept(live)
    client.delete(definitions_key(live.topic))
    with live.worker():
        wait_until(lambda: kept(live) == before, "a worker that starts has written them again")
        client.set("other type", "")
        client.rename("other type", definitions_key(live.topic))
    monkeypatch.setattr("aggregator.counting.committer.DEFINITIONS_SECONDS", 0.1)
    with live.worker():
        live.produce(reports(live, "delay", range(100, 130)))
        live.wait_until_counted()
        client.delete(definitions_key(live.topic))
        wait_until(lambda: kept(live) == before, "a worker that runs has written them again")
    assert live.verify().verified


def test_messages_of_lost_definitions_are_named_and_the_others_verified(live: Deployment) -> None:
    client: Any = live.store.client
    with live.worker():
        live.wait_until_counted()
        redefine(live, METRICS.replace('lateness = "1h"', 'lateness = "2h"'))
        wait_until(lambda: all(live.owners("definitions:10")), "the new ones are in force")
        live.produce(reports(live, "delay", range(100, 130)))
        live.wait_until_counted()
    client.delete(definitions_key(live.topic))
    outcome = live.verify()
    assert outcome.differences == outcome.unverifiable == []
    assert [one.partition for one in outcome.unjudged] == [*range(live.partitions)]
    first = next(one for one in outcome.unjudged if one.partition == 0)
    assert "offsets 0 to 9 cannot be judged" in first.detail
    assert "Panes that began at offset 10 or later are compared" in first.detail
    assert outcome.messages == 30
    assert outcome.panes >= 25, "those of the later definitions"
    panes = client.scan_iter(match=f"{{dither:{live.topic}:*}}:pane:delay@*")
    client.setrange(max(panes, key=lambda key: int(key.rpartition(b":")[2])), 3, b"7")
    assert len(live.verify().differences) == 1
    assert live.dither("verify", "--allow-truncated").returncode == 1
    redefine(live, METRICS.replace('lateness = "1h"', 'lateness = "3h"'))
    live.metrics = LiveMetrics(live.metrics_file)
    outcome = live.verify()
    assert outcome.messages == 0
    assert "A running worker writes the current definitions again" in outcome.unjudged[0].detail


def test_an_unusable_file_changes_nothing_and_halted_partitions_go_on(live: Deployment) -> None:
    live.settings.aggregate.deadletter_ratio = 0.5
    live.settings.aggregate.deadletter_window = 20
    redefine(live, METRICS + ADDED)
    early = [(0, payload) for _, payload in reports(live, "clicked", range(40))]
    redefine(live, METRICS)
    with live.worker():
        redefine(live, METRICS.replace("levels = [1, 4]", "levels = [-1]"))
        live.wait_until_counted()
        assert not LiveMetrics.refresh(live.metrics)  # type: ignore[arg-type]
        wait_until(
            lambda: all("[-1]: expected" in one for one in live.owners("unusable")),
            "workers say why",
        )
        live.produce(early)
        wait_until(lambda: "deadletter_ratio" in live.store.owner(0).get("halted", ""), "halted")
        redefine(live, METRICS + ADDED)
        live.wait_until_counted()
        wait_until(lambda: set(live.owners("unusable")) == {""}, "all is well")
    assert live.counts() == {"accepted:delay": 60 * SIZE, "accepted:clicked": 40 * SIZE}
    assert live.store.owner(0)["halted"] == ""
    assert live.verify().verified
