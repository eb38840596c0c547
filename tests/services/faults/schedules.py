"""Random schedules of faults: which, when and for how long, a function of a seed."""

from __future__ import annotations

import dataclasses
import random

SECONDS = 4.0
"""When the last fault begins at the latest; devices report until all are repaired."""

FAR_SEEDS, FAR_SECONDS = 10, 0.15
"""In a tenth of the schedules a round trip to the brokers takes so long."""

KINDS = {
    "worker killed": 5,
    "worker frozen": 4,
    "worker restarted": 3,
    "worker joins": 3,
    "worker leaves": 3,
    "server killed": 2,
    "server frozen": 2,
    "clock ahead": 2,
    "clock behind": 2,
    "broker killed": 2,
    "broker frozen": 1,
    "redis killed": 3,
    "redis loses its last writes": 3,
    "redis restored from an older state": 3,
    "redis flushed": 2,
    "redis cut off": 3,
    "redis slow": 2,
    "redis silent": 2,
    "redis loses replies": 3,
    "kafka cut off": 2,
    "kafka slow": 2,
    "kafka silent": 2,
}
"""Every kind of fault, and how often it is drawn in proportion to the others."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    at, lasts : float
        Seconds from the schedule's begin, and from then on; a fault that happens in an instant
        lasts until what it took away is started again.
    choice : float
        In [0, 1): which worker, which broker, how much.
    """

    kind: str
    at: float
    lasts: float
    choice: float


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What happens to a deployment.

    Attributes
    ----------
    seed : int
        Everything here is drawn from it.
    workers, partitions : int
        At the beginning.
    faults : tuple of Fault
        By time.
    round_trip : float
        Seconds, to the brokers.
    """

    seed: int
    workers: int
    partitions: int
    faults: tuple[Fault, ...]
    round_trip: float = 0.0


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed.

    Examples
    --------
    >>> draw(7) == draw(7)
    True
    """
    rng = random.Random(seed)
    kinds = rng.choices(list(KINDS), list(KINDS.values()), k=rng.randint(3, 8))
    faults = [Fault(kind, rng.uniform(0, SECONDS), _lasting(rng), rng.random()) for kind in kinds]
    return Schedule(
        seed,
        workers=rng.randint(1, 3),
        partitions=rng.randint(2, 6),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        round_trip=0.0 if seed % FAR_SEEDS else FAR_SECONDS,
    )


def _lasting(rng: random.Random) -> float:
    """Return how long a fault lasts: within a worker's session of 2 s, or up to twice that."""
    return rng.uniform(0.05, 0.6) if rng.random() < 0.5 else rng.uniform(0.6, 4.0)
