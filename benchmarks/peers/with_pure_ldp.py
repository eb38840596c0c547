# /// script
# dependencies = [
#   "bitarray==3.12.3",
#   "bitstring==5.0.0",
#   "cloudpickle==3.1.2",
#   "formulaic==1.2.2",
#   "interface-meta==2.0.1",
#   "joblib==1.6.0",
#   "narwhals==2.29.0",
#   "numpy==2.4.6",
#   "packaging==26.3",
#   "pandas==3.1.1",
#   "patsy==1.0.3",
#   "pure-ldp==1.2.0",
#   "python-dateutil==4.0.0",
#   "scikit-learn==1.9.1",  # imported, and not declared
#   "scipy==1.17.1",
#   "statsmodels==0.15.0",  # imported, and not declared
#   "threadpoolctl==3.8.0",
#   "tibs==2.0.2",
#   "typing-extensions==4.16.0",
#   "tzdata==2026.6",
#   "wrapt==2.5.2",
#   "xxhash==4.1.0",
# ]
# ///
"""Measures pure-ldp, which randomizes one value at a time, in Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pure_ldp.frequency_oracles as pure

from benchmarks.peers.answering import (
    CATEGORIES,
    EPSILON,
    VALUES,
    Randomize,
    Task,
    answer,
    from_ends,
    noises,
    to_ends,
)

SIZES = {"grr": 20_000, "rappor": 1_000, "oue": 1_000, "hadamard_response": 2_000}


def main() -> None:
    hadamard = pure.HadamardResponseServer(EPSILON, CATEGORIES, index_mapper=int)
    hashes = hadamard.get_hash_funcs()
    domain: dict[str, Any] = {"epsilon": EPSILON, "d": CATEGORIES, "index_mapper": int}
    oracles = {
        "grr": (pure.DEClient(**domain), pure.DEServer(**domain)),
        "hadamard_response": (pure.HadamardResponseClient(hash_funcs=hashes, **domain), hadamard),
        "rappor": (pure.UEClient(**domain), pure.UEServer(**domain)),
        "oue": (pure.UEClient(use_oue=True, **domain), pure.UEServer(use_oue=True, **domain)),
    }
    tasks: dict[str, Task] = {}
    for name, (client, server) in oracles.items():
        randomize = functools.partial(_randomize, client, VALUES[: SIZES[name]].tolist())
        reports = functools.cache(randomize)
        tasks[f"randomize {name}"] = functools.partial(_count, randomize)
        tasks[f"aggregate {name}"] = functools.partial(_estimate, server, reports)
    answer(tasks | noises({"randomized_response": _signs}))


def _randomize(client: Any, values: list[int]) -> list[Any]:
    return [client.privatise(value) for value in values]


def _count(randomize: Callable[[], list[Any]]) -> int:
    return len(randomize())


def _signs(epsilon: float) -> Randomize:
    """Return direct encoding of two categories: the library has nothing for means."""
    client = pure.DEClient(epsilon, 2, index_mapper=int)

    def randomize(values: Any) -> Any:
        return from_ends([client.privatise(bit) for bit in to_ends(values).tolist()], epsilon)

    return randomize


def _estimate(server: Any, reports: Callable[[], list[Any]]) -> int:
    server.reset()
    server.aggregate_all(reports())
    server.estimate_all(range(CATEGORIES), suppress_warnings=True)
    return len(reports())


if __name__ == "__main__":
    main()
