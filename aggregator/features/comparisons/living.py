"""How living comparisons stand now: what is final, and what was counted since."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.errors import UnknownComparison
from aggregator.features.comparisons.answers import ComparisonAnswer, comparison_answer
from aggregator.features.comparisons.arms import Arms
from aggregator.features.comparisons.compared import Compared
from aggregator.features.comparisons.definitions import ComparisonDefinition, comparisons_of
from aggregator.features.comparisons.run import ComparisonRun, Source
from aggregator.features.comparisons.stored import ComparisonDecided, Look
from aggregator.reading.query import Progress, unwatched
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import Moment
from aggregator.reading.windows import Window
from aggregator.state.pane_keys import metric_key
from aggregator.timestamps import iso
from estimators import Metric
from estimators.errors import meant

NEVER_RUN = (
    "no publisher has looked at a final pane yet: `dither serve` looks at them (publish.enabled)"
)
EXPIRED = (
    "reports since the start may have expired: a publisher (publish.enabled) keeps the sums of "
    "final panes from its first look on"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Living(Compared):
    """A comparison of the definitions, with all reports from its start on.

    Attributes
    ----------
    definition : ComparisonDefinition
    run : ComparisonRun
        How far final panes were looked at, what they decided and how it stood.
    reason : str
        Why nothing is decided, or nothing known; empty where all is well.
    """

    definition: ComparisonDefinition
    run: ComparisonRun
    reason: str

    @property
    def name(self) -> str | None:
        """Its name in the definitions."""
        return self.definition.name

    @property
    def decided(self) -> bool:
        """Whether the arms are proved to be different: now, or at any time before."""
        return bool(self.run.decided) or super().decided

    @property
    def decided_at(self) -> str | None:
        """The end of the final pane at which the first of its numbers was decided, or None."""
        return min((one.at for one in self.run.decided), default=None)


class LivingAnswer(ComparisonAnswer, frozen=True, kw_only=True):
    """A comparison of the definitions, from its start on, with bounds that hold at all times.

    Its numbers are those of all reports that are counted now. Final panes are looked at one after
    another: `until` is the end of the last one. `decided_at` is the end of the first one at which 0
    (for a ratio: 1) was outside of the bounds; null if it never was. `decisions` has that for each
    category or coordinate. `decided` is true if the arms are proved to be different now, or were
    before. `incomplete` is the number of final panes some of whose reports are in no table of
    slices. `history` is how it stood at the ends of final panes. `reason` says why nothing is
    known, or decided, if something keeps it from that.
    """

    comparison: str
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

    Parameters
    ----------
    metrics : mapping of str to Metric
        The definitions.
    name : str

    Raises
    ------
    UnknownComparison
        Naming the nearest known one.
    """
    definitions = comparisons_of(metrics)
    if name not in definitions:
        raise UnknownComparison(name, meant(name, definitions))
    return definitions[name]


def all_comparisons(
    reader: MetricReader, *, each: bool = False, progress: Progress = unwatched
) -> list[Living]:
    """Return how all comparisons of the definitions stand now.

    Parameters
    ----------
    reader : MetricReader
    each : bool
        Whether both arms have bounds, too, which share beta.
    progress : callable
        Is told the share of the work that is done; what it raises ends the work.
    """
    definitions, answers = comparisons_of(reader.metrics).values(), list[Living]()
    for definition in definitions:
        progress(len(answers) / len(definitions))
        answers.append(living(reader, definition, each=each))
    return answers


def living(source: Source, definition: ComparisonDefinition, *, each: bool = False) -> Living:
    """Return how a comparison stands now.

    Parameters
    ----------
    source : Source
    definition : ComparisonDefinition
    each : bool
        See :class:`aggregator.features.comparisons.arms.CompareQuery`.

    Raises
    ------
    StateUnreadable
        If it cannot be read.
    """
    run = ComparisonRun.resumed(source, definition)
    begun, overview = run.has_begun, source.store.overview()
    arms = run.read(overview)
    reason = "" if begun else NEVER_RUN
    if any(_may_have_expired(source, run, window) for window in arms.windows):
        one, two = (window.expired() for window in arms.windows)
        arms = Arms((one, two), arms.sums, arms.where)
    if any(window.status == "expired" for window in arms.windows):
        reason = EXPIRED
    run.add(arms)
    found = run.compare(arms, each=each)
    facts: dict[str, Any] = {
        field.name: getattr(found, field.name) for field in dataclasses.fields(found)
    }
    return Living(**facts, definition=definition, run=run, reason=reason)


def _may_have_expired(source: Source, run: ComparisonRun, window: Window) -> bool:
    """Return whether some of what no publisher has looked at may have expired.

    What is stored expires so long after the last report in it reached Kafka. So the event time of
    now is where the newest pane begins, and how long ago its last report came.

    Parameters
    ----------
    source : Source
    run : ComparisonRun
    window : Window
        Of one arm.
    """
    key, partitions = metric_key(window.metric.name, window.metric.revision), [*window.watermarks]
    panes = source.store.panes
    known = panes.extent(key, partitions)
    unread = [] if known is None else panes.first_starts(key, partitions, run.next_ms, known[1], 1)
    if known is None or not unread:
        return False
    now_ms = known[1] + max(0, int(1000 * time.time()) - window.arrived_ms)
    return run.may_have_expired(min(unread), now_ms)


def living_answer(found: Living, *, history: bool = False) -> LivingAnswer:
    """Return how a comparison stands as plain values.

    Parameters
    ----------
    found : Living
    history : bool
        Whether with how it stood before.
    """
    run = found.run
    return LivingAnswer(
        **msgspec.structs.asdict(comparison_answer(found)),
        comparison=found.definition.name,
        decided_at=found.decided_at,
        decisions=run.decided,
        until=iso(run.next_ms) if run.has_begun else None,
        incomplete=run.incomplete,
        reason=found.reason,
        history=run.history if history else UNSET,
    )
