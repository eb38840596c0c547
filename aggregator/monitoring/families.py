"""The metric families of a scrape; samples that do not change between scrapes keep their text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as ScrapedSample

from aggregator.counting.measurements import Histogram
from aggregator.monitoring.metric_definitions import Exported
from aggregator.monitoring.reference import all_exported
from aggregator.monitoring.relay_metrics import RELAY_METRICS
from aggregator.monitoring.samples import Sample

Encode = Callable[[Collector], bytes]
"""An encoder of prometheus_client, for one format and version."""


class FamilyPart(Family):
    """Samples of a family that were added together, and their text in the last requested format."""

    text: tuple[str, bytes] = "", b""


class JoinedFamily(Family):
    """A family whose samples are in several parts."""

    def __init__(self, exported: Exported, parts: Sequence[FamilyPart]) -> None:
        super().__init__(exported.name, exported.help, exported.type)
        self.parts = parts
        for family_part in parts:
            self.samples += family_part.samples


class Families:
    """The metric families of one scrape."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._parts: dict[str, list[FamilyPart]] = {}
        self._own_parts: dict[str, FamilyPart] = {}
        for sample in samples:
            self.put(sample.exported, sample.value, *sample.labels)

    def put(self, exported: Exported, value: float, *labels: object) -> None:
        """Add a sample.

        `exported`: the declared metric; `value`: the value in base units, such as seconds;
        `labels`: the labels' values, in the declaration's order.
        """
        self._add_sample(exported, exported.scraped, value, labels)

    def merge(self, families: Families) -> None:
        """Add the samples of other families, which must not change afterwards."""
        for name, parts in families._parts.items():
            self._parts.setdefault(name, []).extend(parts)

    def keep_texts(self, earlier: Families) -> None:
        """Reuse the earlier families' texts, where the samples are equal."""
        for name, family_part in self._own_parts.items():
            earlier_part = earlier._own_parts.get(name)
            if earlier_part is not None and earlier_part.samples == family_part.samples:
                family_part.text = earlier_part.text

    def histogram(self, exported: Exported, histogram: Histogram, *labels: object) -> None:
        """Add the samples of a histogram of seconds.

        `exported`: the declared metric; `histogram`: the counts and the sum of the observations;
        `labels`: the labels' values, in the declaration's order.
        """
        counts = histogram.cumulative()
        bounds = [*(str(float(bound)) for bound in exported.buckets), "+Inf"]
        for bound, count in zip(bounds, counts, strict=True):
            self._add_sample(exported, f"{exported.name}_bucket", count, labels, le=bound)
        self._add_sample(exported, f"{exported.name}_count", counts[-1], labels)
        self._add_sample(exported, f"{exported.name}_sum", histogram.seconds, labels)

    def _add_sample(
        self, exported: Exported, name: str, value: float, labels: Sequence[object], **extra: str
    ) -> None:
        if exported.name not in self._own_parts:
            family_part = FamilyPart(exported.name, exported.help, exported.type)
            self._own_parts[exported.name] = family_part
            self._parts.setdefault(exported.name, []).append(family_part)
        pairs = dict(zip(exported.labels, map(str, labels), strict=True))
        sample = ScrapedSample(name, pairs | extra, value)
        self._own_parts[exported.name].samples.append(sample)

    def filled(self) -> list[Family]:
        """Return the families with samples, in the order of declaration."""
        return [
            JoinedFamily(exported, self._parts[exported.name])
            for exported in (*all_exported(), *RELAY_METRICS)
            if exported.name in self._parts
        ]


@dataclasses.dataclass
class Collected(Collector):
    """Families that were collected before."""

    families: Sequence[Family]

    def collect(self) -> Sequence[Family]:
        """Return the families."""
        return self.families


def text_of(collector: Collector, encode: Encode, content_type: str) -> bytes:
    """Return the text of all families, as `encode` writes it; the text of a part is kept.

    `collector`: the families, all from :meth:`Families.filled`; `encode`: writes a collector as
    text; `content_type`: names the format and the version of `encode`.
    """
    end = encode(Collected([]))
    pieces = []
    for family in collector.collect():
        assert isinstance(family, JoinedFamily)  # noqa: S101
        empty = Family(family.name, family.documentation, family.type)
        head = encode(Collected([empty])).removesuffix(end)
        pieces.append(head)
        for family_part in family.parts:
            if family_part.text[0] != content_type:
                text = encode(Collected([family_part])).removeprefix(head).removesuffix(end)
                family_part.text = content_type, text
            pieces.append(family_part.text[1])
    return b"".join((*pieces, end))
