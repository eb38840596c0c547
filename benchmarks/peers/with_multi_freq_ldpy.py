"""Measures multi-freq-ldpy, which randomizes one value at a time, compiled by numba."""

from __future__ import annotations

from typing import Any

from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Aggregator_MI, SS_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

from benchmarks.peers.answering import Given, Protocol, given, serve

SIZES = {"grr": 20_000, "rappor": 5_000, "oue": 5_000, "subset_selection": 2_000}


def protocols(population: Given) -> dict[str, Protocol]:
    size, epsilon = population.categories, population.epsilon

    def unary(optimal: bool) -> Protocol:
        def randomize(value: int) -> Any:
            return UE_Client(value, size, epsilon, optimal)

        return randomize, lambda reports: UE_Aggregator_MI(reports, epsilon, optimal)

    return {
        "grr": (
            lambda value: GRR_Client(value, size, epsilon),
            lambda reports: GRR_Aggregator_MI(reports, size, epsilon),
        ),
        "rappor": unary(False),
        "oue": unary(True),
        "subset_selection": (
            lambda value: SS_Client(value, size, epsilon),
            lambda reports: SS_Aggregator_MI(reports, size, epsilon),
        ),
    }


if __name__ == "__main__":
    serve(protocols(given()), SIZES)
