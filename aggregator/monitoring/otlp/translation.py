"""Translates the families that Prometheus scrapes into OTLP metrics."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family

UNIT_SUFFIXES = {"_seconds": "s", "_bytes": "By"}
CUMULATIVE_TEMPORALITY = export.AggregationTemporality.CUMULATIVE
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

    def translate(self, families: Iterable[Family], now: int) -> export.MetricsData:
        """Return metric families as OTLP metrics, without NaN values and empty labels.

        `families`: the families; `now`: the time of the export, in nanoseconds since the epoch.
        """
        metrics = [metric for family in families for metric in self._metric(family, now)]
        scope = export.ScopeMetrics(InstrumentationScope(SCOPE_NAME), metrics, "")
        return export.MetricsData([export.ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: Family, now: int) -> Iterator[export.Metric]:
        """Yield the OTLP metric of a family, if the family has points."""
        name, unit = otlp_name(family.name)
        data: export.Gauge | export.Sum | export.Histogram
        if family.type == "histogram":
            data = export.Histogram([*self._histograms(family, now)], CUMULATIVE_TEMPORALITY)
        elif family.type == "counter":
            points = [*self._counters(family, now)]
            data = export.Sum(points, CUMULATIVE_TEMPORALITY, is_monotonic=True)
        else:
            name += ".info" if family.type == "info" else ""
            data = export.Gauge(
                [
                    export.NumberDataPoint(dict(_labels(point.labels)), 0, now, float(point.value))
                    for point in family.samples
                    if not math.isnan(point.value)
                ]
            )
        if data.data_points:
            yield export.Metric(name, family.documentation, unit, data)

    def _counters(self, family: Family, now: int) -> Iterator[export.NumberDataPoint]:
        for sample in family.samples:
            labels = _labels(sample.labels)
            start = self._start((family.name, labels), sample.value, now)
            yield export.NumberDataPoint(dict(labels), start, now, int(sample.value))

    def _histograms(self, family: Family, now: int) -> Iterator[export.HistogramDataPoint]:
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
            yield export.HistogramDataPoint(
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
