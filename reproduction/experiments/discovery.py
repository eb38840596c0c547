"""Frequent unlisted strings: Dither's search, and PEM with the same reports."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from estimators import LocalMetric, define
from estimators.discovery.layout import DiscoveryLayout
from estimators.discovery.string_code import CODE_BITS, StringCode, as_words
from estimators.exact.randomness import SeededBits, Words
from estimators.mechanisms import PrefixTree
from reproduction.outcome import Claim, Number, Outcome, Tick, mean_and_error

USERS, STRINGS = 200_000, 3_000
LEVELS = (2.0, 4.0)
LAST_DEPTH = 40
"""The bits of the longest prefix in both searches: those of a serial number's longest code word."""
DEPTH_STEP = 8
"""The bits by which PEM extends a prefix; with 4 or 12 it finds less."""
KEPT_PREFIXES = 100
"""The number of prefixes that PEM keeps, and of strings that it returns; with 30 or 1,000 it proves
less."""
FLOOR_UNITS = (5, 8, 10)
"""Strings with frequencies above these should be found, in units of the noise floor."""
BETA = 0.05


def serial_numbers(count: int, generator: np.random.Generator) -> list[str]:
    """Return different strings like N725MQ."""
    letters = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    names: dict[str, None] = {}
    while len(names) < count:
        number, ends = generator.integers(100, 1000), generator.choice(letters, 2)
        names[f"N{number}{''.join(ends)}"] = None
    return list(names)


def noise_floor(epsilon: float, users: int) -> float:
    """Return phi, the least possible standard error of an estimated frequency."""
    odds = np.exp(epsilon)
    return float(2 * np.sqrt(odds / users) / (odds - 1))


def pem(
    code: StringCode, layout: DiscoveryLayout, bits: Words, generator: np.random.Generator
) -> tuple[set[str], set[str]]:
    """Return the strings that the prefix extending method finds, and the proved ones.

    Users are divided into as many groups as there are depths. Group by group, the continuations of
    the prefixes that were kept are ranked by the estimates of the group alone, and the first 100
    are kept. The frequency oracle is the best known (projective geometry response). Source: Wang,
    Li and Jha, "Locally differentially private heavy hitter identification" (1708.06674). PEM has
    no test; here a string counts as proved if its last estimate is beyond the normal quantile at
    beta over the number of continuations that were ranked.

    Parameters
    ----------
    code : StringCode
        Turns strings into bits.
    layout : DiscoveryLayout
        A layout of one level. Its depths are those of the groups; its rows are not used.
    bits : ndarray of uint64, shape (n, 2)
        The users' code words.
    generator : numpy.random.Generator
        Simulates the reports; their law is exact up to rounding.
    """
    tree, depths = layout.trees[0], layout.depths
    groups = generator.integers(0, len(depths), len(bits))
    prefixes, hashes = [0], np.zeros(1, dtype=np.uint64)
    for group, width in enumerate(layout.widths):
        held = layout.prefix_hashes(bits[groups == group])[:, group]
        missed = generator.random(held.size) >= float(tree.p)
        size, points = tree.space.size, tree.points
        rank = (generator.random(held.size) * np.where(missed, points - size, size)).astype(int)
        report = np.empty_like(rank)
        report[missed] = tree.space.others_at(rank[missed])
        report[~missed] = tree.space.members_at(rank[~missed])
        report = (report + layout.tree_points(held, 0)) % points
        estimate = tree.frequencies(np.bincount(report, minlength=points)[None])[0]
        words = np.arange(1 << width, dtype=np.uint64)
        longer = layout.extended(hashes[:, None], words, group).ravel()
        best = np.argsort(-estimate[layout.tree_points(longer, 0)], kind="stable")[:KEPT_PREFIXES]
        hashes = longer[best]
        prefixes = [prefixes[p] << width | w for p, w in zip(*_split(best, width), strict=True)]
    deviation = math.sqrt(tree.variance / max(1, held.size))
    limit = norm.isf(BETA / longer.size) * deviation
    strings: tuple[set[str], set[str]] = set(), set()
    for prefix, frequency in zip(prefixes, estimate[layout.tree_points(hashes, 0)], strict=True):
        text = code.decode(prefix << (CODE_BITS - depths[-1]))
        if text is not None:
            strings[0].add(text)
            if frequency > limit:
                strings[1].add(text)
    return strings


def _split(places: NDArray[np.intp], width: int) -> tuple[list[int], list[int]]:
    """Return each index's prefix and continuation."""
    parent, word = np.divmod(places, 1 << width)
    return parent.tolist(), word.tolist()


def one_run(epsilon: float, seed: int) -> tuple[dict[str, float], list[set[str]]]:
    """Return the strings' frequencies in units of phi, and three sets of strings.

    The sets are what Dither finds, what PEM finds, and what PEM proves.

    Parameters
    ----------
    epsilon : float
        The level of all reports.
    seed : int
        The seed of the population and of the reports.
    """
    generator = np.random.default_rng([seed, int(10 * epsilon)])
    names = serial_numbers(STRINGS, generator)
    chances = 1 / np.arange(1, STRINGS + 1)
    held = generator.choice(STRINGS, USERS, p=chances / chances.sum())
    metric = LocalMetric.require(
        define(
            name="m",
            kind="frequency",
            categories="open",
            discover=True,
            preset="upper",
            levels=[epsilon],
            options={"last": LAST_DEPTH, "seed": seed},
        )
    )
    mechanism = metric.randomizer
    assert isinstance(mechanism, PrefixTree)  # noqa: S101
    statistic, level = metric.zero(), np.zeros(USERS, dtype=np.int64)
    reports = metric.randomize(np.array(names)[held], level, SeededBits(seed))
    metric.accumulate(statistic, level, reports)
    bits = as_words([mechanism.code.encode(name)[0] for name in names])[held]
    layout = DiscoveryLayout(
        mechanism.epsilons, tuple(range(16, LAST_DEPTH + 1, DEPTH_STEP)), 1, seed
    )
    ours = set(metric.discover(statistic, BETA).strings)
    shares = np.bincount(held, minlength=STRINGS) / USERS / noise_floor(epsilon, USERS)
    return dict(zip(names, shares.tolist(), strict=True)), [
        ours,
        *pem(mechanism.code, layout, bits, generator),
    ]


def run(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return the shares of frequent strings that Dither and PEM find."""
    numbers: list[Number] = []
    recalls: dict[int, list[tuple[float, ...]]] = {floor_units: [] for floor_units in FLOOR_UNITS}
    strays: list[float] = []
    wrong = 0
    for step, epsilon in enumerate(LEVELS):
        for number in range(runs):
            shares, string_sets = one_run(epsilon, 1000 * seed + number)
            for floor_units, recall in recalls.items():
                above = {name for name, share in shares.items() if share > floor_units}
                recall.append(tuple(len(above & strings) / len(above) for strings in string_sets))
            wrong += bool(string_sets[0] - shares.keys())
            strays.append(len(string_sets[1] - shares.keys()) / max(1, len(string_sets[1])))
            tick((step + (number + 1) / runs) / len(LEVELS))
        for floor_units, recall in recalls.items():
            ours, _, proved = zip(*recall[-runs:], strict=True)
            name = f"found above {floor_units} phi, epsilon {epsilon:g}"
            numbers.append(Number(name, *mean_and_error(ours), mean_and_error(proved)[0]))
    claims = []
    for floor_units in FLOOR_UNITS[:-1]:  # above 10 phi either finds nearly all
        columns = zip(*recalls[floor_units], strict=True)
        mine, untested, pem_recall = (mean_and_error(column)[0] for column in columns)
        measured = f"{mine:.2f} against {pem_recall:.2f}; PEM without a test: {untested:.2f}"
        claims.append(
            Claim(f"Dither finds more above {floor_units} phi", mine > pem_recall, measured)
        )
    share = mean_and_error(strays)[0]
    name = "without a test PEM returns strings that nobody holds"
    claims.append(Claim(name, share > BETA, f"{share:.0%} of those that it returns"))
    max_wrong = int(binom.isf(0.001, runs * len(LEVELS), BETA))
    measured = f"in {wrong} of {runs * len(LEVELS)} runs"
    claims.append(
        Claim("Dither finds such a string in 5% of runs at most", wrong <= max_wrong, measured)
    )
    note = "The paper's column is PEM with the same users, code and promise."
    return Outcome(numbers, claims, notes=[note])
