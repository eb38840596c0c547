"""pure-ldp: one value at a time, in Python."""

from __future__ import annotations

import functools
from typing import Any

from pure_ldp.frequency_oracles import (
    DEClient,
    DEServer,
    HadamardResponseClient,
    HadamardResponseServer,
    UEClient,
    UEServer,
)

from benchmarks.peers.answering import (
    Randomize,
    Task,
    answer,
    from_ends,
    given,
    half,
    noises,
    to_ends,
)

MOST = {"grr": 20_000, "rappor": 1_000, "oue": 1_000, "hadamard_response": 2_000}


def main() -> None:
    population = given()
    size, epsilon = population.categories, population.epsilon
    at = {"index_mapper": int}
    servers = {
        "grr": DEServer(epsilon, size, **at),
        "rappor": UEServer(epsilon, size, use_oue=False, **at),
        "oue": UEServer(epsilon, size, use_oue=True, **at),
        "hadamard_response": HadamardResponseServer(epsilon, size, **at),
    }
    clients = {
        "grr": DEClient(epsilon, size, **at),
        "rappor": UEClient(epsilon, size, use_oue=False, **at),
        "oue": UEClient(epsilon, size, use_oue=True, **at),
        "hadamard_response": HadamardResponseClient(
            epsilon, size, servers["hadamard_response"].get_hash_funcs(), **at
        ),
    }
    tasks: dict[str, Task] = {}
    for name, most in MOST.items():
        values = population.values[:most].tolist()
        randomize = functools.partial(_randomize, clients[name], values)
        tasks[f"half {name}"] = functools.partial(
            half,
            functools.partial(_randomize, clients[name]),
            functools.partial(_estimate, servers[name], size),
        )
        tasks[f"randomize {name}"] = functools.partial(_count, randomize)
        tasks[f"aggregate {name}"] = functools.partial(
            _aggregate, servers[name], functools.cache(randomize), size
        )
    answer(tasks | noises({"randomized_response": _signs}))


def _signs(epsilon: float) -> Randomize:
    """Return direct encoding of two categories: the library has nothing for means."""
    client = DEClient(epsilon, 2, index_mapper=int)
    return lambda values: from_ends(_randomize(client, to_ends(values).tolist()), epsilon)


def _count(randomize: Any) -> int:
    return len(randomize())


def _randomize(client: Any, values: list[int]) -> list[Any]:
    return [client.privatise(value) for value in values]


def _aggregate(server: Any, reports: Any, size: int) -> int:
    _estimate(server, size, reports())
    return len(reports())


def _estimate(server: Any, size: int, reports: list[Any]) -> Any:
    """Return the categories' shares."""
    server.reset()
    server.aggregate_all(reports)
    return server.estimate_all(range(size), suppress_warnings=True) / len(reports)


if __name__ == "__main__":
    main()
