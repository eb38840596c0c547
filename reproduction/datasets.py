"""Records for `dither reproduce NAME --data FILE`, in their published formats.

The header identifies the format. MovieLens' file is read in pieces, because it has 30 million
lines.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.errors import DitherError
from producers.populations.csv_files import read_table
from producers.populations.flights import flights
from producers.populations.text_files import UTF_8, open_bytes
from reproduction.records import LARGEST_AGE, Records, Task, ages, ratings

FLIGHTS = "flights"
"""Stands for the table that the demo replays, instead of a file."""
PIECE = 1_000_000  # lines of ratings at once
STATE, YEAR, MOST_FREQUENT = "Colorado", "2020", 10
ROLLUPS = ("All Cancer Sites Combined", "Digestive System", "Respiratory System")
"""Sites that contain other sites, as do "Male and Female Breast" and all sites in situ."""
AMOUNTS = tuple(range(0, 60_000, 10_000))
MIN_CUSTOMERS = 2**15
"""The least number of customers of a category that becomes a task."""


def read_salaries(path: Path) -> Records:
    """Read the Californian Controller's export of an employer's wages, one row a person.

    Raises
    ------
    DitherError
        If nobody is paid.
    """
    paid = _numbers(read_table(path, ["TotalWages"]).columns["TotalWages"], path, "TotalWages")
    paid = paid[paid > 0]
    if not paid.size:
        raise DitherError(f"{path}: nobody has TotalWages above 0")
    return Records((f"{path.name}: {paid.size:,} salaries",), wages=paid)


def read_cancers(path: Path) -> Records:
    """Read BYAREA.TXT of the U.S. Cancer Statistics: the ten most frequent sites in Colorado.

    Raises
    ------
    DitherError
        If the file is not this table.
    """
    names = ["AREA", "YEAR", "EVENT_TYPE", "RACE", "SITE", "COUNT"]
    columns = read_table(path, names).columns
    sites: dict[str, int] = {}
    for area, year, event, race, site, count in zip(*columns.values(), strict=True):
        wanted = (area, year, event, race) == (STATE, YEAR, "Incidence", "All Races")
        has_count = count not in {"", ".", "~", "-"}
        if wanted and has_count and site not in ROLLUPS and "in situ" not in site:
            cases = int(_numbers([count], path, "COUNT")[0])
            sites[site] = max(cases, sites.get(site, 0))  # the largest is that of both sexes
    sites.pop("Male and Female Breast", None)
    frequent = sorted(sites.values(), reverse=True)[:MOST_FREQUENT]
    if len(frequent) < 2:
        raise DitherError(
            f"{path}: no counts of Incidence among All Races in {STATE}, {YEAR}: expected the "
            "table of all states, BYAREA.TXT"
        )
    description = f"{path.name}: {sum(frequent):,} cases in {STATE}, {YEAR}"
    return Records((description,), cases=np.array(frequent, dtype=np.int64))


def read_movielens(path: Path) -> Records:
    """Read MovieLens' ratings.csv: each user's average rating and number of ratings.

    Raises
    ------
    DitherError
        If there are no ratings.
    """
    total, number = np.zeros(0), np.zeros(0, dtype=np.int64)
    with open_bytes(path) as raw, io.TextIOWrapper(raw, UTF_8) as lines:
        header = lines.readline().strip().split(",")
        for piece in _pieces(lines, path, (header.index("userId"), header.index("rating"))):
            user, size = piece[:, 0].astype(np.int64), int(piece[:, 0].max()) + 1
            grown = max(size, total.size)
            total = np.append(total, np.zeros(grown - total.size))
            number = np.append(number, np.zeros(grown - number.size, dtype=np.int64))
            total += np.bincount(user, weights=piece[:, 1], minlength=grown)
            number += np.bincount(user, minlength=grown)
    has_rated = number > 0
    if not has_rated.any():
        raise DitherError(f"{path}: no ratings")
    description = f"{path.name}: {number.sum():,} ratings of {has_rated.sum():,} users"
    return Records(
        (description,), tasks=ratings(total[has_rated] / number[has_rated], number[has_rated])
    )


def _pieces(
    lines: Iterable[str], path: Path, columns: tuple[int, int]
) -> Iterator[NDArray[np.float64]]:
    """Yield users and ratings, shape (lines, 2), a million lines at a time."""
    rows = iter(lines)
    for done in itertools.count(step=PIECE):
        block = list(itertools.islice(rows, PIECE))
        if not block:
            return
        try:
            piece = np.loadtxt(block, delimiter=",", usecols=columns, ndmin=2)
        except ValueError as error:
            raise DitherError(f"{path}, after line {done + 1}: {error}") from None
        if (piece[:, 0] < 0).any() or not np.isfinite(piece).all():
            raise DitherError(f"{path}, after line {done + 1}: a user or rating below 0")
        yield piece


def read_purchases(path: Path) -> Records:
    """Read orders, one row each: user, age, amount, category (the paper's were never published).

    Raises
    ------
    DitherError
        If an age is impossible.
    """
    names = ["user", "age", "amount", "category"]
    columns = read_table(path, names).columns
    age, amount = (_numbers(columns[name], path, name) for name in ("age", "amount"))
    if ((age < 0) | (age > LARGEST_AGE)).any():
        raise DitherError(f"{path}: an age outside 0 to {LARGEST_AGE}")
    _, first, user = np.unique(columns["user"], return_index=True, return_inverse=True)
    spent = np.bincount(user, weights=amount)
    groups: list[tuple[str, NDArray[Any], float | None]] = []
    for low in AMOUNTS:
        is_within = (spent >= low) & (spent < low + 10_000)
        groups.append((f"JPY {low:,} to {low + 10_000:,}", age[first][is_within], None))
    kinds = np.array(columns["category"])
    for kind in np.unique(kinds):
        buyers = np.unique(user[kinds == kind])
        if buyers.size >= MIN_CUSTOMERS:
            groups.append((str(kind), age[first][buyers], None))
    filled_groups = [group for group in groups if group[1].size]
    description = f"{path.name}: {amount.size:,} orders of {first.size:,} customers"
    return Records((description,), tasks=ages(filled_groups))


def read_flights() -> Records:
    """Return tasks and cases of the flights that the demo replays."""
    values = flights().columns
    air_time, delay = (
        values[name][~np.isnan(values[name])].astype(np.float64)
        for name in ("air_time", "dep_delay")
    )
    tasks = (
        Task("shortest air time", "minimum", air_time, (0.0, 1024.0)),
        Task("longest air time", "maximum", air_time, (0.0, 1024.0)),
        Task("earliest departure", "minimum", delay, (-60.0, 1380.0)),
        Task("latest departure", "maximum", delay, (-60.0, 1380.0)),
    )
    carriers = np.bincount(values["carrier"][values["carrier"] >= 0])
    description = f"flights from New York in 2013: {air_time.size:,} with an air time"
    return Records((description,), cases=carriers[carriers > 0], tasks=tasks)


FORMATS: dict[str, tuple[Callable[[Path], Records], str]] = {
    "TotalWages": (read_salaries, "salaries, as exported by the Californian State Controller"),
    "AGE_ADJUSTED_RATE": (read_cancers, "BYAREA.TXT of the U.S. Cancer Statistics"),
    "movieId": (read_movielens, "ratings.csv of MovieLens"),
    "amount": (read_purchases, "orders, with columns user, age, amount and category"),
}
"""How each format is read, and its description, by a column that only this format has."""


def read_records(place: str) -> Records:
    """Read a file of records, whose format its header tells; ``flights`` reads the demo's.

    Raises
    ------
    DitherError
        If the file cannot be read; the error names the file, what is wrong, and what was expected.
    """
    if place == FLIGHTS:
        return read_flights()
    path = Path(place)
    if not path.is_file():
        raise DitherError(f"{place}: no such file (or `{FLIGHTS}`, for those of the demo)")
    try:
        with open_bytes(path) as raw, io.TextIOWrapper(raw, UTF_8) as text:
            header = text.readline()
        for column, (read, _) in FORMATS.items():
            if column in header.replace("|", ",").strip().split(","):
                return read(path)
    except (ValueError, UnicodeDecodeError) as error:
        raise DitherError(str(error)) from None
    formats = "; ".join(format_name for _, format_name in FORMATS.values())
    raise DitherError(f"{place}: the header {header[:60]!r} is none of: {formats}")


def _numbers(cells: list[str], path: Path, column: str) -> NDArray[np.float64]:
    try:
        numbers = np.array([cell.replace(",", "") or "0" for cell in cells], dtype=np.float64)
    except ValueError as error:
        raise DitherError(f"{path}: column {column!r}: {error}") from None
    if not np.isfinite(numbers).all():
        raise DitherError(f"{path}: column {column!r}: a number that is not finite")
    return numbers
