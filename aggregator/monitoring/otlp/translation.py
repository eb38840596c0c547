"""Translates the families that Prometheus scrapes into OTLP metrics."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family

UNIT_SUFFIXES = {"_seconds": "s", "_bytes": "By"}
CUMULATIVE_TEMPORALITY = AggregationTemporality.CUMULATIVE
SCOPE_NAME = "dither"

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]


def otlp_name(name: str) -> tuple[str, str]:
    """Return a family's name and unit in OTLP.

    The standard mapping from OTLP to Prometheus gives the same family again.

    Examples
    --------
    >>> otlp_name("dither_estimate_lower"), otlp_name("dither_commit_duration_seconds")
    (('dither.estimate.lower', ''), ('dither.commit.duration', 's'))
    """
    for suffix, unit in UNIT_SUFFIXES.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", "."), unit
    return name.replace("_", "."), ""


class Translation:
    """Translates metric families at each export, and remembers when each counter began.

    Counters are older than the process, and their true start is unknown. So, as OTLP's data model
    says, a series starts at the time of its first point.

    Parameters
    ----------
    resource : Resource
        The identity of the service.
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._last_points: dict[Series, tuple[int, float]] = {}

    def translate(self, families: Iterable[Family], now: int) -> MetricsData:
        """Return metric families as OTLP metrics, without NaN values and empty labels.

        `families`: the families; `now`: the time of the export, in nanoseconds since the epoch.
        """
        metrics = [metric for family in families for metric in self._metric(family, now)]
        scope = ScopeMetrics(InstrumentationScope(SCOPE_NAME), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: Family, now: int) -> Iterator[Metric]:
        """Yield the OTLP metric of a family, if the family has points."""
        name, unit = otlp_name(family.name)
        data: Gauge | Sum | Histogram
        if family.type == "histogram":
            data = Histogram([*self._histograms(family, now)], CUMULATIVE_TEMPORALITY)
        elif family.type == "counter":
            data = Sum([*self._counters(family, now)], CUMULATIVE_TEMPORALITY, is_monotonic=True)
        else:
            name += ".info" if family.type == "info" else ""
            data = Gauge(
                [
                    NumberDataPoint(dict(_labels(sample.labels)), 0, now, float(sample.value))
                    for sample in family.samples
                    if not math.isnan(sample.value)
                ]
            )
        if data.data_points:
            yield Metric(name, family.documentation, unit, data)

    def _counters(self, family: Family, now: int) -> Iterator[NumberDataPoint]:
        for sample in family.samples:
            labels = _labels(sample.labels)
            start = self._start((family.name, labels), sample.value, now)
            yield NumberDataPoint(dict(labels), start, now, int(sample.value))

    def _histograms(self, family: Family, now: int) -> Iterator[HistogramDataPoint]:
        """Yield a point for each series of a histogram; its buckets are not cumulative."""
        buckets = defaultdict[Labels, dict[float, int]](dict)
        sums: dict[Labels, float] = {}
        for sample in family.samples:
            labels = _labels({key: v for key, v in sample.labels.items() if key != "le"})
            if sample.name.endswith("_bucket"):
                buckets[labels][float(sample.labels["le"])] = int(sample.value)
            elif sample.name.endswith("_sum"):
                sums[labels] = sample.value
        for labels, cumulative in buckets.items():
            bounds = sorted(cumulative)
            counts = [cumulative[bound] for bound in bounds]
            yield HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=self._start((family.name, labels), counts[-1], now),
                time_unix_nano=now,
                count=counts[-1],
                sum=sums[labels],
                bucket_counts=[counts[0], *(b - a for a, b in itertools.pairwise(counts))],
                explicit_bounds=bounds[:-1],
                min=None,  # type: ignore[arg-type, unused-ignore]
                max=None,  # type: ignore[arg-type, unused-ignore]
            )

    def _start(self, series: Series, value: float, now: int) -> int:
        """Return the time of a series' first point in this process, or of its last decrease."""
        start, previous_value = self._last_points.get(series, (now, value))
        if value < previous_value:
            start = now
        self._last_points[series] = start, value
        return start


def _labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted((key, value) for key, value in labels.items() if value))
