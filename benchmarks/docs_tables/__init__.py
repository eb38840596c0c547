"""Commands that print the tables of docs/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def print_table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown, each row as soon as it is there."""
    print(f"| {' | '.join(map(str, heads))} |", "|---" * len(heads) + "|", sep="\n", flush=True)
    for cells in rows:
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
