"""Prometheus samples of living comparisons and of their decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import structlog
from msgspec import UNSET

from aggregator.errors import StateUnreadable
from aggregator.features.comparisons.definitions import ComparisonDefinition, comparisons_of
from aggregator.features.comparisons.living import Living, living
from aggregator.features.comparisons.query import number_list
from aggregator.features.comparisons.run import ComparisonRun
from aggregator.monitoring.metric_definitions import Bounded, Exported, declared
from aggregator.monitoring.samples import Sample, Samples
from aggregator.reading.reader import MetricReader
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import from_iso

log = structlog.get_logger("dither.exporter")

BOUNDED_DIFFERENCE = Bounded.of(
    "dither_difference{comparison,category}",
    'By how much the first arm of a comparison exceeds the second one; for `of = "ratio"` their '
    "ratio. Absent while it is unknown.",
    "{} bound of a comparison, at all times from its start on; absent where it is infinite.",
)
DIFFERENCE_P_VALUE = Exported(
    "dither_difference_pvalue{comparison,category}",
    "The p-value of the hypothesis that both arms are equal; it is valid at any time.",
)
COMPARISON_DECIDED = Exported(
    "dither_comparison_decided{comparison,category}",
    "1 if the arms are proved to be different, now or before; 0 if not yet.",
)
DECIDED_AT = Exported(
    "dither_comparison_decided_timestamp_seconds{comparison,category}",
    "End of the final pane at which a comparison was decided; absent before.",
)
COMPARED_REPORTS = Exported(
    "dither_comparison_reports{comparison,arm}", "Reports of an arm since a comparison's start."
)


class ComparisonSamples(Samples):
    """The states of comparisons; of many categories or coordinates, only those that differ most.

    A comparison is recomputed only after more reports were counted or a final pane was processed.
    """

    title = "Comparisons"
    exported = declared(globals())
    labels: ClassVar = {
        "comparison": "name of a comparison in `metrics.toml`",
        "arm": "`a`: `where`, `b`: `against`",
    }

    def __init__(self, reader: MetricReader, top: int) -> None:
        super().__init__(reader, top)
        self._samples_by_name: dict[str, tuple[object, list[Sample]]] = {}

    def samples(self, overview: TopicProgress) -> Iterator[Sample]:
        """Yield the samples of all comparisons."""
        for definition in comparisons_of(self.reader.metrics).values():
            try:
                yield from self._samples_of(overview, definition)
            except StateUnreadable as error:
                log.error("unreadable", comparison=definition.name, reason=str(error))  # noqa: TRY400

    def _samples_of(
        self, overview: TopicProgress, definition: ComparisonDefinition
    ) -> list[Sample]:
        run = ComparisonRun.resumed(self.reader, definition)
        versions = [self.reader.describe(overview, metric.name).version for metric in run.metrics]
        stamp = (run.name, run.next_ms, versions)
        last_stamp, samples = self._samples_by_name.get(definition.name, (None, []))
        if last_stamp != stamp:
            samples = [*self._samples_now(living(self.reader, definition))]
            self._samples_by_name[definition.name] = stamp, samples
        return samples

    def _samples_now(self, comparison: Living) -> Iterator[Sample]:
        name = comparison.definition.name
        for arm, answer in zip("ab", (comparison.a, comparison.b), strict=True):
            if comparison.status != "expired":
                yield Sample(COMPARED_REPORTS, answer.estimate.reports, (name, arm))
        for decision in comparison.run.decided:
            category = "" if decision.category is UNSET else decision.category
            yield Sample(DECIDED_AT, from_iso(decision.at), (name, category))
        if comparison.comparison is None:
            return
        labels = comparison.comparison.labels or ("",)
        columns = (comparison.value, comparison.lower, comparison.upper, comparison.p_value)
        value, lower, upper, p_value = map(number_list, columns)
        equal = 1.0 if comparison.query.of == "ratio" else 0.0
        decided_categories = {decision.category for decision in comparison.run.decided}
        order = sorted(range(len(labels)), key=lambda index: -abs(value[index] - equal))
        for index in order[: self.top]:
            facts = (name, labels[index])
            was_decided = (labels[index] or UNSET) in decided_categories
            decided = p_value[index] <= comparison.definition.beta or was_decided
            numbers = (value[index], lower[index], upper[index], p_value[index], int(decided))
            kinds = (*BOUNDED_DIFFERENCE, DIFFERENCE_P_VALUE, COMPARISON_DECIDED)
            for exported, number in zip(kinds, numbers, strict=True):
                if np.isfinite(number):
                    yield Sample(exported, number, facts)


SAMPLES_CLASS = ComparisonSamples
