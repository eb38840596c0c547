"""What pages say while something is away: nothing unknown is shown as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site, Visitor

NOWHERE = "127.0.0.1:9"
"""Where no broker is."""


@pytest.fixture
def without_kafka(
    site: Site, site_of: Callable[..., contextlib.AbstractContextManager[Site]]
) -> Iterator[Site]:
    """A second server of the same deployment, which does not reach Kafka."""
    flags = [f"kafka.bootstrap.servers={NOWHERE}", "publish.enabled=false"]
    with site_of(site.deployment, *flags) as lost:
        yield lost


def test_a_report_that_cannot_be_delivered_is_told_and_may_be_sent_again(
    without_kafka: Site, visitor: Visitor
) -> None:
    page = visitor.open(f"{without_kafka.url}/try#metric=wait")
    page.get_by_role("button", name="Randomize and send").click()
    result = page.get_by_role("region", name="What was sent")
    expect(result.locator(".notice.danger")).to_contain_text("Kafka does not answer", timeout=6_000)
    expect(result).not_to_contain_text("Sending")
    again = page.get_by_role("button", name="Send the same report again")
    expect(again).to_be_visible()
    again.click()
    expect(result).to_contain_text("Sending")
    expect(result.locator(".notice.danger")).to_contain_text("Kafka does not answer")
    visitor.expect("503")
