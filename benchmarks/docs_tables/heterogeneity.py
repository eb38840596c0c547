"""Print how often Cochran's Q raises an alarm where values do not go with the privacy level.

``python -m benchmarks.docs_tables.heterogeneity`` prints the table of docs/bounds.md: the shares of
p-values below 0.05, 0.01 and 0.001.
"""

from __future__ import annotations

import sys

from tests.statistics.false_alarms import CASES, LIMITS, RUNS


def main() -> None:
    """Print the table."""
    sys.stdout.write("| population | " + " | ".join(f"p <= {q}" for q in LIMITS) + " |\n")
    sys.stdout.write("|---" * (1 + len(LIMITS)) + "|\n")
    for case in CASES:
        found = case.p_values(RUNS)
        shares = " | ".join(f"{float((found <= q).mean()):.4f}" for q in LIMITS)
        sys.stdout.write(f"| {case} | {shares} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
