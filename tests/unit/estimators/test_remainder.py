"""The remainder of Graham and Vaaler: above every exact tail, and by how little."""

import itertools

import numpy as np
import pytest
from scipy import integrate

from estimators.bounds.fourier.remainder import (
    Interpolation,
    frequency_nodes,
    log_remainder,
    majorant,
)
from estimators.estimate import Floats


class Atoms:
    """A law with finitely many integer values."""

    def __init__(self, values: Floats, chances: Floats) -> None:
        self.values, self.chances = values, chances / chances.sum()

    def cumulant(self, tilt: float) -> float:
        return float(np.log(np.exp(tilt * self.values) @ self.chances))

    def variance(self, tilt: float) -> float:
        weight = np.exp(tilt * self.values - self.cumulant(tilt)) * self.chances
        mean = weight @ self.values
        return float(weight @ (self.values - mean) ** 2)

    def log_modulus(self, tilt: float, tau: Floats) -> Floats:
        terms = np.exp((tilt + 1j * tau[:, None]) * self.values) @ self.chances
        found: Floats = np.log(np.maximum(np.abs(terms), 1e-290)) - self.cumulant(tilt)
        return found


def exact_law(laws: list[Atoms], counts: list[int]) -> tuple[Floats, Floats]:
    """Return the values of a sum and their probabilities, by convolution."""
    low = 0.0
    chances: Floats = np.ones(1)
    for law, count in zip(laws, counts, strict=True):
        one = np.zeros(int(law.values.max() - law.values.min()) + 1)
        one[(law.values - law.values.min()).astype(int)] = law.chances
        for _ in range(count):
            chances = np.convolve(chances, one).astype(np.float64)
        low += count * float(law.values.min())
    return low + np.arange(chances.size, dtype=np.float64), chances


def log_bounds(laws: list[Atoms], counts: list[int], tilt: float, sums: Floats) -> Floats:
    n, v = np.array(counts, dtype=float), np.array([law.variance(tilt) for law in laws])
    tau = frequency_nodes(n, v)
    modulus = np.array([law.log_modulus(tilt, tau) for law in laws])
    value = n @ [law.cumulant(tilt) for law in laws]
    remainder = float(log_remainder(tilt, tau, modulus, n, v))
    found: Floats = value - tilt * sums + remainder
    return found


def random_laws(rng: np.random.Generator) -> tuple[list[Atoms], list[int]]:
    """Return lattices, two atoms far apart, skewed laws and rare large values, at random."""
    laws = []
    for kind in rng.integers(0, 4, rng.integers(1, 4)):
        size = int(rng.integers(2, 12))
        values = np.sort(rng.choice(60, size, replace=False)).astype(float)
        chances = rng.dirichlet(np.full(size, 0.5))
        if kind == 0:
            values, chances = np.array([0.0, 1.0]), np.array([0.7, 0.3])
        if kind == 1:
            values, chances = np.array([0.0, 59.0]), rng.dirichlet(np.ones(2))
        if kind == 2:
            chances = np.geomspace(1, 1e-4, size)
        laws.append(Atoms(values, chances + 1e-9))
    return laws, [int(x) for x in rng.integers(1, 40, len(laws))]


@pytest.mark.parametrize("seed", range(4))
def test_no_exact_tail_is_above_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(10):
        laws, counts = random_laws(rng)
        values, chances = exact_law(laws, counts)
        tails = np.cumsum(chances[::-1])[::-1]
        sd = np.sqrt(chances @ (values - chances @ values) ** 2)
        used = tails > 1e-11  # below, the convolution's rounding shows
        for z in (0.3, 1, 2, 3, 5):
            excess = log_bounds(laws, counts, float(z / sd), values[used]) - np.log(tails[used])
            assert excess.min() > -1e-9


@pytest.mark.parametrize("decay", [0.003, 0.2, 3.0])
def test_the_majorant_is_one_and_its_transform_is_below_the_weight(decay: float) -> None:
    y = np.linspace(0, 1, 100_001)
    q, w = np.exp(-decay), np.exp(-decay - 2j * np.pi * y)
    transform = (1 - y) / (1 - w) + 1j * decay / (2 * np.pi) * (w / (1 - w) - q / (1 - q))
    weight = majorant(np.array(decay), 1 - y, np.sin(np.pi * y))
    assert np.all(np.abs(transform) <= weight * (1 + 1e-12))
    assert np.all(np.diff(weight) < 0)
    for x in np.concatenate([np.linspace(-6, 6, 49), [-0.01, 0.01, 0.99, 1.01]]):
        phases = np.exp(2j * np.pi * y * x)
        height = 2 * integrate.simpson((transform * phases).real, x=y)
        assert height >= (np.exp(-decay * x) if x >= 0 else 0) - 1e-6


def test_moduli_are_below_their_bounds_at_nodes_between_others() -> None:
    law = Atoms(np.array([-3.0, 0.0, 1.0, 4.0]), np.array([0.1, 0.4, 0.3, 0.2]))
    for tilt, last in itertools.product((0.1, 1.0), (0.4, 2.0, 9.0)):
        nodes, variance = np.linspace(0, last, 7), np.array([law.variance(tilt)])
        every = np.sort(np.concatenate([nodes, np.linspace(0, last, 41)[1::3]]))
        modulus = np.exp(law.log_modulus(tilt, nodes))[None]
        bounds = Interpolation(nodes, every).moduli(modulus, variance)
        assert np.all(bounds >= np.exp(law.log_modulus(tilt, every)) - 1e-12)
        assert np.all(bounds[0, np.searchsorted(every, nodes)] == modulus[0])
