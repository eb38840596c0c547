"""Tables 4 and 5 of HDP-WC, from the errors in :mod:`reproduction.experiments.hdpwc`."""

from __future__ import annotations

import itertools
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
from reproduction.outcome import Claim, Number, Outcome, Tick, steps
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
    populations, data = _populations(records, seed)
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


def _populations(records: Records, seed: int) -> tuple[list[Population], str]:
    paid, wages_told = salaries(records, seed)
    kinds, cases_told = cancers(records, seed)
    made = [synthetic(bins, seed, correlated=False) for bins in (5, 20)]
    return [paid, kinds, *made], data_used(records, wages_told, cases_told)


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
