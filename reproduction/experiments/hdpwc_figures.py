"""Figures 1 and 2 of HDP-WC, from the errors in :mod:`reproduction.experiments.hdpwc`."""

from __future__ import annotations

import itertools
import math

from reproduction.experiments.hdpwc import (
    METHODS,
    cancers,
    largest_errors,
    mean_square,
    salaries,
    synthetic,
    tail,
)
from reproduction.experiments.hdpwc_tables import UNSAID_NOTE, data_used, listed
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.records import STAND_INS, Records


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
