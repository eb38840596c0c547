"""Refuses partitions that another deployment counts, and logs of another Kafka cluster.

A deployment is the workers of one Redis. Its name is in the owner's hash of each partition, and in
the metadata of the offsets that its workers commit. An emptied Redis gets a new name.
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
"""Fields of the owner's hash of a partition."""
NAME_BYTES = 8
WATCHED_INTERVALS = 5
"""For this many commit intervals, a foreign name is watched for new commits."""
RIVAL_COMMITS = 3
"""This many commits of a partition prove a rival; a worker with an emptied Redis makes fewer."""
RIVAL_CHECK_SECONDS = 15.0
"""The time between two checks of all commits of the group."""


@dataclasses.dataclass
class RivalCommits:
    """The commits under another deployment's name."""

    since: float  # monotonic seconds of the first check
    changed_at: float  # monotonic seconds of the last check with a new commit
    # Commit times by partition.
    commits: dict[int, set[int]] = dataclasses.field(default_factory=dict)


class OriginCheck:
    """Checks whether another deployment counts the partitions, or the log is of another cluster."""

    def __init__(
        self, store: Store, inspector: LogInspector, settings: Aggregate, clock: Clock
    ) -> None:
        self._store, self._inspector, self._clock = store, inspector, clock
        self._group, self._name, self._rival = settings.group, "", ""
        self._patience = WATCHED_INTERVALS * milliseconds(settings.commit_interval) / 1000
        self._look_at = float("-inf")
        self._watched: dict[str, RivalCommits] = {}

    def check(self, number: int) -> dict[str, str | int]:
        """Return the owner's fields that name the origin of a partition's log.

        Raises
        ------
        OtherCluster
            If the sums are of another Kafka cluster.
        OtherDeployment
            If another deployment commits offsets in the group; from then on every partition is
            refused, until a person decides.
        OtherDeploymentSuspected
            If another deployment has committed offsets in the group, and may do so again.
        """
        owner, (cluster, partitions) = self._store.owner(number), self._inspector.cluster_topic()
        if is_another(owner.get(CLUSTER_FIELD, ""), cluster):
            raise OtherCluster(number, owner[CLUSTER_FIELD], cluster)
        names = self._deployment_names(owner, partitions)
        self._refuse_rival()
        progress = self._inspector.committed_progress([number]).get(number)
        if progress and progress.deployment and progress.deployment not in names:
            self._note_rival_commits(names, partitions)
            self._refuse_rival()
            watched = self._watched.get(progress.deployment)
            if watched is None or self._clock.monotonic() < watched.since + self._patience:
                raise OtherDeploymentSuspected(progress.deployment, self._patience)
        origin: dict[str, str | int] = {DEPLOYMENT_FIELD: self._name}
        return origin | ({CLUSTER_FIELD: cluster} if cluster else {})

    def finds_rival(self) -> bool:
        """Return whether another deployment commits offsets in the group; ask Kafka every 15 s."""
        now = self._clock.monotonic()
        if not self._rival and now >= self._look_at:
            self._look_at = now + RIVAL_CHECK_SECONDS
            _, partitions = self._inspector.cluster_topic()
            self._note_rival_commits(self._deployment_names({}, partitions), partitions)
        return bool(self._rival)

    def _refuse_rival(self) -> None:
        if self._rival:
            raise OtherDeployment(self._group, self._rival, self._name)

    def _deployment_names(self, owner: Mapping[str, str], partitions: Sequence[int]) -> set[str]:
        """Return the deployment names in this Redis, and this worker's: one of them, or new."""
        names = self._store.partition.deployments(partitions)
        if stored_name := owner.get(DEPLOYMENT_FIELD):
            self._name = stored_name
        elif names and self._name not in names:
            self._name = min(names)
        self._name = self._name or os.urandom(NAME_BYTES).hex()
        return {*names, self._name}

    def _note_rival_commits(self, names: set[str], partitions: Sequence[int]) -> None:
        """Record commits under names that are not in `names`; drop names without recent commits."""
        now, committing = self._clock.monotonic(), set()
        for number, progress in self._inspector.committed_progress(partitions).items():
            name = progress.deployment
            if not name or name in names:
                continue
            committing.add(name)
            watched = self._watched.setdefault(name, RivalCommits(now, now))
            commits = watched.commits.setdefault(number, set())
            if progress.at not in commits:
                commits.add(progress.at)
                watched.changed_at = now
            if len(commits) >= RIVAL_COMMITS:
                self._rival = name
        for name, watched in list(self._watched.items()):
            forgotten_at = watched.changed_at + 2 * max(self._patience, RIVAL_CHECK_SECONDS)
            if name not in committing and now > forgotten_at:
                del self._watched[name]
