"""ldp-toolbox: one value at a time, compiled by numba."""

from __future__ import annotations

from ldp_toolbox.protocols.frequency.grr import GeneralizedRandomizedResponse
from ldp_toolbox.protocols.frequency.ss import SubsetSelection
from ldp_toolbox.protocols.frequency.ue import UnaryEncoding

from benchmarks.peers.answering import Given, given
from benchmarks.peers.one_by_one import Protocol, serve

SIZES = {"grr": 20_000, "rappor": 5_000, "oue": 5_000, "subset_selection": 2_000}


def protocols(population: Given) -> dict[str, Protocol]:
    size, epsilon = population.categories, population.epsilon
    made = {
        "grr": GeneralizedRandomizedResponse(size, epsilon),
        "rappor": UnaryEncoding(size, epsilon, optimal=False),
        "oue": UnaryEncoding(size, epsilon, optimal=True),
        "subset_selection": SubsetSelection(size, epsilon),
    }
    return {name: (protocol.obfuscate, protocol.estimate) for name, protocol in made.items()}


if __name__ == "__main__":
    serve(protocols(given()), SIZES)
