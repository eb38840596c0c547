"""Living comparisons as samples of exported metrics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import structlog
from msgspec import UNSET

from aggregator.config.comparison_definitions import ComparisonDefinition
from aggregator.config.live_metrics import watches
from aggregator.errors import StateUnreadable
from aggregator.monitoring import metric_definitions as exported
from aggregator.monitoring.answer_samples import Sample
from aggregator.reading.comparisons.living import Living, living
from aggregator.reading.comparisons.run import ComparisonRun
from aggregator.reading.reader import Reader
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import from_iso

log = structlog.get_logger("dither.exporter")


class ComparisonExport:
    """Compares again only when a report more was counted, or a final pane was looked at.

    Parameters
    ----------
    top : int
        At most so many categories or coordinates, those that differ most.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._known: dict[str, tuple[object, list[Sample]]] = {}

    def samples(self, reader: Reader, overview: TopicProgress) -> Iterator[Sample]:
        """Yield how comparisons stand; nothing of what is not known.

        Parameters
        ----------
        reader : Reader
        overview : TopicProgress
            As of now.
        """
        for definition in watches(reader.metrics).comparisons.values():
            try:
                yield from self._of(reader, overview, definition)
            except StateUnreadable as error:
                log.error("unreadable", comparison=definition.name, reason=str(error))  # noqa: TRY400

    def _of(
        self, reader: Reader, overview: TopicProgress, definition: ComparisonDefinition
    ) -> list[Sample]:
        run = ComparisonRun.resumed(reader, definition)
        versions = [reader.describe(overview, metric.name).version for metric in run.metrics]
        stamp = (run.name, run.next_ms, versions)
        known, samples = self._known.get(definition.name, (None, []))
        if known != stamp:
            samples = [*self._samples(living(reader, definition))]
            self._known[definition.name] = stamp, samples
        return samples

    def _samples(self, found: Living) -> Iterator[Sample]:
        name = found.definition.name
        for arm, answer in zip("ab", (found.a, found.b), strict=True):
            if found.status != "expired":
                yield Sample(exported.COMPARED_REPORTS, answer.estimate.reports, (name, arm))
        for one in found.run.decided:
            category = "" if one.category is UNSET else one.category
            yield Sample(exported.DECIDED_AT, from_iso(one.at), (name, category))
        if found.comparison is None:
            return
        labels = found.comparison.labels or ("",)
        value, lower, upper, p_value = (
            np.atleast_1d(np.asarray(x, dtype=np.float64)).tolist()
            for x in (found.value, found.lower, found.upper, found.p_value)
        )
        same = 1.0 if found.query.of == "ratio" else 0.0
        before = {one.category for one in found.run.decided}
        order = sorted(range(len(labels)), key=lambda place: -abs(value[place] - same))
        for place in order[: self._top]:
            facts = (name, labels[place])
            decided = p_value[place] <= found.definition.beta or (labels[place] or UNSET) in before
            for what, number in (
                (exported.DIFFERENCE, value[place]),
                (exported.DIFFERENCE_LOWER, lower[place]),
                (exported.DIFFERENCE_UPPER, upper[place]),
                (exported.DIFFERENCE_P_VALUE, p_value[place]),
                (exported.DECIDED, int(decided)),
            ):
                if np.isfinite(number):
                    yield Sample(what, number, facts)
