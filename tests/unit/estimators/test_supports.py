"""Bounds for reports whose ones are not symmetric: against exact tail probabilities."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from estimators.bounds import Law
from estimators.bounds.inversion import lower_limit
from estimators.bounds.own_values import own_value_limits

PAIRS = [(0.5, 0.27), (0.5, 3e-4), (0.02, 0.001), (0.6, 1e-5), (0.011, 0.01), (0.999, 0.3)]


def one_level(n: int, p: float, q: float) -> Law:
    contrast = np.array([p - q])
    counts = np.array([float(n)])
    return Law(counts, 1 / (counts * contrast), contrast, offset=np.array([p + q - 1]))


def centred(ones: int, n: int, p: float, q: float) -> np.ndarray:
    return np.array([(2 * ones - n * (p + q)) / (n * (p - q))])


@settings(deadline=None, max_examples=300)
@given(
    n=st.integers(1, 10**9),
    part=st.floats(0, 1),
    pair=st.sampled_from(PAIRS),
    log_p=st.floats(-40, -0.7),
    upper=st.booleans(),
)
def test_every_frequency_outside_the_limits_is_rejected_by_the_exact_binomial_test(
    n: int, part: float, pair: tuple[float, float], log_p: float, upper: bool
) -> None:
    p, q = pair
    ones = round((q + (p - q) * part) * n)
    law, observed = one_level(n, p, q), centred(ones, n, p, q)
    if upper:
        limit = -float(lower_limit(law.mirrored(), -observed, log_p)[0])
        tail = binom.cdf(ones, n, q + (p - q) * (1 + limit) / 2)
        reached = limit >= 1
    else:
        limit = float(lower_limit(law, observed, log_p)[0])
        tail = binom.sf(ones - 1, n, q + (p - q) * (1 + limit) / 2)
        reached = limit <= -1
    assert reached or tail <= np.exp(log_p) * (1 + 1e-5)


@settings(deadline=None, max_examples=150)
@given(
    users=st.sampled_from([(20, 30), (150, 100)]),
    first=st.floats(0, 1),
    second=st.floats(0, 1),
    share=st.floats(0.01, 0.99),
    beta=st.sampled_from([0.4, 0.05, 1e-3]),
    total=st.sampled_from([None, 10.0, 1000.0]),
)
def test_own_values_are_covered_however_the_levels_share_them(
    users: tuple[int, int],
    first: float,
    second: float,
    share: float,
    beta: float,
    total: float | None,
) -> None:
    """By enumerating all outcomes of two levels, of any weights and any numbers of holders."""
    counts, shares = np.array(users, dtype=float), np.array([share, 1 - share])
    p, q = np.array([0.3, 0.98]), np.array([0.2, 0.02])
    law = Law(counts, shares / (counts * (p - q)), p - q, offset=p + q - 1, free=True)
    holders = np.round(np.array([first, second]) * counts).astype(int)
    ones = np.indices((users[0] + 1, users[1] + 1)).reshape(2, -1)
    chance = np.ones(1)
    for n, own, high, low in zip(users, holders.tolist(), p, q, strict=True):
        part = np.convolve(
            binom.pmf(np.arange(own + 1), own, high),
            binom.pmf(np.arange(n - own + 1), n - own, low),
        )
        chance = (chance[:, None] * part).ravel()
    truth = 2 * shares @ (holders / counts) - 1
    lower, upper = own_value_limits(law, 2.0 * ones - counts[:, None], np.log(beta), total)
    assert chance[lower > truth + 1e-9].sum() <= beta * (1 + 1e-9)
    assert chance[upper < truth - 1e-9].sum() <= beta * (1 + 1e-9)
