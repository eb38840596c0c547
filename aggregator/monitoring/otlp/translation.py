"""Makes OTLP metrics of the families that are exported to Prometheus."""

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

UNITS = {"_seconds": "s", "_bytes": "By"}
CUMULATIVE = AggregationTemporality.CUMULATIVE
SCOPE = "dither"

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]


def otlp_name(name: str) -> tuple[str, str]:
    """Return the name and the unit in OTLP of a family.

    A collector or Prometheus that makes Prometheus' names of OTLP's finds the family's again.

    Examples
    --------
    >>> otlp_name("dither_estimate_lower"), otlp_name("dither_commit_duration_seconds")
    (('dither.estimate.lower', ''), ('dither.commit.duration', 's'))
    """
    for suffix, unit in UNITS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", "."), unit
    return name.replace("_", "."), ""


class Translation:
    """Translates families at each export, and knows when each counter began for this process.

    Counters are older than the process and their beginning is not known. As OTLP's data model has
    it, the first point of a series has its own time as its start.

    Parameters
    ----------
    resource : Resource
        Which service this is.
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._known: dict[Series, tuple[int, float]] = {}

    def translate(self, families: Iterable[Family], now: int) -> MetricsData:
        """Return the OTLP metrics of families.

        What is not a number is left out, and so are empty labels, which mean none.

        Parameters
        ----------
        families : iterable of Family
        now : int
            Nanoseconds since the epoch.
        """
        metrics = [metric for family in families for metric in self._metric(family, now)]
        scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: Family, now: int) -> Iterator[Metric]:
        """Yield the metric of a family, if it has points."""
        name, unit = otlp_name(family.name)
        data: Gauge | Sum | Histogram
        if family.type == "histogram":
            data = Histogram([*self._histograms(family, now)], CUMULATIVE)
        elif family.type == "counter":
            data = Sum([*self._counters(family, now)], CUMULATIVE, is_monotonic=True)
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
        """Yield a point for each histogram, with buckets that do not contain those below them."""
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
            differences = [counts[0], *(b - a for a, b in itertools.pairwise(counts))]
            start = self._start((family.name, labels), counts[-1], now)
            yield HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=start,
                time_unix_nano=now,
                count=counts[-1],
                sum=sums[labels],
                bucket_counts=differences,
                explicit_bounds=bounds[:-1],
                min=None,  # type: ignore[arg-type, unused-ignore]
                max=None,  # type: ignore[arg-type, unused-ignore]
            )

    def _start(self, series: Series, value: float, now: int) -> int:
        """Return when a series began: at its first point here, or where it last decreased."""
        start, before = self._known.get(series, (now, value))
        if value < before:
            start = now
        self._known[series] = start, value
        return start


def _labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted((key, value) for key, value in labels.items() if value))
