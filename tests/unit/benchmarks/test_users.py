"""How many users a mean needs: noise that is measured, and the tables of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import tables, users
from benchmarks.measure import CannotRunError, Figure, NotRun
from benchmarks.peers import environments, process
from benchmarks.peers.answering import DATA, VECTORS, from_ends, to_ends
from benchmarks.places import Places
from benchmarks.record import Record

RUNS = 40_000


def sized(_: int) -> int:
    return RUNS


@pytest.mark.parametrize(
    ("mechanism", "data", "expected"),
    [
        ("randomized_response", "a mean, worst", math.tanh(1) ** -2),
        ("randomized_response", "a mean, uniform", math.tanh(1) ** -2),
        ("laplace", "a mean, uniform", 2 + 1 / 3),
        ("windows", "a mean, worst", 0.8812),
    ],
)
def test_the_noise_that_is_measured_is_that_of_the_law(
    mechanism: str, data: str, expected: float
) -> None:
    """At epsilon 2; 6% are at least 5 standard errors, also of the largest of three."""
    noise = users.measured_noise(mechanism, 2, data, sized)
    assert noise == pytest.approx(expected, rel=0.06)


def test_the_noise_of_vectors_is_that_of_their_scale() -> None:
    """A report of hemisphere has length B, so its noise on the sphere is B^2 - 1."""
    noise = users.measured_noise("hemisphere", 2, "a vector of 2", sized)
    scale = math.pi / 2 / math.tanh(1)
    assert noise == pytest.approx(scale**2 - 1, rel=0.05)
    assert users.measured_noise("caps", 2, "a vector of 2", sized) < noise


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


def test_libraries_that_cannot_be_installed_are_listed(
    monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    def refuse(name: str) -> Path:
        raise environments.NotInstalledError(f"no {name} here")

    monkeypatch.setattr(process, "python_of", refuse)
    places.wanted = lambda name: name.startswith("users/a vector of 2/1/")
    found = list(users.benchmarks(places))
    assert [one.name.rpartition("/")[2] for one in found if isinstance(one, Figure)] == [
        "hemisphere",
        "caps",
    ]
    assert [one.reason for one in found if isinstance(one, NotRun)] == [
        "no diffprivlib here",
        "no opendp here",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("peer", users.THEIRS)
def test_a_library_does_each_of_its_tasks(peer: str, tmp_path: Path) -> None:
    if not environments.is_installed(peer):
        pytest.skip(f"{peer} is not installed: dither bench --quick --only users")
    np.save(tmp_path / "values.npy", np.arange(2))
    given = {"values": str(tmp_path / "values.npy"), "epsilon": 1.0, "categories": 2}
    with process.serving(peer, {**given, "reports": 1_000}) as found:
        for data, mechanisms in users.THEIRS[peer].items():
            for mechanism in mechanisms:
                for epsilon in users.EPSILONS[data]:
                    assert found.side(f"noise {data} {mechanism} {epsilon:g}")(0) > 0
        with pytest.raises(CannotRunError):
            found.side("noise of nothing")(0)
    assert {*DATA, *VECTORS} >= users.THEIRS[peer].keys()
