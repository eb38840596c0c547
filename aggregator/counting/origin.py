"""Refuses to count what another deployment counts, or the log of another Kafka cluster.

A deployment is the workers of one Redis. Its name is in the owner's hash of each partition, and in
the metadata of what its workers commit to the consumer group. A Redis that has lost everything gets
another name: nobody commits under the old one any more.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from aggregator.clock import Clock
from aggregator.config.settings import Aggregate
from aggregator.counting.continuity import is_another
from aggregator.counting.log_inspector import LogInspector
from aggregator.errors import OtherCluster, OtherDeployment, OtherDeploymentSuspected
from aggregator.storage.store import Store
from estimators.durations import milliseconds

DEPLOYMENT_FIELD, CLUSTER_FIELD = "deployment", "cluster"
"""Fields of a partition's owner."""
NAME_BYTES = 8
WATCHED_INTERVALS = 5
"""Of commits, for which a name that is not ours is watched for new ones."""
RIVAL_COMMITS = 3
"""Of one partition under another name: more than a worker may have had under way when Redis lost
everything."""
RIVAL_CHECK_SECONDS = 15.0
"""Between two looks at all commits of the group."""


@dataclasses.dataclass
class RivalCommits:
    """The commits under another deployment's name."""

    since: float  # monotonic seconds: of the first look, and of the last one with a new commit
    changed_at: float
    # When each partition was committed.
    commits: dict[int, set[int]] = dataclasses.field(default_factory=dict)


class OriginCheck:
    """Finds out whose commits and which cluster's log a worker meets."""

    def __init__(
        self, store: Store, inspector: LogInspector, settings: Aggregate, clock: Clock
    ) -> None:
        self._store, self._inspector, self._clock = store, inspector, clock
        self._group, self._name, self._rival = settings.group, "", ""
        self._patience = WATCHED_INTERVALS * milliseconds(settings.commit_interval) / 1000
        self._look_at = float("-inf")
        self._watched: dict[str, RivalCommits] = {}

    def check(self, number: int) -> dict[str, str | int]:
        """Return what the partition's owner shall say of its origin.

        Parameters
        ----------
        number : int

        Raises
        ------
        OtherCluster
            If its sums are of another Kafka cluster.
        OtherDeployment
            If another deployment commits to the consumer group. From then on no partition is
            counted: whose they are is for a person to decide.
        OtherDeploymentSuspected
            If it did: to be asked again, until it is known whether it still does.
        """
        owner, (cluster, partitions) = self._store.owner(number), self._inspector.place()
        if is_another(owner.get(CLUSTER_FIELD, ""), cluster):
            raise OtherCluster(number, owner[CLUSTER_FIELD], cluster)
        names = self._names(owner, partitions)
        self._refuse_rival()
        progress = self._inspector.committed([number]).get(number)
        if progress and progress.deployment and progress.deployment not in names:
            self._look(names, partitions)
            self._refuse_rival()
            watched = self._watched.get(progress.deployment)
            if watched is None or self._clock.monotonic() < watched.since + self._patience:
                raise OtherDeploymentSuspected(progress.deployment, self._patience)
        origin: dict[str, str | int] = {DEPLOYMENT_FIELD: self._name}
        return origin | ({CLUSTER_FIELD: cluster} if cluster else {})

    def finds_rival(self) -> bool:
        """Return whether another deployment commits to the group; look every now and then."""
        now = self._clock.monotonic()
        if not self._rival and now >= self._look_at:
            self._look_at = now + RIVAL_CHECK_SECONDS
            partitions = self._inspector.place().partitions
            self._look(self._names({}, partitions), partitions)
        return bool(self._rival)

    def _refuse_rival(self) -> None:
        if self._rival:
            raise OtherDeployment(self._group, self._rival, self._name)

    def _names(self, owner: Mapping[str, str], partitions: Sequence[int]) -> set[str]:
        """Return the names that this Redis has, and this worker's; choose that if need be."""
        names = self._store.partition.deployments(partitions)
        if stored_name := owner.get(DEPLOYMENT_FIELD):
            self._name = stored_name
        elif names and self._name not in names:
            self._name = min(names)
        self._name = self._name or os.urandom(NAME_BYTES).hex()
        return {*names, self._name}

    def _look(self, names: set[str], partitions: Sequence[int]) -> None:
        """Note the commits under other names; those that do not go on are forgotten."""
        now = self._clock.monotonic()
        for number, progress in self._inspector.committed(partitions).items():
            name = progress.deployment
            if not name or name in names:
                continue
            watched = self._watched.setdefault(name, RivalCommits(now, now))
            commits = watched.commits.setdefault(number, set())
            if progress.at not in commits:
                commits.add(progress.at)
                watched.changed_at = now
            if len(commits) >= RIVAL_COMMITS:
                self._rival = name
        for name, watched in list(self._watched.items()):
            if now > watched.changed_at + 2 * max(self._patience, RIVAL_CHECK_SECONDS):
                del self._watched[name]
