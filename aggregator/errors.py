"""The service's errors; each message says what to do."""

from __future__ import annotations

from aggregator.secrets import masked

MAX_SHOWN_CHARACTERS = 200


class DitherError(Exception):
    """An expected failure, which commands show as a message without a traceback."""


def recount_command(partition: int | str) -> str:
    """Return the command that counts a partition again, by its number or its `topic:number`."""
    return f"dither recount {str(partition).rpartition(':')[2]}"


class SettingsError(DitherError):
    """A setting that cannot be used."""

    def __init__(self, key: str, value: object, expected: str, source: str) -> None:
        self.key, self.value, self.expected, self.source = key, value, expected, source
        super().__init__(f"{source}: {key} = {value!r}: expected {expected}")


class BrokerUnreachable(DitherError):  # noqa: N818
    """No Kafka broker answers."""

    def __init__(self, servers: str, detail: str) -> None:
        shown = masked("kafka.bootstrap.servers", servers)
        super().__init__(
            f"no Kafka broker answers at {shown} ({detail}): start one (`dither "
            "kafka`, or deploy/compose.yaml), or name yours with --kafka, "
            "DITHER_KAFKA_BOOTSTRAP_SERVERS or [kafka] bootstrap.servers in dither.toml"
        )


class TopicGone(BrokerUnreachable):
    """Kafka's brokers answer, but none has the topic."""

    def __init__(self, topic: str) -> None:
        DitherError.__init__(
            self,
            f"topic {topic!r} is gone: a broker answers but has no such topic, or not all its "
            "partitions (it was deleted, or this user has no permission to see it). Bring it "
            "back, or create it with `dither topics`; docs/operations.md#a-topic-is-gone",
        )


class BrokerRefused(DitherError):  # noqa: N818
    """A Kafka broker refuses this client."""

    def __init__(self, servers: str, detail: str) -> None:
        super().__init__(f"Kafka at {masked('kafka.bootstrap.servers', servers)} {detail}")


class StoreUnreachable(DitherError):  # noqa: N818
    """Redis does not answer, or the server that answers is not Redis."""


class StateUnreadable(DitherError):  # noqa: N818
    """Redis lost or changed what Dither wrote: retries are useless, estimates impossible.

    Attributes
    ----------
    stored, expected : str
        The stored and the expected value, as text.
    fact, remedy : str
        Sentences about the value, and about what to do if Redis cannot be restored.
    """

    def __init__(self, key: str, stored: str, expected: str) -> None:
        self.key, self.stored, self.expected = key, stored, expected
        tag, brace, _ = key.partition("}")
        if key.startswith("{dither:") and brace:
            remedy = f"run `{recount_command(tag)}`: it counts the partition again from its log"
        else:
            remedy = "delete the key"
        self.fact = f"Redis has {stored[:MAX_SHOWN_CHARACTERS]} at {key}: expected {expected}"
        self.remedy = f"{remedy}; docs/operations.md#a-stored-value-cannot-be-read"
        super().__init__(f"{self.fact}. Restore Redis, or {self.remedy}")


class UnknownComparison(DitherError):  # noqa: N818
    """A comparison that metrics.toml does not define."""

    def __init__(self, name: str, suggestion: str) -> None:
        self.name = name
        super().__init__(f"comparison {name!r} is not defined in metrics.toml: {suggestion}")


class UnknownMetric(DitherError):  # noqa: N818
    """A metric that metrics.toml does not define."""

    def __init__(self, name: str, suggestion: str) -> None:
        self.name = name
        super().__init__(f"metric {name!r} is not defined in metrics.toml: {suggestion}")


class Fenced(DitherError):  # noqa: N818
    """The stored state of a partition is not the one that this worker wrote.

    Parameters
    ----------
    partition : str
        The topic and the number, as "topic:partition".
    epoch, stored_epoch : int
        This worker's epoch and the stored epoch, which is higher if there is another owner.
    expected, stored : int
        The next offset of this worker, and the stored next offset.
    """

    def __init__(
        self, partition: str, epoch: int, stored_epoch: int, expected: int, stored: int
    ) -> None:
        self.partition, self.epoch, self.stored_epoch = partition, epoch, stored_epoch
        self.expected, self.stored = expected, stored
        super().__init__(
            f"{partition}: epoch {epoch} at offset {expected}, but the store is at "
            f"epoch {stored_epoch}, offset {stored}"
        )

    @property
    def has_other_owner(self) -> bool:
        """Whether another worker took over the partition; if not, the store has lost writes."""
        return self.stored_epoch > self.epoch


class PartialCommit(Fenced):
    """A commit failed after a part of its writes: the partition's sums cannot be trusted.

    `failure` has the failed command, its key and Redis's answer.
    """

    def __init__(self, partition: str, epoch: int, expected: int, failure: str) -> None:
        super().__init__(partition, epoch, epoch, expected, -2)
        self.args = (
            f"a commit failed half-way, at {failure}, so the sums in Redis cannot be trusted. "
            f"Run `{recount_command(partition)}` to count the partition again from its log; "
            "docs/operations.md#a-commit-failed-half-way",
        )


class CommitTooLarge(DitherError):  # noqa: N818
    """A commit of a partition would need more arguments than a call to Redis may have."""

    def __init__(self, partition: str, panes: int, keys: int) -> None:
        self.partition, self.panes = partition, panes
        super().__init__(
            f"{panes} panes and {keys} message keys of {partition} have changed at once, more than "
            "Redis accepts in one call. Give metrics wider panes or a shorter lateness, so that "
            "fewer are open at a time; then restart the workers"
        )


class OtherGroup(DitherError):  # noqa: N818
    """Another consumer group counts a partition into this Redis."""

    def __init__(self, prefix: str, group: str, other: str, worker: str) -> None:
        super().__init__(
            f"the consumer group {other!r} counts this partition into the same Redis (worker "
            f"{worker}), and this worker is of {group!r}: the two would fence each other. Give "
            "each group its own Redis or its own database of it; or run all workers with "
            f"`--set aggregate.group={other}`. To hand over to {group!r}, stop the others and run "
            f"`redis-cli hdel '{prefix}:owner' group`; docs/operations.md#two-groups-on-one-redis"
        )


class OtherDeployment(DitherError):  # noqa: N818
    """Workers that count into another Redis commit offsets in this consumer group."""

    def __init__(self, group: str, other: str, name: str) -> None:
        super().__init__(
            f"the consumer group {group!r} has commits of another deployment ({other}; this one is "
            f"{name}), and they go on: it counts the same topic into another Redis, and each would "
            "count a part of it. Give one of the two a group of its own, with `--set "
            "aggregate.group=NAME` for all of its workers, and restart the workers of both; "
            "docs/operations.md#two-deployments-in-one-group"
        )


class OtherDeploymentSuspected(DitherError):  # noqa: N818
    """Another deployment has committed offsets in the consumer group, and may do so again."""

    def __init__(self, other: str, seconds: float) -> None:
        super().__init__(
            f"another deployment ({other}) has committed to this consumer group: nothing is "
            f"counted for {seconds:g} s, until it is known whether it still does"
        )


class OtherCluster(DitherError):  # noqa: N818
    """The sums in Redis belong to the log of another Kafka cluster."""

    def __init__(self, partition: int, stored_cluster: str, cluster: str) -> None:
        super().__init__(
            f"the sums of partition {partition} in this Redis are of the Kafka cluster "
            f"{stored_cluster!r}, and kafka.bootstrap.servers leads to {cluster!r}: its log is "
            "another one. Correct the address, or give this cluster a Redis (or a database of it) "
            "of its own; docs/operations.md#another-kafka-cluster"
        )
