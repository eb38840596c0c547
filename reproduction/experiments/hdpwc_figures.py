"""Figures 1 and 2 of HDP-WC, from the errors in :mod:`reproduction.experiments.hdpwc`."""

from __future__ import annotations

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
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick
from reproduction.records import Records


def figure_1(records: Records, runs: int, seed: int, tick: Tick) -> Outcome:
    """Return errors of six methods: mean squares if levels follow values, tails if not."""
    paid, wages_description = salaries(records, seed)
    kinds, cases_told = cancers(records, seed)
    panels = {
        "A": [paid, *(synthetic(bins, seed, correlated=True) for bins in (5, 20))],
        "B": [kinds, *(synthetic(bins, seed, correlated=False) for bins in (5, 20))],
    }
    curves, errors_by_method, steps, done = [], {}, 6 * len(METHODS), 0
    for panel, populations in panels.items():
        summary = mean_square if panel == "A" else tail
        for method in METHODS:
            heights = []
            for population in populations:
                errors = largest_errors(method, population, runs, seed, mse=panel == "A")
                value = summary(errors)[0]
                errors_by_method[method, population.name] = value
                heights.append(value)
                done += 1
                tick(done / steps)
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
    numbers, curves, claims, done = [], [], [], 0
    for correlated, policies in TURBO.items():
        errors_by_policy: dict[str, list[float]] = {}
        uncertain: dict[str, list[float]] = {}
        for policy in policies:
            for bins in (5, 20):
                population = synthetic(bins, seed, correlated=correlated)
                value, error = tail(largest_errors(policy, population, runs, seed))
                numbers.append(Number(f"{policy}, {population.name}", value, error))
                errors_by_policy.setdefault(policy, []).append(value)
                uncertain.setdefault(policy, []).append(error)
                done += 1
                tick(done / 12)
            side = "C" if correlated else "U"
            curves.append(Curve(f"{policy}, {side}", [5, 20], errors_by_policy[policy]))
        if correlated:
            exact, turbo = errors_by_policy["hpf-c"], errors_by_policy["hpf-ct"]
            measured = ", ".join(
                f"{a:.3f} against {b:.3f}" for a, b in zip(exact, turbo, strict=True)
            )
            slack = [3 * math.hypot(*e) for e in zip(*list(uncertain.values())[1:], strict=True)]
            no_worse = all(a <= b + s for a, b, s in zip(exact, turbo, slack, strict=True))
            claims.append(Claim("hpf-c is no worse than its turbo variant", no_worse, measured))
        else:
            is_same = errors_by_policy["hpf-u"] == errors_by_policy["hpf-ut"]
            measured = "the same releases from the same bits"
            claims.append(Claim("hpf-u and hpf-ut are one, uncorrelated", is_same, measured))
            best = all(
                a < u
                for a, u in zip(errors_by_policy["hpf-a"], errors_by_policy["hpf-u"], strict=True)
            )
            claims.append(Claim("hpf-a is best, uncorrelated", best, "as the numbers"))
    plot = Plot("bins", "95% quantile of the largest error", curves, (False, True))
    return Outcome(numbers, claims, plot, [UNSAID_NOTE])
