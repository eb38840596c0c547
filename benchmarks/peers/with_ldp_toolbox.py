"""ldp-toolbox: one value at a time, compiled by numba."""

from __future__ import annotations

from ldp_toolbox.protocols.frequency.grr import GeneralizedRandomizedResponse
from ldp_toolbox.protocols.frequency.ss import SubsetSelection
from ldp_toolbox.protocols.frequency.ue import UnaryEncoding

from benchmarks.peers.answering import Given, given
from benchmarks.peers.compiled import Protocol, serve


def protocols(population: Given) -> dict[str, Protocol]:
    size, epsilon = population.categories, population.epsilon
    made = {
        "grr": GeneralizedRandomizedResponse(size, epsilon),
        "rappor": UnaryEncoding(size, epsilon, optimal=False),
        "oue": UnaryEncoding(size, epsilon, optimal=True),
        "subset_selection": SubsetSelection(size, epsilon),
    }
    return {name: (one.obfuscate, one.estimate) for name, one in made.items()}


if __name__ == "__main__":
    serve(protocols, given())
