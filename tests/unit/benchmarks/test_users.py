"""How many users a mean needs: noise that is measured, and the tables of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import tables, users
from benchmarks.measure import Figure
from benchmarks.peers.answering import from_ends, to_ends
from benchmarks.record import Record

RUNS = 40_000


def sized(_: int) -> int:
    return RUNS


def test_the_noise_that_is_measured_is_that_of_the_law() -> None:
    """At epsilon 2; 6% are at least 5 standard errors, also of the largest of three."""
    scale = math.pi / 2 / math.tanh(1)  # a report of hemisphere has length B: its noise is B^2 - 1
    for mechanism, data, expected in (
        ("randomized_response", "a mean, worst", math.tanh(1) ** -2),
        ("laplace", "a mean, uniform", 2 + 1 / 3),
        ("windows", "a mean, worst", 0.8812),
        ("hemisphere", "a vector of 2", scale**2 - 1),
    ):
        noise = users.measured_noise(mechanism, 2, data, sized)
        assert noise == pytest.approx(expected, rel=0.06), mechanism


def test_what_is_rounded_to_the_ends_is_unbiased() -> None:
    """Within 5 standard errors."""
    bits = to_ends(np.full(100_000, 0.5)).astype(np.uint8)
    assert from_ends(bits, 50.0).mean() == pytest.approx(0.5, abs=5 / math.sqrt(100_000))


def test_a_table_has_a_row_for_each_epsilon_and_a_column_for_each_mechanism() -> None:
    figures = {
        f"users/a mean, worst/{epsilon}/{name}": Figure("", value, "users")
        for epsilon, name, value in [
            ("1", "windows", 41234.0),
            ("1", "x: y", 9.0),
            ("2", "x: y", 5),
        ]
    }
    assert tables.table(Record(figures=figures), "users/a mean, worst").splitlines() == [
        "| epsilon | windows | x: y |",
        "|---|---|---|",
        "| 1 | 41,200 | 9 |",
        "| 2 |  | 5 |",
    ]
