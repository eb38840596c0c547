"""Estimates and definitions as JSON documents, for `--json`, HTTP, events and Kafka."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from aggregator.reading.grouping import Slice
from aggregator.reading.search_progress import SearchProgress, search_progress
from aggregator.reading.window import Window
from aggregator.state.watermark import NO_TIME
from aggregator.timestamps import iso
from estimators import DistributionEstimate, Estimate, LocalMetric, Metric
from estimators.estimate import Floats
from estimators.metrics.attributes import OTHER_VALUE
from estimators.metrics.categories import OPEN_VOCABULARY, CodedVocabulary
from estimators.metrics.crowd_epsilon import crowd_epsilon
from estimators.shapes import Shape
from producers.wire.decoding import decode_json

FABRICATED_SHARE = 0.01
"""The share of fabricated reports in an answer's manipulation bound."""
Status = Literal["not_ready", "too_few_reports", "provisional", "final", "expired"]
Number = float | None
Numbers = Number | list[Number]
Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class Undeclared(msgspec.Struct, frozen=True):
    """Stands for any value that is not declared."""

    other: Literal[True] = True


Value = str | Undeclared | None
"""The value of an attribute; null if the devices sent none."""


class LevelShare(msgspec.Struct, frozen=True):
    """The reports of one privacy level, and the level's weight in the estimate.

    For a release, `loss` is the epsilon that one report of this level really loses. A person with m
    reports in the pane loses up to m times as much; a device with a ledger sends only one.
    """

    epsilon: float
    reports: int
    weight: Number
    loss: Number | UnsetType = UNSET


class ManipulationBound(msgspec.Struct, frozen=True, kw_only=True):
    """The largest error of an estimate if some of its reports were fabricated.

    `share` is the fabricated share of all reports, and `reports` the number of fabricated reports,
    which may have any value and any level. `shift` is the largest change of any number, `l2` the l2
    norm of a vector's change. `without_privacy` is what `shift` would be if devices sent true
    values. These errors are null if no honest report is left.
    """

    share: float
    reports: int
    shift: Number
    without_privacy: Number
    l2: Number | UnsetType = UNSET


class CentralPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """The privacy of a shuffled report towards those who see only the crowd's opened reports.

    Among `crowd` honest reports, a report of a pane is (`epsilon`, `delta`)-differentially private;
    for a person who reports in w panes, both are w times as large. This assumes that a crowd has
    `minimum` reports or more, of which at most a share of `dishonest` is fabricated, and that the
    relay does not collude.
    """

    epsilon: float
    delta: float
    crowd: int
    minimum: int
    dishonest: float


class Privacy(msgspec.Struct, frozen=True):
    """How private each report of a metric with a crowd is, in one pane.

    `local` is the report's epsilon, whoever colludes. `central` is its privacy among the reports of
    the crowd; null if no epsilon below `local` is proved.
    """

    local: float
    central: CentralPrivacy | None


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the users below each edge; the edges are in the metric's unit.

    `value` ascends and is within `lower` and `upper`, which hold at all edges at once. `unbiased`
    is the estimate from which `value` is computed: use it for sums and means of several answers.
    `crossed` says that no distribution fits all bounds; if reports are honest, this happens with
    probability at most beta. `lower` and `upper` then exclude nothing.
    """

    edges: list[Number]
    value: list[Number]
    lower: list[Number]
    upper: list[Number]
    unbiased: list[Number]
    crossed: Literal[True] | UnsetType = UNSET


class SharesAmong(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of A among B that a definition lists: what share of B's users is also in A.

    A and B are sets of categories. All `lower` and `upper` hold together with probability 1 - beta,
    separately from the categories' bounds. `value` and `unbiased` are null if the estimate of B is
    not positive.
    """

    shares: list[str]
    value: list[Number]
    lower: list[Number]
    upper: list[Number]
    unbiased: list[Number]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about a metric over a window of event time.

    `from` and `to` are the window's edges; null if there is no limit. `updated` is when the last
    counted report of the metric reached Kafka. A number is null if no report has arrived. `value`
    is always between `lower` and `upper`. `unbiased` is the estimate before it was clipped to these
    bounds: use it for sums and means of several answers. The `value` of a minimum or maximum is
    only a guess, the middle of the range that its rounds have left; `search` has what is certain.
    `covers` says what the bounds cover together with probability 1 - beta: "this window", "720
    windows", or "all times from" a start. The answers while a window grows are one statement, and
    the final answer is another: each holds with probability 1 - beta, and both with at least 1 - 2
    beta. `effective_reports` is how many reports without privacy would be as precise in the worst
    case. `heterogeneity` is the p-value of the hypothesis that values are independent of the level.
    `chosen_among` is the number of answers that share beta, because this one may have been chosen
    after looking at them. An answer for which no weights were named has no such number and a
    separate beta: to compare with that answer, name its weights, too. `weights_fixed` repeats the
    caller's statement that the weights were chosen before looking. `influence` is how far
    fabricated reports can move any number of the answer, including those in `left_out`. Minimum and
    maximum have `search` instead, the progress of the rounds; null before the first round.
    `categories` and `coordinates` name the numbers of `value`, `lower` and `upper`, and `left_out`
    counts those that are not shown. A vector is within the l2 distance `radius` with probability
    1 - beta. `simplex` is the nearest distribution, for the shown categories. If `trust` is
    "central", the answer is a release: drawn once for the pane `from` to `to`, and without
    `influence`. Levels above the epsilon `saturation` do not improve it. The numbers of a
    distribution are its `quantiles`, and `distribution` has all of it, with its `unbiased`;
    `influence` is then that on a share below an edge. A metric with a crowd has `privacy`. `where`
    are the attributes that all devices of this answer share: "other" stands for a value that is not
    declared, null for none. `coverage` is the share of the window's reports that are in tables of
    slices. `shares_among` is in answers for all categories, if the definition has `shares` and they
    have bounds; they have none with weights "uniform", a target other than the population, or
    bounds "normal".
    """

    metric: str
    unit: str
    kind: str
    status: Status
    start: Moment | None = msgspec.field(name="from")
    end: Moment | None = msgspec.field(name="to")
    updated: Moment | None
    value: Numbers
    lower: Numbers
    upper: Numbers
    unbiased: Numbers | UnsetType = UNSET
    reports: int
    effective_reports: Number
    beta: float
    bound: str
    covers: str
    target: str
    policy: str
    chosen_among: int | UnsetType = UNSET
    weights_fixed: bool | UnsetType = UNSET
    heterogeneity: Number
    levels: list[LevelShare]
    influence: ManipulationBound | UnsetType = UNSET
    search: SearchProgress | UnsetType | None = UNSET
    trust: Literal["central"] | UnsetType = UNSET
    saturation: Number | UnsetType = UNSET
    categories: list[str] | UnsetType = UNSET
    coordinates: list[str] | UnsetType = UNSET
    left_out: int | UnsetType = UNSET
    radius: Number | UnsetType = UNSET
    simplex: list[Number] | UnsetType = UNSET
    quantiles: list[str] | UnsetType = UNSET
    distribution: Distribution | UnsetType = UNSET
    privacy: Privacy | UnsetType = UNSET
    where: dict[str, str | None] | UnsetType = UNSET
    coverage: Number | UnsetType = UNSET
    shares_among: SharesAmong | UnsetType = UNSET


class CrowdDefinition(msgspec.Struct, frozen=True):
    """The crowd that hides each report: a relay waits for at least `minimum` reports.

    It deletes a smaller crowd `wait_seconds` after the pane's end.
    """

    minimum: int
    wait_seconds: float
    delta: float
    dishonest: float


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A metric as a device needs it to randomize, and the weight policy in force.

    If `trust` is "central", devices send their true values. `policies` are the possible weight
    policies, the default first. Means, minimum and maximum have a `range`; minimum and maximum also
    have `rounds`, `split`, `beta` and `critical`, and devices answer the round that is open at
    `/v1/metrics/NAME/round`.
    Frequencies have `categories`; if these are "open", `watch` are those that answers show. `deny`
    is a rule for strings that devices replace by "other". `code` is how strings become bits if they
    are discovered. The categories of `axes` are the combinations of their values. Vector means have
    `coordinates` and `radius`. `bins`, `scale` and `edges` say what the bins of a distribution
    are, and `constants` how its reports are drawn. `domain` has the additional keys of a kind that
    another Python package defines.
    `shape` says what answers look like: "number", "named numbers", "distribution" or "search". `by`
    are the attributes of devices by which reports are also summed; with each batch a device sends
    one of the values in `attributes` for each, and any other value as "other". `shares` are the
    shares among that answers have; devices ignore them. A device seals reports of a metric with a
    `crowd`, and posts them to a relay.
    """

    name: str
    description: str
    title: str
    group: str
    kind: str
    shape: str
    trust: Literal["local", "central"]
    mechanism: str
    options: dict[str, int | str]
    unit: str
    levels: list[float]
    revision: int
    pane_seconds: float
    lateness_seconds: float
    minimum_reports: int
    memoized: bool
    policy: str
    policies: list[str]
    max_batch_reports: int | UnsetType = UNSET
    range: list[float] | UnsetType = UNSET
    rounds: int | UnsetType = UNSET
    split: str | UnsetType = UNSET
    beta: float | UnsetType = UNSET
    critical: str | UnsetType = UNSET
    categories: list[str] | Literal["open"] | UnsetType = UNSET
    shares: list[str] | UnsetType = UNSET
    axes: dict[str, list[str]] | UnsetType = UNSET
    watch: list[str] | UnsetType = UNSET
    deny: dict[str, Any] | UnsetType = UNSET
    code: dict[str, Any] | UnsetType = UNSET
    coordinates: list[str] | UnsetType = UNSET
    radius: float | UnsetType = UNSET
    bins: int | UnsetType = UNSET
    scale: str | UnsetType = UNSET
    edges: list[float] | UnsetType = UNSET
    quantiles: list[float] | UnsetType = UNSET
    constants: dict[str, Any] | UnsetType = UNSET
    domain: dict[str, Any] | UnsetType = UNSET
    by: list[str] | UnsetType = UNSET
    attributes: dict[str, list[str]] | UnsetType = UNSET
    crowd: CrowdDefinition | UnsetType = UNSET


NUMBER_FIELDS = ("value", "lower", "upper", "unbiased")
ESTIMATE_FIELDS = (
    *("status", "reports", "beta", "bound", "covers", "target", "policy", "heterogeneity"),
)
"""The fields of an answer with the same names in its estimate."""
METRIC_FIELDS = (
    *("name", "description", "title", "group", "kind", "mechanism", "unit", "revision"),
    "minimum_reports",
)
"""The fields of a definition with the same names in its metric."""


def answer(
    window: Window, estimate: Estimate, top: int | None = None, nearest: Floats | None = None
) -> Answer:
    """Return the JSON form of an estimate, as a struct.

    `window`: the window; `estimate`: its estimate; `top`: maximum number of categories or
    coordinates, the largest first; by default all; `nearest`, optional: the nearest distribution,
    added as ``simplex`` for the same categories.
    """
    metric = window.metric
    top_estimate = estimate.numbers if top is None else estimate.numbers.top(top)
    if nearest is not None:  # the projection keeps the order
        nearest = nearest if top is None else np.sort(nearest)[::-1][:top]
    no_losses = [UNSET] * len(estimate.levels)
    losses = no_losses if estimate.privacy is None else map(_number, estimate.privacy)
    return Answer(
        metric=metric.name,
        unit=metric.unit,
        kind=metric.kind,
        start=iso(window.start_ms),
        end=iso(window.end_ms),
        updated=iso(None if window.arrived_ms == NO_TIME else window.arrived_ms),
        value=plain(top_estimate.shown),
        lower=plain(top_estimate.lower),
        upper=plain(top_estimate.upper),
        effective_reports=plain(estimate.effective_reports),  # type: ignore[arg-type]
        chosen_among=estimate.chosen_among if estimate.chosen_among > 1 else UNSET,
        weights_fixed=True if estimate.weights_fixed else UNSET,
        levels=[
            LevelShare(float(epsilon), int(count), _number(weight), loss)
            for epsilon, count, weight, loss in zip(
                estimate.levels, estimate.counts, estimate.weights, losses, strict=True
            )
        ],
        left_out=UNSET if top is None else len(estimate.labels) - len(top_estimate.labels),
        simplex=UNSET if nearest is None else plain(nearest),  # type: ignore[arg-type]
        privacy=privacy_of(metric) or UNSET,
        **{name: getattr(estimate, name) for name in ESTIMATE_FIELDS},
        where=UNSET if window.grouping is None else dict(window.grouping.conditions),
        coverage=UNSET if window.grouping is None else window.coverage,
        shares_among=UNSET if estimate.shares is None else _shares(estimate.shares),
        **FIELDS_BY_SHAPE[metric.shape](window, estimate, top_estimate),
    )


def privacy_of(metric: Metric) -> Privacy | None:
    """Return how private a metric's reports are in a pane; None without a crowd."""
    if (crowd := metric.crowd) is None:
        return None
    epsilon, central = crowd_epsilon(metric), None
    if epsilon is not None:
        central = CentralPrivacy(
            epsilon=epsilon,
            delta=crowd.delta,
            crowd=crowd.others,
            minimum=crowd.minimum,
            dishonest=crowd.dishonest,
        )
    return Privacy(float(metric.levels[0]), central)


def _shares(estimate: Estimate) -> SharesAmong:
    return SharesAmong(shares=list(estimate.labels), **plain_numbers(estimate))


def _numbers(window: Window, estimate: Estimate, top_estimate: Estimate) -> dict[str, Any]:
    """Return the fields of an answer with numbers: a release has trust, others influence."""
    fields = {"unbiased": plain(top_estimate.value), **named(window.metric, top_estimate.labels)}
    if estimate.radius is not None:
        fields["radius"] = _number(estimate.radius)
    if isinstance(window.metric, LocalMetric):
        return fields | {"influence": manipulation_bound(window.metric, estimate)}
    return fields | {"trust": window.metric.trust, "saturation": estimate.saturation}


def _distribution(window: Window, estimate: Estimate, top_estimate: Estimate) -> dict[str, Any]:
    """Return the fields of a distribution: the shares below the edges of its bins."""
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    distribution = Distribution(
        edges=plain(estimate.edges),  # type: ignore[arg-type]
        crossed=True if estimate.crossed else UNSET,
        **plain_numbers(estimate),
    )
    return _numbers(window, estimate, top_estimate) | {
        "unbiased": UNSET,
        "distribution": distribution,
    }


def _search(window: Window, estimate: Estimate, top_estimate: Estimate) -> dict[str, Any]:
    """Return the field of a search: its progress."""
    return {"search": search_progress(window)}


FIELDS_BY_SHAPE: dict[Shape, Callable[[Window, Estimate, Estimate], dict[str, Any]]] = {
    Shape.NUMBER: _numbers,
    Shape.NAMED_NUMBERS: _numbers,
    Shape.DISTRIBUTION: _distribution,
    Shape.SEARCH: _search,
}
"""Fields of :class:`Answer` by shape, from the window, the estimate and its shown part."""


def named(metric: Metric, labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the field of an answer that names its numbers; no field if they have no names."""
    return {metric.domain.names: list(labels)} if metric.domain.names else {}


def values(attributes: Slice) -> dict[str, Value]:
    """Return the values of attributes as they appear in JSON."""
    return {
        name: Undeclared() if value == OTHER_VALUE else value for name, value in attributes.items()
    }


def estimate_of(document: Answer, metric: Metric) -> Estimate:
    """Return the estimate that an answer shows, for a stored release.

    Returns
    -------
    Estimate
        The estimate, with NaN for categories that the answer leaves out.

    Raises
    ------
    ValueError
        If the answer's levels, categories or numbers are not the metric's.
    OverflowError
        If the answer counts more than 2^63 reports.
    """
    epsilons = [level.epsilon for level in document.levels]
    labels = [] if document.categories is UNSET else document.categories
    label_indices = {label: index for index, label in enumerate(metric.labels)}
    if epsilons != [float(e) for e in metric.levels] or not label_indices.keys() >= {*labels}:
        raise ValueError("another definition")
    indices = [label_indices[label] for label in labels]

    def numbers(x: Numbers) -> Any:
        if isinstance(x, list) != bool(label_indices):
            raise ValueError("another shape")
        if not isinstance(x, list):
            return np.nan if x is None else x
        numbers_by_label = np.full(len(label_indices), np.nan)
        numbers_by_label[indices] = _floats(x)
        return numbers_by_label

    return Estimate(
        value=numbers(document.value),
        lower=numbers(document.lower),
        upper=numbers(document.upper),
        effective_reports=float(_floats([document.effective_reports])[0]),
        levels=tuple(epsilons),
        counts=np.array([level.reports for level in document.levels], dtype=np.int64),
        weights=_floats([level.weight for level in document.levels]),
        privacy=_floats([None if level.loss is UNSET else level.loss for level in document.levels]),
        saturation=None if document.saturation is UNSET else document.saturation,
        labels=tuple(metric.labels),
        **{name: getattr(document, name) for name in ESTIMATE_FIELDS},
    )


def manipulation_bound(metric: LocalMetric, estimate: Estimate) -> ManipulationBound:
    """Return the error of an estimate if FABRICATED_SHARE of its reports were fabricated."""
    reports = math.ceil(FABRICATED_SHARE * estimate.reports)
    influence = metric.manipulation_bound(estimate, reports, among=True, each=False)
    return ManipulationBound(
        share=FABRICATED_SHARE,
        reports=reports,
        shift=_number(influence.largest),
        without_privacy=_number(influence.without_privacy),
        l2=UNSET if influence.l2 is None else _number(influence.l2),
    )


def as_dict(document: msgspec.Struct) -> dict[str, Any]:
    """Return an answer as a dict whose keys are the names in JSON."""
    plain_document: dict[str, Any] = msgspec.to_builtins(document)
    return plain_document


def definition(metric: Metric, policy: str | None = None) -> Definition:
    """Return the JSON form of a metric's definition, with the weight policy in force."""
    facts = {"trust": metric.trust, "memoized": False, **metric.domain.meaning, **metric.meaning}
    if metric.crowd is not None:
        crowd, wait_seconds = metric.crowd, metric.crowd.wait_ms / 1000
        facts["crowd"] = CrowdDefinition(crowd.minimum, wait_seconds, crowd.delta, crowd.dishonest)
    field_names = facts.keys() & set(Definition.__struct_fields__)
    domain = {key: value for key, value in facts.items() if key not in field_names}
    attributes = {} if metric.slicing is None else metric.slicing.attributes
    code = metric.domain.string_code if isinstance(metric.domain, CodedVocabulary) else None
    return Definition(
        **{name: getattr(metric, name) for name in METRIC_FIELDS},
        shape=metric.shape.value,
        options=dict(metric.options),
        levels=[float(epsilon) for epsilon in metric.levels],
        pane_seconds=metric.pane_ms / 1000,
        lateness_seconds=metric.lateness_ms / 1000,
        policy=policy or metric.policies[0],
        policies=list(metric.policies),
        max_batch_reports=UNSET if metric.max_batch_reports is None else metric.max_batch_reports,
        shares=list(metric.share_names) or UNSET,
        axes=UNSET if metric.axes is None else {k: [*v] for k, v in metric.axes.values.items()},
        watch=list(metric.labels) if metric.categories == OPEN_VOCABULARY else UNSET,
        quantiles=[*map(float, metric.labels)] if metric.domain.names == "quantiles" else UNSET,
        constants=metric.randomizer.public_constants or UNSET,
        code=UNSET if code is None else decode_json(code.canonical, dict[str, Any]),
        domain=domain or UNSET,
        by=list(attributes) or UNSET,
        attributes={name: list(values) for name, values in attributes.items()} or UNSET,
        **{key: facts[key] for key in field_names},
    )


def plain_numbers(
    estimate: Estimate | None, chosen: NDArray[np.intp] | None = None
) -> dict[str, Any]:
    """Return an estimate's value, its bounds and its unbiased value by field; None if unknown.

    `estimate`: the estimate; None if there is none; `chosen`: the indices of the numbers to return;
    by default all.
    """
    if estimate is None:
        return dict.fromkeys(NUMBER_FIELDS)
    numbers = (estimate.shown, estimate.lower, estimate.upper, estimate.value)
    top_estimate = numbers if chosen is None else [np.asarray(x)[chosen] for x in numbers]
    return dict(zip(NUMBER_FIELDS, map(plain, top_estimate), strict=True))


def plain(x: Any) -> Numbers:
    """Return numbers as floats and lists, with None for those that are not finite.

    Examples
    --------
    >>> plain(np.array([0.5, np.nan]))
    [0.5, None]
    """
    numbers = np.asarray(x, dtype=np.float64)
    if not numbers.ndim:
        return _number(numbers.item())
    values: list[Number] = numbers.tolist()
    if not np.isfinite(numbers).all():
        values = [_number(value) for value in numbers.tolist()]
    return values


def _floats(numbers: Sequence[Number]) -> Floats:
    return np.array([np.nan if x is None else x for x in numbers], dtype=np.float64)


def _number(x: float) -> Number:
    return float(x) if math.isfinite(x) else None
