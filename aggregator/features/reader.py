"""The reader of the public interface, with the queries of all features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Unpack

from aggregator.features.comparisons.arms import compare_all
from aggregator.features.comparisons.definitions import REST_SLICE
from aggregator.features.comparisons.living import Living, all_comparisons, definition_of, living
from aggregator.features.comparisons.query import Compared, CompareOptions, CompareQuery
from aggregator.reading.discovered_strings import Discovered, discover_strings
from aggregator.reading.query import Length, Progress, Query, Start, Time, ignore_progress
from aggregator.reading.reader import MetricReader


class Reader(MetricReader):
    """Answers queries about metrics from the sums in Redis.

    Missing arguments come from the settings of the command line: the settings file and ``DITHER_*``
    variables. As a context manager, it closes its store's connections.

    A time is a datetime with a time zone, text in ISO 8601 (UTC unless it names a zone) or seconds
    since the epoch. A datetime without a time zone is refused. A duration is text such as ``"7d"``,
    or a timedelta.

    Parameters
    ----------
    store : str or Store, optional
        A Redis URL, or a store that is open already; by default ``redis.url`` of the settings.
    metrics : mapping of str to Metric, or path, optional
        The definitions, or their file; by default ``metrics`` of the settings.
    topic : str, optional
        The reports topic, used with a URL; by default ``topics.reports`` of the settings.
    config : path, optional
        The settings file; by default the one in DITHER_CONFIG, else ``dither.toml`` if there is
        one.

    Raises
    ------
    DitherError
        If the settings cannot be used, or there is no file of definitions.
    StoreUnreachable
        If no Redis answers at the URL.
    """

    def compare(
        self,
        name: str,
        where: Mapping[str, str | None] | None = None,
        against: Mapping[str, str | None] | Literal["rest"] = REST_SLICE,
        **options: Unpack[CompareOptions],
    ) -> Compared:
        """Compare two slices, a slice with the rest, two windows, or two metrics.

        Parameters
        ----------
        name : str
            The metric's name.
        where : mapping of str to str, optional
            The slice of the first arm; by default all devices.
        against : mapping of str to str, or "rest"
            The slice of the second arm.
        **options
            ``against_start``, ``against_end`` and ``against_window``: the window of the second arm,
            by default that of the first. ``of``, ``split``, ``other``, ``independent``, ``below``
            and ``each`` as in :class:`aggregator.features.comparisons.query.CompareQuery`. All
            other options: fields of :class:`aggregator.reading.query.Query`.

        Returns
        -------
        Compared
            With ``value``, ``lower``, ``upper``, ``p_value`` and ``law``.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the arms cannot be compared, with the reason.
        """
        query = CompareQuery.of_options(where or {}, against, **options)
        (compared,) = compare_all(self, name, query)
        return compared

    def discover(
        self,
        name: str,
        start: Start = None,
        end: Time = None,
        *,
        window: Length | None = None,
        beta: float = 0.05,
        progress: Progress = ignore_progress,
    ) -> Discovered:
        """Find the frequent strings of a metric with ``discover = true``.

        Parameters
        ----------
        name : str
            The metric's name.
        start, end : datetime, str, float (seconds since the epoch) or None
            The window [start, end), widened to whole panes. Without an end, the window reaches to
            the last pane that every partition has closed.
        window : str or timedelta, optional
            Instead of start and end: a duration such as ``"1d"``, for the last closed window of
            this length.
        beta : float
            The largest probability that nobody holds a shown string, or that an interval is wrong.
        progress : callable
            Takes the share of the work that is done; an exception from it ends the work.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the metric does not discover strings, or the window is empty.
        """
        described, reading = self.describe_closed(name, Query(start, end, window=window))
        return discover_strings(self.read(described), beta, reading, progress)

    def comparison(self, name: str, *, each: bool = False) -> Living:
        """Return the state of a comparison in the definitions.

        Parameters
        ----------
        name : str
            The comparison's name.
        each : bool
            Whether both arms also have bounds, which share beta.

        Returns
        -------
        Living
            With ``value``, ``lower``, ``upper``, ``p_value``, ``decided`` and ``decided_at``.

        Raises
        ------
        UnknownComparison
            If there is no such comparison; the error suggests the nearest name.
        """
        return living(self, definition_of(self.metrics, name), with_arm_bounds=each)

    def comparisons(
        self, *, each: bool = False, progress: Progress = ignore_progress
    ) -> list[Living]:
        """Return the state of all comparisons in the definitions.

        Parameters
        ----------
        each : bool
            As in :meth:`comparison`.
        progress : callable
            As in :meth:`discover`.
        """
        return all_comparisons(self, with_arm_bounds=each, progress=progress)
