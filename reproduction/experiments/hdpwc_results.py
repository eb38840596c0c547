"""Tables 4 and 5, Figures 1 and 2 of HDP-WC, from :mod:`reproduction.experiments.hdpwc`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from reproduction.experiments.hdpwc import (
    METHODS,
    Population,
    cancers,
    largest_errors,
    mean_square,
    salaries,
    synthetic,
    tail,
)
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.records import STAND_INS, Records

MEASURES = {"P": tail, "E": mean_square}
Rows = dict[str, tuple[float, ...]]
TABLE_4: dict[str, Rows] = {
    "salaries, C": {
        "P": (0.118, 0.174, 0.273, 1.000, 0.459, 0.420),
        "E": (0.011, 0.030, 0.074, 0.396, 0.180, 0.087),
    },
    "cancers, U": {
        "P": (0.009, 0.005, 0.014, 0.091, 0.382, 0.012),
        "E": (5e-5, 1e-5, 8e-5, 0.003, 0.036, 7e-5),
    },
    "10,000 in 5 bins, U": {
        "P": (0.012, 0.008, 0.023, 0.370, 0.798, 0.0152),
        "E": (1e-4, 3e-5, 2e-4, 0.043, 0.198, 1e-4),
    },
    "10,000 in 20 bins, U": {
        "P": (0.013, 0.007, 0.020, 0.482, 0.348, 0.015),
        "E": (1e-4, 2e-5, 2e-4, 0.095, 0.028, 1e-4),
    },
}
TABLE_5: dict[str, Rows] = {
    "salaries, C": {
        "P": (0.064, 0.005, 0.005, 0.066, 0.005, 1.000),
        "E": (2e-5, 2e-5, 2e-5, 0.001, 2e-5, 0.832),
    },
    "10,000, U": {
        "P": (0.008, 0.001, 0.004, 0.027, 0.110, 0.086),
        "E": (4e-5, 3e-7, 5e-6, 1e-4, 0.003, 0.002),
    },
}
"""The paper's errors, in the order of METHODS. The correlated synthetic rows are left out, because
the paper does not say how they were made."""
ORDER_OF_MAGNITUDE = 10.0
"""By at most this factor our errors may differ from the paper's."""
OTHER_RECORDS = (
    "The paper's numbers are for other records: compare orders and orders of magnitude. P: 95% "
    "quantile, E: mean square."
)
UNSAID_NOTE = (
    "The paper does not say how it cut salaries into bins and made 10,000 users: see the code."
)


def _rows(
    populations: Sequence[Population],
    table: dict[str, Rows],
    prefix: str,
    runs: int,
    seed: int,
    tick: Tick,
) -> tuple[list[Number], dict[str, dict[str, float]]]:
    """Return the paper's numbers beside ours, and our errors by row and method."""
    numbers: list[Number] = []
    errors_by_row: dict[str, dict[str, float]] = {}
    cells = [*itertools.product(populations, enumerate(METHODS), MEASURES.items())]
    for population, (i, method), (measure, summary) in steps(cells, tick):
        mse = measure == "E" and method == "HP"
        if measure == "P" or mse:
            errors = largest_errors(method, population, runs, seed, mse=mse)
        value, error = summary(errors)
        row = f"{population.name}, {measure}"
        errors_by_row.setdefault(row, {})[method] = value
        paper = table[population.name][measure][i]
        numbers.append(Number(f"{method.replace('HP', prefix)}, {row}", value, error, paper))
    return numbers, errors_by_row


def listed(row: dict[str, float], prefix: str) -> str:
    """Return the error of each method as text."""
    return ", ".join(f"{key.replace('HP', prefix)} {value:.2g}" for key, value in row.items())


def table_4(runs: int, seed: int, tick: Tick, records: Records = STAND_INS) -> Outcome:
    """Return errors of frequencies by method."""
    paid, wages_told = salaries(records, seed)
    kinds, cases_told = cancers(records, seed)
    populations = [paid, kinds, *(synthetic(bins, seed, correlated=False) for bins in (5, 20))]
    data = data_used(records, wages_told, cases_told)
    numbers, errors_by_row = _rows(populations, TABLE_4, "HPF", runs, seed, tick)
    claims = []
    for name in (population.name for population in populations):
        row = errors_by_row[f"{name}, P"]
        best = min(row, key=row.__getitem__)
        expected = "HP" if name.endswith("C") else "HP-A"
        claim = f"{expected.replace('HP', 'HPF')} is best: {name}"
        claims.append(Claim(claim, best == expected, listed(row, "HPF")))
    uncorrelated = errors_by_row["cancers, U, P"]
    order = [uncorrelated[method] for method in ("HP-A", "HP", "Prop", "UNI", "SM")]
    claims.append(
        Claim("the others follow in the paper's order: cancers, U", order == sorted(order), "P")
    )
    claims.append(_magnitudes(numbers))
    return Outcome(numbers, claims, notes=[OTHER_RECORDS, UNSAID_NOTE], data=data)


def _magnitudes(numbers: Sequence[Number], *, but: str = "") -> Claim:
    """Return the claim that errors are within an order of magnitude of the paper's.

    Mean squared errors are compared by their roots. Numbers whose name begins with `but` are left
    out.
    """
    ratios = {
        n.name: (n.ours / n.paper) ** (0.5 if n.name.endswith("E") else 1.0)
        for n in numbers
        if n.paper and not (but and n.name.startswith(but))
    }
    worst = max(ratios, key=lambda name: max(ratios[name], 1 / ratios[name]))
    factor = max(ratios[worst], 1 / ratios[worst])
    exception = f", {but} apart" if but else ""
    return Claim(
        f"errors are within an order of magnitude of the paper's{exception}",
        factor < ORDER_OF_MAGNITUDE,
        f"furthest: {worst}, {ratios[worst]:.2g} times",
    )


def data_used(records: Records, *told: str) -> str:
    """Return a description of the records; empty for stand-ins."""
    return ", ".join(told) + "; synthetic users" if records.told else ""


def table_5(runs: int, seed: int, tick: Tick, records: Records = STAND_INS) -> Outcome:
    """Return errors of means by method."""
    paid, description = salaries(records, seed, mean=True)
    populations = [paid, synthetic(None, seed, correlated=False)]
    numbers, errors_by_row = _rows(populations, TABLE_5, "HPM", runs, seed, tick)
    row, paid_row = errors_by_row["10,000, U, P"], errors_by_row["salaries, C, P"]
    least_other = min(row[method] for method in METHODS[2:])
    claims = [
        Claim(
            "HPM and HPM-A are best: 10,000, U",
            max(row["HP"], row["HP-A"]) < least_other,
            listed(row, "HPM"),
        ),
        Claim(
            "HPM-A, Prop and SM are better than HPM-C and UNI: salaries, C",
            max(paid_row[method] for method in ("HP-A", "Prop", "SM"))
            < min(paid_row["HP"], paid_row["UNI"]),
            listed(paid_row, "HPM"),
        ),
        _magnitudes(numbers, but="LDP"),
    ]
    notes = [
        OTHER_RECORDS,
        UNSAID_NOTE,
        "LDP is our Laplace metric with inverse-variance weights; the paper's are those of "
        "HPM, which it calls a heuristic.",
    ]
    return Outcome(numbers, claims, notes=notes, data=data_used(records, description))


def figure_1(runs: int, seed: int, tick: Tick, records: Records = STAND_INS) -> Outcome:
    """Return errors of six methods: mean squares if levels follow values, tails if not."""
    paid, wages_description = salaries(records, seed)
    kinds, cases_told = cancers(records, seed)
    panels = {
        "A": [paid, *(synthetic(bins, seed, correlated=True) for bins in (5, 20))],
        "B": [kinds, *(synthetic(bins, seed, correlated=False) for bins in (5, 20))],
    }
    curves, errors_by_method = [], {}
    for panel, method in steps([*itertools.product(panels, METHODS)], tick):
        summary = mean_square if panel == "A" else tail
        heights = []
        for population in panels[panel]:
            errors = largest_errors(method, population, runs, seed, mse=panel == "A")
            heights.append(summary(errors)[0])
            errors_by_method[method, population.name] = heights[-1]
        curves.append(Curve(f"({panel}) {method.replace('HP', 'HPF')}", [1, 2, 3], heights))
    claims = []
    for panel, populations in panels.items():
        for name in (population.name for population in populations):
            row = {method: errors_by_method[method, name] for method in METHODS}
            good = {"HP", "HP-A"} if panel == "A" else {"HP-A"}
            named = "HPF-C or HPF-A" if panel == "A" else "HPF-A"
            held = min(row, key=row.__getitem__) in good
            claims.append(Claim(f"({panel}) {named} is best: {name}", held, listed(row, "HPF")))
    plot = Plot("data: salaries or cancers, 5 bins, 20 bins", "error", curves, (False, True))
    return Outcome(
        (), claims, plot, [UNSAID_NOTE], data_used(records, wages_description, cases_told)
    )


TURBO = {True: ("hpf-a", "hpf-c", "hpf-ct"), False: ("hpf-a", "hpf-u", "hpf-ut")}


def figure_2(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return tail errors of the turbo variants, and of the policies that they replace."""
    numbers, curves, errors, uncertain = [], [], {}, {}
    cases = [(policy, is_c) for is_c, policies in TURBO.items() for policy in policies]
    for policy, is_c in steps(cases, tick):
        populations = [synthetic(bins, seed, correlated=is_c) for bins in (5, 20)]
        tails = [tail(largest_errors(policy, people, runs, seed)) for people in populations]
        errors[policy, is_c], uncertain[policy] = zip(*tails, strict=True)
        for people, (value, error) in zip(populations, tails, strict=True):
            numbers.append(Number(f"{policy}, {people.name}", value, error))
        curves.append(Curve(f"{policy}, {'C' if is_c else 'U'}", [5, 20], errors[policy, is_c]))
    exact, turbo = errors["hpf-c", True], errors["hpf-ct", True]
    slack = map(math.hypot, uncertain["hpf-c"], uncertain["hpf-ct"])
    heuristic, uncorrelated = errors["hpf-a", False], errors["hpf-u", False]
    claims = [
        Claim(
            "hpf-c is no worse than its turbo variant",
            all(a <= b + 3 * s for a, b, s in zip(exact, turbo, slack, strict=True)),
            ", ".join(f"{a:.3f} against {b:.3f}" for a, b in zip(exact, turbo, strict=True)),
        ),
        Claim(
            "hpf-u and hpf-ut are one, uncorrelated",
            uncorrelated == errors["hpf-ut", False],
            "the same releases from the same bits",
        ),
        Claim(
            "hpf-a is best, uncorrelated",
            all(a < u for a, u in zip(heuristic, uncorrelated, strict=True)),
            "as the numbers",
        ),
    ]
    plot = Plot("bins", "95% quantile of the largest error", curves, (False, True))
    return Outcome(numbers, claims, plot, [UNSAID_NOTE])
