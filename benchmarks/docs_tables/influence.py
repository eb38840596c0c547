"""`python -m benchmarks.docs_tables.influence`: what 1% of lies can do, for docs/abuse.md.

There are 100,000 reports at one level. For means, the estimate is in the middle of the range, and
the change is a share of the range's width. For vectors, the estimate is zero, and the change is an
l2 norm as a share of the radius. For frequencies, the estimate is 1/k; for distributions, a share
of 1/2 below an edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators import Estimate, LocalMetric, define

LEVELS = (0.25, 0.5, 1, 2, 4, 8)
REPORTS = 100_000
QUESTIONS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("mean", {"range": (0, 1)}, ["randomized_response", "laplace", "auto", "repetition"]),
    ("vector_mean", {"dimension": 10, "radius": 1}, ["caps", "lifted_caps", "hemisphere"]),
    ("vector_mean", {"dimension": 1000, "radius": 1}, ["caps", "lifted_caps", "hemisphere"]),
    *(
        (
            "frequency",
            {"categories": k},
            [
                *("rappor", "grr", "oue", "subset_selection", "hadamard_response"),
                *("projective_geometry_response", "recursive_hadamard", "projection"),
                *("auto", "repetition"),
            ],
        )
        for k in (16, 1024)
    ),
    ("frequency", {"categories": "open", "watch": ["a"]}, ["count_sketch", "projective_sketch"]),
    *(
        ("distribution", {"range": (0, 1), "bins": bins}, ["dyadic_hadamard"])
        for bins in (4, 64, 256)
    ),
]


def standing(metric: LocalMetric, level: int) -> Estimate:
    """Return an estimate from reports at one level, with the value that the table is about."""
    counts = np.zeros(len(LEVELS), dtype=np.int64)
    counts[level] = REPORTS
    value: Any = 0.5
    if metric.kind == "vector_mean":
        value = np.zeros(len(metric.labels))
    elif metric.kind == "frequency":
        value = np.full(len(metric.labels), 0.0 if metric.categories == "open" else 1.0)
        value /= len(metric.labels)
    return Estimate(
        value=value,
        lower=value,
        upper=value,
        reports=REPORTS,
        effective_reports=0,
        beta=0.05,
        bound="fixed",
        target="population",
        policy="uniform",
        levels=LEVELS,
        counts=counts,
        weights=counts / REPORTS,
    )


def main() -> None:
    for kind, domain, mechanisms in QUESTIONS:
        print(kind, domain)
        for mechanism in mechanisms:
            metric = define(name="m", kind=kind, mechanism=mechanism, levels=LEVELS, **domain)
            cells = []
            for level in range(len(LEVELS)):
                bound = metric.manipulation_bound(
                    standing(metric, level), REPORTS // 100, among=True
                )
                cells.append(bound.largest if bound.l2 is None else bound.l2)
            shown = " | ".join(f"{100 * x:.3g}%" for x in cells)
            print(f"| `{mechanism}` | {shown} |")
        print(f"without privacy {100 * bound.without_privacy:.3g}%")


if __name__ == "__main__":
    main()
