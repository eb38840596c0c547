"""Answers of defined comparisons: the sums of final panes, and all reports counted since."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.errors import UnknownComparison
from aggregator.features.comparisons.arms import Arms
from aggregator.features.comparisons.comparison_answers import ComparisonAnswer, comparison_answer
from aggregator.features.comparisons.definitions import ComparisonDefinition, comparisons_of
from aggregator.features.comparisons.query import Compared
from aggregator.features.comparisons.run import ComparisonDecided, ComparisonRun, Look, arm_metrics
from aggregator.reading.query import Progress, ignore_progress
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import Moment
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import iso
from estimators import Metric
from estimators.errors import meant

NEVER_RUN = (
    "no publisher has looked at a final pane yet: `dither serve` looks at them (publish.enabled)"
)
MAY_HAVE_EXPIRED = (
    "reports since the start may have expired: a publisher (publish.enabled) keeps the sums of "
    "final panes from its first look on"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Living(Compared):
    """A comparison of the definitions, with all reports since its start.

    Attributes
    ----------
    run : ComparisonRun
        How far the comparison has processed final panes, with its decisions and history.
    reason : str
        Why the comparison is undecided or unknown; empty if nothing is wrong.
    """

    definition: ComparisonDefinition
    run: ComparisonRun
    reason: str

    @property
    def name(self) -> str | None:
        """The comparison's name in the definitions."""
        return self.definition.name

    @property
    def decided(self) -> bool:
        """Whether the arms are proved to be different, now or at an earlier time."""
        return bool(self.run.decided) or super().decided

    @property
    def decided_at(self) -> str | None:
        """The end of the final pane with the first decision; None before any decision."""
        return min((decision.at for decision in self.run.decided), default=None)


class LivingAnswer(ComparisonAnswer, frozen=True, kw_only=True):
    """A comparison of the definitions since its start, with bounds that hold at all times.

    Its numbers are those of all reports counted so far. Final panes are processed one after
    another: `until` is the end of the last one. `decided_at` is the end of the first pane at which
    the bounds excluded 0 (for a ratio, 1); null if they never did. `decisions` has the first such
    pane for each category or coordinate. `decided` says that the arms are proved to be different,
    now or at an earlier time. `incomplete` is the number of final panes with reports that are in no
    table of slices. `history` has the numbers at the ends of final panes. `reason` says why the
    comparison is undecided or unknown; empty if nothing is wrong.
    """

    comparison: str
    title: str
    decided_at: Moment | None
    decisions: list[ComparisonDecided]
    until: Moment | None
    incomplete: int
    reason: str
    history: list[Look] | UnsetType = UNSET


class LivingAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """All comparisons of the definitions, without `history`."""

    comparisons: list[LivingAnswer]


def definition_of(metrics: Mapping[str, Metric], name: str) -> ComparisonDefinition:
    """Return the definition of a comparison.

    Raises UnknownComparison if there is no such comparison; the error suggests the nearest name.
    """
    definitions = comparisons_of(metrics)
    if name not in definitions:
        raise UnknownComparison(name, meant(name, definitions))
    return definitions[name]


def all_comparisons(
    reader: MetricReader, *, with_arm_bounds: bool = False, progress: Progress = ignore_progress
) -> list[Living]:
    """Return the state of all comparisons in the definitions.

    `reader`: reads the sums in Redis; `with_arm_bounds`: whether both arms also have bounds, which
    share beta; `progress`: takes the share of the work that is done; an exception from it ends the
    work.
    """
    definitions, answers = comparisons_of(reader.metrics).values(), list[Living]()
    for definition in definitions:
        progress(len(answers) / len(definitions))
        answers.append(living(reader, definition, with_arm_bounds=with_arm_bounds))
    return answers


def living(
    reader: MetricReader, definition: ComparisonDefinition, *, with_arm_bounds: bool = False
) -> Living:
    """Return the state of a comparison.

    `reader`: reads the sums in Redis; `definition`: the definition of the comparison;
    `with_arm_bounds`: whether both arms have bounds, too, which share beta. Raises StateUnreadable
    if Redis has lost or changed what the answer needs.
    """
    metrics = {metric.name: metric for metric in arm_metrics(reader, definition)}
    run, overview = reader.store.together(
        functools.partial(ComparisonRun.resumed, reader, definition),
        functools.partial(reader.progress, *metrics),
    )
    arms, *may_have_expired = reader.store.together(
        functools.partial(run.read, overview),
        *(
            functools.partial(_may_have_expired, reader, run, overview, metric)
            for metric in metrics.values()
        ),
    )
    reason = "" if run.has_begun else NEVER_RUN
    if any(may_have_expired):
        window_a, window_b = (window.expired() for window in arms.windows)
        arms = Arms((window_a, window_b), arms.sums, arms.where)
    if any(window.status == "expired" for window in arms.windows):
        reason = MAY_HAVE_EXPIRED
    run.add(arms)
    compared = run.compare(arms, with_arm_bounds=with_arm_bounds)
    return Living(**vars(compared), definition=definition, run=run, reason=reason)


def _may_have_expired(
    reader: MetricReader, run: ComparisonRun, overview: TopicProgress, metric: Metric
) -> bool:
    """Return whether reports in panes that the run has not processed may have expired.

    Panes expire a fixed time after their last report reached Kafka. So the current event time is
    estimated as the newest pane's start plus the age of its last report.
    """
    key, panes = metric_key(metric.name, metric.revision), reader.store.panes
    watermarks = overview.watermarks(key)
    partitions = [*watermarks]
    extent = panes.extent(key, partitions)
    if extent is None:
        return False
    unread = panes.first_starts(key, partitions, run.next_ms, extent[1], 1)
    if not unread:
        return False
    arrived_ms = max(mark.arrived for mark in watermarks.values())
    now_ms = extent[1] + max(0, int(1000 * time.time()) - arrived_ms)
    return run.may_have_expired(min(unread), now_ms)


def living_answer(comparison: Living, *, history: bool = False) -> LivingAnswer:
    """Return the JSON form of a comparison's state, with or without its history."""
    run = comparison.run
    return LivingAnswer(
        **msgspec.structs.asdict(comparison_answer(comparison)),
        comparison=comparison.definition.name,
        title=comparison.definition.title,
        decided_at=comparison.decided_at,
        decisions=run.decided,
        until=iso(run.next_ms) if run.has_begun else None,
        incomplete=run.incomplete,
        reason=comparison.reason,
        history=run.history if history else UNSET,
    )
