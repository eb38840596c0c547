"""What pages say while something is away: nothing unknown is shown as well."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aggregator.storage.parsing import LAST_COMMIT_MS
from aggregator.storage.redis_keys import tag
from tests.services.browser.conftest import FOLLOWS, METRICS, Site, Sites, Visitor, expect, until

pytestmark = pytest.mark.more

NOWHERE = "127.0.0.1:9"
"""Where no broker is."""
LONGEST = """Math.max(
  ...document.getAnimations().map((each) => each.effect.getComputedTiming().endTime),
)"""
"""Milliseconds until the last of the animations ends that run now; -Infinity if none does."""


@pytest.fixture
def without_kafka(site: Site, site_of: Sites) -> Iterator[Site]:
    """A second server of the same deployment, which does not reach Kafka."""
    late = "gateway.acknowledge_timeout=90s"  # who waits for it waits for longer than a test
    flags = [f"kafka.bootstrap.servers={NOWHERE}", "publish.enabled=false", late]
    with site_of(site.deployment, *flags) as lost:
        yield lost


def test_without_kafka_a_report_may_be_sent_again(without_kafka: Site, visitor: Visitor) -> None:
    page = visitor.open(f"{without_kafka.url}/try#metric=wait")
    page.get_by_role("button", name="Randomize and send").click()
    result = page.get_by_role("region", name="What was sent")
    expect(result.locator(".notice.danger")).to_contain_text("Kafka does not answer")
    expect(result).not_to_contain_text("Sending")
    again = page.get_by_role("button", name="Send the same report again")
    expect(again).to_be_visible()
    held: list[Any] = []
    page.route("**/v1/reports", lambda route: held.append(route), times=1)
    again.click()
    expect(result).to_contain_text("Sending")
    until(lambda: bool(held), page, "the report is posted again")
    held[0].continue_()
    expect(result.locator(".notice.danger")).to_contain_text("Kafka does not answer")
    visitor.expect("503")

    # a lag that Kafka does not tell is a dash
    page = visitor.open(without_kafka.url)
    tile = page.locator(".tile", has_text="Lag")
    expect(tile.locator(".note")).to_contain_text("unknown: Kafka does not answer")
    expect(tile.locator(".big")).to_have_text("\N{EN DASH}")
    expect(page.locator("#connection")).to_have_text(FOLLOWS)


def test_what_is_wrong_with_the_counts_is_not_told_as_a_server_that_is_away(
    site_of_metrics: Sites, site_of: Sites, visitor: Visitor
) -> None:
    """Nobody counts; then a pane is missing, and a metric is defined meanwhile."""
    with site_of_metrics(METRICS) as counted:
        counted.report("wait", np.full(200, 50.0), np.full(200, 4.0), "2026-01-01T12:00", 1)
        deployment = counted.deployment
    calm = ("publish.enabled=false", "aggregate.commit_interval=10m")  # silent after half an hour
    with site_of(deployment, *calm) as site:  # the worker has gone
        deployment.produce([(0, b"waits")] * 7)
        page = visitor.open(site.url, reduced_motion="no-preference")
        connection, alerts = page.locator("#connection"), page.locator("#alerts")
        tile = page.locator(".tile", has_text="Lag")
        expect(connection).to_have_text(FOLLOWS)
        assert page.evaluate(LONGEST) < 10_000, "an idle page is not drawn again and again"
        client: Any = deployment.store.client
        for number in deployment.store.partitions():
            mark = f"{tag(deployment.topic, number)}:committed"
            assert client.pexpire(mark, LAST_COMMIT_MS - 3_600_000)
        expect(connection).to_contain_text("No worker has counted since ")
        expect(connection).not_to_contain_text(FOLLOWS)
        expect(alerts).to_contain_text("start “dither aggregate”")
        expect(tile.locator(".big")).to_have_text("7")
        expect(tile.locator(".note")).to_contain_text("6 not counted")
        with deployment.worker():
            expect(connection).to_have_text(FOLLOWS)
            expect(tile.locator(".big")).to_have_text("0")
            expect(alerts).to_be_empty()

        # a worker that took the partition over would halt it
        client.delete(*client.keys("*}:pane:wait@*"))
        page.goto(f"{site.url}/#metric=wait&from=2026-01-01T00:00&to=2026-01-02T00:00")
        expect(alerts).to_contain_text("run `dither recount ")
        expect(alerts).not_to_contain_text("does not answer")
        expect(connection).to_have_text(FOLLOWS)
        expect(tile.locator(".big")).to_have_text("0")
        later = '[metrics.later]\nkind = "mean"\nrange = [0, 1]\nlevels = [1]\n'
        deployment.metrics_file.write_text(f"{METRICS}\n{later}")
        page.goto(site.url)
        for name in ("wait", "later"):
            expect(page.get_by_role("article", name=name, exact=True)).to_be_visible()
        page.close()
        visitor.expect("503")
