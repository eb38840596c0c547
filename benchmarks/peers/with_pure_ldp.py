"""Measures pure-ldp, which randomizes one value at a time, in Python."""

from __future__ import annotations

import functools
from typing import Any

import pure_ldp.frequency_oracles as pure

from benchmarks.peers.answering import Randomize, from_ends, given, noises, serve, to_ends

SIZES = {"grr": 20_000, "rappor": 1_000, "oue": 1_000, "hadamard_response": 2_000}


def main() -> None:
    population = given()
    size, epsilon = population.categories, population.epsilon
    hadamard = pure.HadamardResponseServer(epsilon, size, index_mapper=int)
    hashes = hadamard.get_hash_funcs()
    oracles = {
        "grr": (pure.DEClient(epsilon, size, index_mapper=int), pure.DEServer),
        "hadamard_response": (
            pure.HadamardResponseClient(epsilon, size, hashes, index_mapper=int),
            lambda *_, **__: hadamard,
        ),
    }
    for name, is_optimal in (("rappor", False), ("oue", True)):
        client = pure.UEClient(epsilon, size, use_oue=is_optimal, index_mapper=int)
        oracles[name] = client, functools.partial(pure.UEServer, use_oue=is_optimal)
    protocols = {
        name: (
            client.privatise,
            functools.partial(_estimate, make(epsilon, size, index_mapper=int), size),
        )
        for name, (client, make) in oracles.items()
    }
    serve(protocols, SIZES, noises({"randomized_response": _signs}))


def _signs(epsilon: float) -> Randomize:
    """Return direct encoding of two categories: the library has nothing for means."""
    client = pure.DEClient(epsilon, 2, index_mapper=int)

    def randomize(values: Any) -> Any:
        return from_ends([client.privatise(bit) for bit in to_ends(values).tolist()], epsilon)

    return randomize


def _estimate(server: Any, size: int, reports: list[Any]) -> Any:
    """Return the categories' shares."""
    server.reset()
    server.aggregate_all(reports)
    return server.estimate_all(range(size), suppress_warnings=True) / len(reports)


if __name__ == "__main__":
    main()
