"""Whose commits a worker meets: another deployment's, or those of a Redis that was lost."""

from typing import Any

import pytest

from aggregator.config.settings import Aggregate
from aggregator.counting.continuity import KnownProgress
from aggregator.counting.rival_deployments import RIVAL_CHECK_SECONDS, OriginCheck
from aggregator.errors import OtherDeployment, OtherDeploymentSuspected
from aggregator.storage.store import Store
from tests.support.clocks import Hands

OTHER = "0123456789abcdef"


class Group:
    """What is committed to a group, of three partitions."""

    def __init__(self) -> None:
        self.commits: dict[int, KnownProgress] = {}
        self._at = 0

    def commit(self, *numbers: int, deployment: str = OTHER) -> None:
        for number in numbers:
            self._at += 1
            self.commits[number] = KnownProgress(0, 5, "T", 0, deployment, self._at)

    def cluster_topic(self) -> tuple[str, list[int]]:
        return "C", [0, 1, 2]

    def committed_progress(self, numbers: list[int]) -> dict[int, KnownProgress]:
        return {number: self.commits[number] for number in numbers if number in self.commits}


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def check(store: Store, group: Group, clock: Hands) -> OriginCheck:
    inspector: Any = group
    return OriginCheck(store, inspector, Aggregate(), clock)


def suspected(check: OriginCheck, clock: Hands, seconds: int = 4) -> None:
    """Ask every second about partition 0, which must not be counted yet."""
    for _ in range(seconds):
        with pytest.raises(OtherDeploymentSuspected):
            check.check(0)
        clock.now += 1


def test_a_lost_redis_gets_a_name_once_free(check: OriginCheck, group: Group, clock: Hands) -> None:
    """One commit of each partition may have been under way."""
    group.commit(0, 1, 2)
    suspected(check, clock, 2)
    group.commit(0, 1, 2)
    suspected(check, clock, 3)
    name = str(check.check(0)["deployment"])
    assert len(name) == len(OTHER)
    assert name != OTHER
    assert {str(check.check(number)["deployment"]) for number in (1, 2)} == {name}
    assert not check.finds_rival()


def test_a_name_without_commits_is_gone(check: OriginCheck, group: Group, clock: Hands) -> None:
    group.commit(0)
    suspected(check, clock, 1)
    clock.now += 10 * RIVAL_CHECK_SECONDS
    assert check.check(0)["deployment"] != OTHER


def test_who_meets_another_counts_nothing(check: OriginCheck, group: Group, clock: Hands) -> None:
    group.commit(0, 1)
    for _ in range(2):
        suspected(check, clock, 1)
        group.commit(1)
    with pytest.raises(OtherDeployment, match=OTHER):
        check.check(0)
    clock.now += 1000
    with pytest.raises(OtherDeployment):
        check.check(2)


def test_a_deployment_that_joins_later_is_noticed_and_ones_own_partitions_are_known(
    check: OriginCheck, group: Group, clock: Hands, store: Store
) -> None:
    own = str(check.check(0)["deployment"])
    store.client.hset(f"{{dither:{store.topic}:1}}:owner", "deployment", "fedcba9876543210")
    group.commit(0, deployment=own)
    group.commit(1, deployment="fedcba9876543210")
    assert check.check(1)["deployment"] == "fedcba9876543210"
    for _ in range(3):
        assert not check.finds_rival()
        group.commit(1, deployment="fedcba9876543210")
        group.commit(2)
        clock.now += RIVAL_CHECK_SECONDS
    assert check.finds_rival()
