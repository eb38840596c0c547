"""A partition stops before too much is diverted, and goes on when somebody has decided."""

from __future__ import annotations

import functools

from structlog.testing import capture_logs

from estimators import define
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, wait_until

NOBODYS = define(name="nobodys", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
WIDE = define(
    name="wide", kind="frequency", mechanism="rappor", categories=1_000, levels=[1], pane="1h"
)
GARBAGE = batch(NOBODYS, [1.0]).SerializeToString()
"""Of a metric that is not defined: only what a wrong metrics.toml can cause halts a partition."""


def payloads(deployment: Deployment, metric: str, first: int, count: int) -> list[bytes]:
    question = deployment.metrics[metric]
    return [
        batch(question, [1.0], 2, EPOCH + n, n).SerializeToString()
        for n in range(first, first + count)
    ]


def halted(deployment: Deployment) -> str:
    """Run a worker until partition 0 is halted; return why."""
    with deployment.worker():
        wait_until(lambda: bool(deployment.store.owner(0).get("halted")), "halted")
        why = deployment.store.owner(0)["halted"]
        deployment.produce([(1, one) for one in payloads(deployment, "delay", 10**6, 1)])
        wait_until(lambda: int(deployment.store.owner(1).get("next", 0)) > 0, "others go on")
    return why


def diverted(deployment: Deployment, expected: int) -> set[int]:
    """Return the offsets of what is in the dead letters."""
    found = deployment.dead(expected)
    return {int(one["headers"]["__connect.errors.offset"]) for one in found}


def test_a_partition_full_of_nonsense_halts_before_the_message_that_is_too_much(
    deployment: Deployment,
) -> None:
    good = payloads(deployment, "delay", 0, 6)
    log = [*good[:3], *[GARBAGE] * 4, *good[3:], *[GARBAGE] * 20]
    deployment.produce([(0, one) for one in log])
    aggregate = deployment.settings.aggregate
    aggregate.deadletter_consecutive, aggregate.deadletter_span = 8, "0s"
    limit = 3 + 4 + 3 + 8 - 1
    why = halted(deployment)
    assert "messages in a row cannot be counted" in why
    assert "most of them unknown_metric" in why
    assert int(deployment.store.owner(0)["next"]) <= limit
    assert deployment.verify().verified, "it stands at an offset of the log"
    assert max(diverted(deployment, 0), default=0) < limit, "nothing past it is diverted"

    assert "unknown_metric" in halted(deployment), "nobody has decided"
    assert int(deployment.store.owner(0)["next"]) <= limit
    assert max(diverted(deployment, 0), default=0) < limit

    aggregate.deadletter_consecutive = 0
    with deployment.worker():
        deployment.wait_until_counted()
        wait_until(lambda: not deployment.store.owner(0).get("halted"), "no longer halted")
    assert diverted(deployment, 24) == {i for i, one in enumerate(log) if one == GARBAGE}
    assert deployment.counts()["accepted:delay"] >= 6
    assert deployment.verify().verified


def test_reports_of_a_forgotten_metric_are_counted_in_order_after_the_repair(
    deployment: Deployment,
) -> None:
    deployment.settings.aggregate.deadletter_consecutive = 5
    deployment.settings.aggregate.deadletter_span = "0s"
    deployment.produce([(0, one) for one in payloads(deployment, "delay", 0, 30)])
    everything, deployment.metrics = deployment.metrics, {"age": deployment.metrics["age"]}
    with deployment.worker(), capture_logs() as logged:
        wait_until(lambda: bool(deployment.store.owner(0).get("halted")), "halted")
    assert any(line["event"] == "halted" for line in logged)
    deployment.metrics = everything
    with deployment.worker():
        deployment.wait_until_counted()
    refused = deployment.counts().get("unknown_metric:", 0)
    assert deployment.counts()["accepted:delay"] == 30 - refused
    assert refused < 5


def test_a_row_goes_on_over_restarts(deployment: Deployment) -> None:
    deployment.settings.aggregate.deadletter_consecutive = 8
    deployment.settings.aggregate.deadletter_span = "0s"
    deployment.produce([(0, GARBAGE)] * 5)
    with deployment.worker():
        deployment.wait_until_counted()
    deployment.produce([(0, GARBAGE)] * 5)
    why = halted(deployment)
    assert "in a row" in why
    assert 5 <= int(deployment.store.owner(0)["next"]) < 8


def test_many_large_panes_that_close_at_once_are_counted_within_the_memory(
    deployment: Deployment,
) -> None:
    deployment.settings.aggregate.past = "36500d"
    deployment.metrics = {WIDE.name: WIDE}
    size, hour = WIDE.zero().nbytes, 3_600_000
    batches = [batch(WIDE, [1], 1, EPOCH + n * hour, n) for n in range(1000)]
    deployment.settings.aggregate.memory = 200 * size
    deployment.produce([(0, one.SerializeToString()) for one in batches])
    worker_memory = deployment.settings.aggregate.memory
    with deployment.worker() as worker:
        deployment.wait_until_counted()
        assert worker.owned[0].state.changed_bytes <= worker_memory // 4
    assert deployment.store.owner(0).get("halted", "") == ""
    assert deployment.counts() == {"accepted:wide": 1000}
    assert deployment.verify().verified


def test_open_panes_that_do_not_fit_halt_the_largest_partition(deployment: Deployment) -> None:
    deployment.produce([(0, one) for one in payloads(deployment, "delay", 0, 2000)])
    deployment.settings.aggregate.memory = 40_000
    assert "the open panes of this worker take" in halted(deployment)
    with deployment.worker() as worker:
        for number in (2, 3):
            deployment.produce([(number, one) for one in payloads(deployment, "delay", 0, 2000)])
            held = functools.partial(deployment.store.owner, number)
            wait_until(lambda: bool(held().get("halted")), "it does not fit, either")  # noqa: B023
            taken = sum(owned.open_bytes for owned in worker.owned.values())
            assert taken <= deployment.settings.aggregate.memory
    with deployment.worker() as worker:  # it takes over more than fits
        owned = worker.owned
        wait_until(lambda: sum(bool(owned[n].halted) for n in [*owned]) >= 2, "halted again")
        assert sum(owned[n].open_bytes for n in [*owned]) <= deployment.settings.aggregate.memory
    deployment.settings.aggregate.memory = 10**9
    with deployment.worker():
        deployment.wait_until_counted()
    assert deployment.verify().verified
