"""Shares among: the share of the users in a set of categories among the users in another set.

A text such as ``"a / b.."`` names a share among.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from estimators.bounds.manipulation import largest_ratio_shift, shift_of_values
from estimators.bounds.shares.bets import CategorySets
from estimators.bounds.shares.limits import share_limits
from estimators.bounds.shares.subsets import SubsetKinds
from estimators.errors import meant, shortened
from estimators.estimate import Counts, Estimate, Floats
from estimators.mechanisms.mechanism import Mechanism, answers_by_levels
from estimators.mechanisms.shared.frequencies import SupportCounts, refusal_of
from estimators.metrics.axes import AND_LATER, Axes
from estimators.metrics.domains import Domain
from estimators.question import Question

MAX_SHARES, MAX_PARTS = 32, 32
"""The most shares in a question, and the most marks in a share's name: each costs time."""
MOST_KEPT = 4096
"""Shares among more categories than this are not cached: their sets take up to 36 MB."""
MAX_READINGS = 2
"""How many readings a message lists of a text that can be read in several ways."""


class ShareBoundsError(ValueError):
    """Raised if a question asks for shares among for which no bounds are proved."""


class ShareEstimate(NamedTuple):
    """The estimate of a share of A among B, its bounds, and the estimated share of users in B."""

    value: float
    lower: float
    upper: float
    denominator: float


@dataclasses.dataclass(frozen=True)
class ShareAmong:
    """The share of users in A among those in B; `text` is the canonical name of the share."""

    text: str
    sets: CategorySets


class _Set(NamedTuple):
    """A set of categories that a text may name: its text, plain and quoted, and members as bits."""

    text: str
    quoted: str
    members: int


def parse_share(
    text: str, metric: str, indices: dict[str, int], axes: Axes | None = None
) -> ShareAmong:
    """Return the share that a text names.

    Parameters
    ----------
    text : str
        ``"A"`` or ``"A / B"``: A and B are categories joined by ``+``, and ``NAME..`` is a category
        and all categories after it. Without B, the share is that of A among all users.
    metric : str
        The metric's name, for messages.
    indices : dict of str to int
        The index of each category, by name.
    axes : Axes, optional
        The axes of the categories: a set is then written as in ``"AXIS=VALUE, AXIS=VALUE.."``.

    Raises
    ------
    ValueError
        If the text has no meaning or several, or if the share is always 0 or always 1.

    Examples
    --------
    >>> steps = {"none": 0, "visit": 1, "cart": 2, "paid": 3}
    >>> parse_share("paid/visit..", "checkout", steps)
    ShareAmong(text='paid / visit..', sets=CategorySets(first=(3,), second=(1, 2), categories=4))
    """
    if text.count("/") + text.count("+") > MAX_PARTS:
        raise ValueError(f"category {shortened(text)} of {metric!r}: expected fewer parts")
    everybody = _Set("", "", (1 << len(indices)) - 1)
    readings = {(a.members, everybody.members): a for a in _possible_sets(text, indices, axes)}
    for cut in re.finditer("/", text):
        of_a = _possible_sets(text[: cut.start()], indices, axes)
        for b in _possible_sets(text[cut.end() :], indices, axes) if of_a else ():
            for a in of_a:
                first, base = a.members & b.members, b.members
                texts = f"{a.text} / {b.text}", f"{a.quoted} / {b.quoted}"
                readings[first, base] = _Set(*texts, first)
    problem = f"category {text!r} of {metric!r}"
    if not readings:
        raise ValueError(f"{problem}: {_expected(text, metric, indices, axes)}")
    if len(readings) > 1:
        several = " or ".join(x.quoted for x in [*readings.values()][:MAX_READINGS])
        raise ValueError(
            f"{problem} can be read in two ways, {several}: expected names that differ"
        )
    ((first, base), reading) = next(iter(readings.items()))
    if not first:
        raise ValueError(f"{problem}: it is 0 by definition, as no category of A is in B")
    if first == base:
        raise ValueError(f"{problem}: it is 1 by definition, as every category of B is in A")
    sets = CategorySets(_member_indices(first), _member_indices(base & ~first), len(indices))
    return ShareAmong(reading.text, sets)


def defined_shares(text: str, domain: Domain, mechanism: Mechanism) -> tuple[str, ...]:
    """Return the canonical names of the shares that a text in a definition names.

    `text`: the text, which may name several shares if there are axes; `domain`: the categories;
    `mechanism`: the metric's mechanism. Raises ValueError if the text names no share, or the
    mechanism has no bounds for it.
    """
    if not isinstance(mechanism, SupportCounts):
        raise ValueError(refusal_of(mechanism.name))
    names, keys = domain.select([text])
    for share in [None] if keys is None else keys:
        if not isinstance(share, ShareAmong):
            raise ValueError("it is a category, and answers contain every category anyway")
        for level in range(len(mechanism.epsilons)):
            kinds = mechanism.report_kinds(level, share.sets)
            if isinstance(kinds, SubsetKinds):
                kinds.shape  # noqa: B018
    return names


def _member_indices(members: int) -> tuple[int, ...]:
    """Return the indices of the categories in a set of bits, ascending."""
    octets = members.to_bytes(members.bit_length() // 8 + 1, "little")
    bits = np.unpackbits(np.frombuffer(octets, dtype=np.uint8), bitorder="little")
    return tuple(np.flatnonzero(bits).tolist())


def _possible_sets(text: str, indices: dict[str, int], axes: Axes | None) -> list[_Set]:
    """Return the sets that a sum of categories, as in ``"a + b"``, may mean; at most two."""
    pieces = text.split("+")
    readings: list[dict[int, _Set]] = [{0: _Set("", "", 0)}]
    for end in range(1, len(pieces) + 1):
        extended: dict[int, _Set] = {}
        for begin in range(end):
            item = [*_category_sets("+".join(pieces[begin:end]).strip(), indices, axes)]
            for before in readings[begin].values():
                for addition in item if len(extended) < MAX_READINGS else ():
                    joined = addition
                    if before.members:
                        joined = _Set(
                            f"{before.text} + {addition.text}",
                            f"{before.quoted} + {addition.quoted}",
                            before.members | addition.members,
                        )
                    extended.setdefault(joined.members, joined)
        readings.append(extended)
    return [*readings[-1].values()]


def _category_sets(text: str, indices: dict[str, int], axes: Axes | None) -> Iterator[_Set]:
    """Yield the sets that a category's name may mean, with or without the mark for later ones."""
    if axes is not None:
        if condition := axes.condition(text):
            yield _Set(condition.text, repr(condition.text), condition.members)
        return
    if text in indices:
        yield _Set(text, repr(text), 1 << indices[text])
    name = text.removesuffix(AND_LATER).rstrip()
    if text.endswith(AND_LATER) and name in indices:
        members = (1 << len(indices)) - (1 << indices[name])
        yield _Set(name + AND_LATER, repr(name) + AND_LATER, members)


def _expected(text: str, metric: str, indices: dict[str, int], axes: Axes | None) -> str:
    if ">" in text:
        return "expected NAME.. for a category and those after it, as in 'paid / visit..'"
    items = [item.strip() for item in re.split("[/+]", text)]
    unknown = next((item for item in items if not [*_category_sets(item, indices, axes)]), text)
    if axes is not None:
        return axes.explain(unknown, metric)
    return meant(unknown.removesuffix(AND_LATER), indices)


def estimate_shares(
    mechanism: Mechanism, tables: Sequence[Counts], question: Question, shares: Sequence[ShareAmong]
) -> list[tuple[ShareEstimate, ...]]:
    """Return the estimates of all shares, for each of several tables.

    `mechanism`: the metric's mechanism; `tables`: of the shape (levels, columns); `question`: its
    `numbers` is how many intervals share its beta; `shares`: the shares to estimate. Raises
    ShareBoundsError if there are no bounds for this question; the message says what to ask instead.
    Raises ValueError if there are no bounds for this mechanism, or for several panes.
    """
    name = shares[0].text
    if not isinstance(mechanism, SupportCounts):
        raise ValueError(refusal_of(mechanism.name))
    if question.panes != 1:
        raise ValueError(f"category {name!r}: answers repeat across panes: expected one pane")
    if question.bound == "normal":
        raise ShareBoundsError(f"bound = 'normal' of {name!r}: expected 'fixed' or 'anytime'")
    if question.may_move:
        raise ShareBoundsError(
            f"category {name!r} has no bounds at all times for weights = 'uniform' or target = "
            "'sample': expected other weights and target = 'population', or bound = 'fixed'"
        )
    answers = (functools.partial(_estimates, mechanism, question, share) for share in shares)
    return [*zip(*(answers_by_levels(tables, answer, 1) for answer in answers), strict=True)]


def _estimates(
    mechanism: SupportCounts, question: Question, share: ShareAmong, tables: Sequence[Counts]
) -> list[ShareEstimate]:
    """Return the estimates of a share in windows whose reports have the same levels."""
    if not tables[0][:, 0].any():
        return [ShareEstimate(np.nan, 0.0, 1.0, np.nan)] * len(tables)
    bets, totals = mechanism.share_bets(tables, question, share.sets)
    first, denominator = bets.sums.T
    value = np.divide(first, denominator, out=first * np.nan, where=denominator > 0)
    anytime_totals = totals if question.bound == "anytime" else None
    limits = share_limits(bets, question.log_p(1), anytime_totals)
    return [ShareEstimate(*row) for row in zip(value, *limits, denominator, strict=True)]


def joined(
    estimate: Estimate, is_share: Sequence[bool], shares: Sequence[ShareEstimate]
) -> Estimate:
    """Return the estimates of categories and of shares as one, in the order of the question.

    `estimate`: the estimate of the categories; `is_share`: whether each number of the question is a
    share; `shares`: the estimates of the shares.
    """
    plain = [np.atleast_1d(x).tolist() for x in (estimate.value, estimate.lower, estimate.upper)]
    categories = [*zip(*plain, [1.0] * len(plain[0]), strict=True)]
    sources = iter(categories), iter(shares)
    numbers = np.array([next(sources[kind]) for kind in is_share])
    value, lower, upper, denominators = numbers.T
    return dataclasses.replace(
        estimate, value=value, lower=lower, upper=upper, denominators=denominators
    )


def share_shifts(
    mechanism: Mechanism,
    estimate: Estimate,
    shares: Mapping[int, ShareAmong],
    reports: int,
    *,
    among: bool,
) -> tuple[list[float], list[float]]:
    """Return how far fabricated reports can move each share, and how far fabricated values could.

    `mechanism`: the metric's mechanism; `estimate`: the estimate; `shares`: the shares by their
    index among the estimate's numbers; `reports`, `among`: as for
    :func:`estimators.bounds.manipulation.largest_shifts`.
    """
    assert estimate.denominators is not None  # noqa: S101
    assert isinstance(mechanism, SupportCounts)  # noqa: S101
    counts, weights = estimate.counts, mechanism.report_weights(estimate.policy)
    shifts: tuple[list[float], list[float]] = ([], [])
    for position, share in shares.items():
        ratio = float(np.asarray(estimate.value)[position])
        base = float(estimate.denominators[position])
        is_kept = share.sets.categories <= MOST_KEPT
        scores_of = _extreme_scores if is_kept else _extreme_scores.__wrapped__
        scores = scores_of(mechanism, estimate.policy, share.sets)
        moved = largest_ratio_shift(ratio, base, counts, weights, scores, reports, among=among)
        shifts[0].append(moved)
        asked = max(ratio, 1 - ratio), int(counts.sum()), reports
        shifts[1].append(shift_of_values(*asked, among=among, share=base))
    return shifts


@functools.lru_cache(maxsize=64)
def _extreme_scores(mechanism: SupportCounts, policy: str, sets: CategorySets) -> Floats:
    """Return :meth:`SupportCounts.extreme_scores` times a report's weight, (2, levels, kinds).

    The last kind of a level is repeated if other levels have more.
    """
    scores = [mechanism.extreme_scores(level, sets) for level in range(len(mechanism.epsilons))]
    most = np.arange(max(map(len, scores)))
    padded = np.array([level[np.minimum(most, len(level) - 1)].T for level in scores])
    return padded.swapaxes(0, 1) * mechanism.report_weights(policy)[:, None]
