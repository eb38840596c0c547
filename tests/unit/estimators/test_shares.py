"""Shares among: the share of users in some categories among those in others, by name."""

import functools
import itertools
import math
import time
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.bounds.manipulation import largest_ratio_shift
from estimators.bounds.shares import limits
from estimators.bounds.shares.bets import CategorySets, CountedReports, ShareBets
from estimators.bounds.shares.limits import BLOCK_EDGES, share_limits
from estimators.bounds.shares.subsets import SetSizes, SubsetKinds, SubsetReports, support_chances
from estimators.comparison.comparison import compare
from estimators.errors import DefinitionError
from estimators.exact.randomness import SeededBits
from estimators.question import Question
from tests.support.metrics import frequency_metric
from tests.support.rows import row

STEPS = ["none", "visit", "cart", "paid"]
MECHANISMS = ("grr", "projective_geometry_response", "subset_selection", "auto")


def asked(metric: Any, statistic: Any, *names: Any, **question: Any) -> Any:
    """Return the estimate of some shares and categories, whose numbers are arrays."""
    return metric.estimate(statistic, categories=names, **question)


def metric_of(mechanism: str = "grr", levels: Any = (0.5, 1, 4), categories: Any = STEPS) -> Any:
    return frequency_metric("checkout", mechanism, categories, levels)


def statistic_of(metric: LocalMetric, values: Any, level: Any, seed: int = 1) -> Any:
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(seed)))
    return statistic


def drawn(n: int, levels: int, chances: Any, seed: int = 1) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.choice(len(chances), n, p=chances), random.integers(0, levels, n)


def report_law(mechanism: Any, level: int, category: int) -> tuple[Any, Any]:
    """Return which categories each possible report supports, and its exact chance."""
    k, p = mechanism.categories, mechanism.signs.p[level]
    if mechanism.name == "subset_selection":
        subsets = [*itertools.combinations(range(k), mechanism.sizes[level])]
        supported = np.array([[x in subset for x in range(k)] for subset in subsets])
    else:
        points = getattr(mechanism, "geometries", [None] * 9)[level]
        symbols = np.arange(k if points is None else points.points).astype(mechanism.dtype)
        supported = np.stack([mechanism.supports(symbols, level, x) for x in range(k)], axis=1)
    own = supported[:, category]
    return supported, np.where(own, p / own.sum(), (1 - p) / max(1, (~own).sum()))


SETS = [CategorySets((2,), (0, 5), 6), CategorySets((1, 2), (0, 3, 4, 5), 6)]


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("name", MECHANISMS[:3])
def test_scores_are_unbiased_under_the_law_of_the_reports(name: str, sets: CategorySets) -> None:
    """For every category of a user. Without B it is everybody, though scores add up to no 1."""
    mechanism = metric_of(name, (0.2, 1, 4), 6).randomizer
    for level, category in itertools.product(range(3), range(6)):
        supported, chances = report_law(mechanism, level, category)
        pairs = np.stack([supported[:, list(x)].sum(axis=1) for x in sets[:2]], axis=1)
        kinds, is_first = mechanism.report_kinds(level, sets), category in sets.first
        is_other = category in sets.second
        scores = sets.sizes.scores(
            pairs, float(mechanism.signs.q[level]), float(mechanism.signs.contrast[level])
        )
        assert chances @ scores == pytest.approx(
            [int(is_first), int(is_first or is_other)], abs=1e-9
        )
        if not isinstance(kinds, SubsetKinds):
            assert (kinds.supports[kinds.of_symbol] == pairs).all()
            continue
        law = np.zeros((7, 7))
        np.add.at(
            law, (pairs[:, 0], pairs[:, 0] * 0 if sets.sizes.covers_all else pairs[:, 1]), chances
        )
        type_of_user = 0 if is_first else 1 if is_other else 2
        expected = support_chances(kinds)[type_of_user]
        assert law[: expected.shape[0], : expected.shape[1]] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("covers_all", [False, True])
def test_factors_of_subsets_are_fair_at_every_share_of_a_block(covers_all: bool) -> None:
    """Theorem 3: the mean is 1 + t s h at both ends, and at most that between them."""
    sizes = SetSizes(2, 8 if covers_all else 3, covers_all)
    kinds = SubsetKinds(sizes, 10, 3, 0.6)
    subset = SubsetReports(kinds, np.array([100]), np.array([[60, 90]]), np.array([0.01]))
    law, block = support_chances(kinds), BLOCK_EDGES[20:22]
    ends = subset.factors(np.full(2, 30.0), block)
    grid = np.moveaxis(np.indices(law.shape[1:]), 0, -1)
    for part in (0.0, 0.5, 1.0):
        weights = np.array([1 - part, part])
        ratio = float(weights @ block)
        power = grid @ (weights @ ends.exponents) - weights @ ends.price
        means = (law * np.exp(power)).sum(axis=(1, 2))
        fair = 1 + 0.3 * np.array([1 - ratio, -ratio, 0])[: len(law)]
        assert (means <= fair + 1e-12).all()
        assert means == pytest.approx(fair, abs=1e-6 if part in {0, 1} else 1e-3)


@pytest.mark.parametrize("sizes", [(1, 1, 0), (2, 5, 0), (3, 7, 1)])
def test_factors_for_values_are_fair_at_every_share_of_a_block(sizes: Any) -> None:
    """Theorem 7: the mean is exp(t s h) at both ends, and at most that between them."""
    for epsilon, first in itertools.product((0.2, 4, 12), (0, 20, 63)):
        p = math.exp(epsilon) / (math.exp(epsilon) + 9)
        kinds, block = SubsetKinds(SetSizes(*sizes), 10, 1, p), BLOCK_EDGES[first : first + 2]
        one = np.array([100]), np.array([[6, 9]]), np.array([0.01])
        subset = SubsetReports(kinds, *one, of_values=True)
        tilt = 0.95 / subset.largest_scores(block)[0]
        ends, law = subset.factors(tilt, block), support_chances(kinds)
        assert np.exp(tilt / 100) - 1 == pytest.approx(0.09 * (math.exp(epsilon) - 1))
        grid = np.moveaxis(np.indices(law.shape[1:]), 0, -1)
        for part in (0.0, 0.5, 1.0):
            weights = np.array([1 - part, part])
            power = grid @ (weights @ ends.exponents) - weights @ ends.price
            ratio = weights @ block
            fair = np.exp(tilt[0] / 100 * np.array([1 - ratio, -ratio, 0])[: len(law)])
            means = (law * np.exp(power)).sum(axis=(1, 2))
            assert (means <= fair * (1 + 1e-12)).all()
            assert part == 0.5 or means == pytest.approx(fair)


def law_of_sums(law: Any, kernel: Any) -> Any:
    """Return the law of sums of pairs to which another report adds its pair."""
    height, width = law.shape
    added = np.zeros(np.add(law.shape, kernel.shape) - 1)
    for (first, second), chance in np.ndenumerate(kernel):
        added[first : first + height, second : second + width] += chance * law
    return added


def kernels_of(subsets: bool, epsilon: float) -> Any:
    """Return the chances of supports of A and of the rest of B, for each type of user."""
    if subsets:
        chance = 3 / (3 + 2 * math.exp(-epsilon))
        return support_chances(SubsetKinds(SetSizes(1, 2, covers_all=False), 5, 3, chance))
    other = 1 / (math.exp(epsilon) + 2)
    symbols = other + (1 - 3 * other) * np.eye(3)
    return np.array([[[x[2], x[1]], [x[0], 0]] for x in symbols])


def bets_on(
    kernels: Any, n: int, supports: Any, *, free: bool, of_values: bool = False
) -> ShareBets:
    """Return the bets on n reports, in windows with these sums of supports."""
    sums, each = np.array(supports, float), np.ones(len(supports))
    is_category = kernels.shape[1:] == (2, 2)
    sizes = SetSizes(1, 1 if is_category else 2, covers_all=False)
    p = float(kernels[0, 1].sum())
    kinds = SubsetKinds(sizes, 3, 1, p) if is_category else SubsetKinds(sizes, 5, 3, p)
    subset = SubsetReports(kinds, n * each, sums, each / n, of_values)
    if of_values or not is_category:
        return ShareBets(CountedReports(*np.zeros((4, len(sums), 0))), [subset], free)
    scores = sizes.scores(kinds.supports, kinds.chance, p - kinds.chance).T / n
    first, base, weight = (np.tile(x, (len(sums), 1)) for x in (*scores, np.full(3, 1 / n)))
    return ShareBets(CountedReports(subset.counts, first, base, weight), [], free)


@pytest.mark.parametrize(
    ("subsets", "free", "of_values"), [(0, 0, 0), (0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1)]
)
@pytest.mark.parametrize(("n", "epsilon"), [(5, 2), (8, 0.5), (8, 8)])
def test_a_limit_is_wrong_at_most_as_often_as_promised(
    n: int, epsilon: float, subsets: bool, free: bool, of_values: bool
) -> None:
    """Summed over all outcomes, for every truth: no simulation. Half of beta a side, beta = 0.5.

    Free: users of any values, whose share is that of these users.
    """
    kernels, truths = kernels_of(subsets, epsilon), []
    shares = (0, 0.03, 0.3, 0.5, 1) if not of_values else ()
    for base, ratio in itertools.product((0, 0.1, 0.5, 1), shares):
        mixed = np.tensordot([base * ratio, base * (1 - ratio), 1 - base], kernels, 1)
        truths.append((ratio, [mixed] * n))
    for first, both in itertools.combinations_with_replacement(range(0, n + 1, 3), 2):
        if free and both:
            types = [0] * first + [1] * (both - first) + [2] * (n - both)
            truths.append((first / both, [kernels[x] for x in types]))
    laws = [functools.reduce(law_of_sums, users, np.ones((1, 1))) for _, users in truths]
    sums = np.argwhere(np.sum(laws, axis=0))
    bets = bets_on(kernels, n, sums, free=free, of_values=of_values)
    lower, upper = share_limits(bets, math.log(0.25), None)
    for (ratio, _), law in zip(truths, laws, strict=True):
        for is_wrong in (lower > ratio, upper < ratio):
            assert law[*sums.T] @ is_wrong <= 0.25
    assert (upper - lower).min() < 1


@pytest.mark.parametrize(("base", "ratio"), [(1, 0.3), (0.4, 0.5), (0.4, 0)])
def test_bounds_at_all_times_are_rarely_wrong_at_any_time(base: float, ratio: float) -> None:
    """The exact chance that some answer to 1, 2, ..., 12 reports was wrong; beta = 0.5."""
    kernels = kernels_of(False, 3)
    mixed = np.tensordot([base * ratio, base * (1 - ratio), 1 - base], kernels, 1)
    right, chance_of_wrong, is_decided = np.ones((1, 1)), 0.0, False
    for n in range(1, 13):
        right = law_of_sums(right, mixed)
        sums = np.argwhere(right)
        bets, totals = bets_on(kernels, n, sums, free=False), np.full(len(sums), float(n))
        lower, upper = share_limits(bets, math.log(0.25), totals)
        is_decided |= (upper - lower).min() < 1
        wrong = tuple(sums[(lower > ratio) | (upper < ratio)].T)
        chance_of_wrong, right[wrong] = chance_of_wrong + right[wrong].sum(), 0
    assert is_decided
    assert chance_of_wrong <= 0.5


@pytest.mark.parametrize(
    ("counts", "sides"), [((60, 240), (0, 0)), ((20, 80), (0, 0)), ((260, 180), (0, 1))]
)
def test_sides_that_reject_every_share_but_0_say_nothing(counts: Any, sides: Any) -> None:
    """Nobody may be in B. A bisection, or a search from the middle, would miss the 0.

    In the last case both sides together reject every share: a width of 0 would look like a proof.
    """
    kernels, log_p = kernels_of(False, 1), math.log(0.025)
    for sums in (counts, counts[::-1]):
        bets = bets_on(kernels, 1000, [sums], free=False)
        both = [limits._lower_limits(side, log_p, None)[0] for side in (bets, bets.mirrored())]
        assert tuple(sorted(both)) == sides
        assert [x.item() for x in share_limits(bets, log_p, None)] == [0, 1]


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "n", "base", "most"),
    [
        ("grr", 3, 6_000, 0.4, 1.12),
        ("subset_selection", 1.5, 60_000, 0.7, 1.12),
        ("projective_geometry_response", 0.7, 400_000, 0.6, 1.06),
    ],
)
def test_bounds_are_hardly_wider_than_the_normal_law(
    mechanism: str, epsilon: float, n: int, base: float, most: float
) -> None:
    """The delta method's half-width, at settings that the pages do not name; 1.95 at all times."""
    metric = metric_of(mechanism, [epsilon], 9)
    chances = np.array([base / 2, base / 4, base / 4, *[(1 - base) / 6] * 6])
    values, level = drawn(n, 1, chances)
    statistic = statistic_of(metric, values, level)
    sets = CategorySets((0,), (1, 2), 9)
    law, weights = zip(*(report_law(metric.randomizer, 0, x) for x in range(9)), strict=True)
    p = metric.randomizer.signs
    scores = sets.sizes.scores(
        np.stack([law[0][:, [0]].sum(axis=1), law[0][:, 1:3].sum(axis=1)], axis=1),
        float(p.q[0]),
        float(p.contrast[0]),
    )
    variance = (chances @ weights) @ (scores @ [1, -0.5]) ** 2
    normal = 1.96 * math.sqrt(variance / n) / base
    for bound, limit in (("fixed", most), ("anytime", 1.95)):
        estimate = asked(metric, statistic, "0 / 0 + 1 + 2", bound=bound)
        assert estimate.lower[0] <= 0.5 <= estimate.upper[0]
        assert (estimate.upper[0] - estimate.lower[0]) / 2 <= limit * normal


def test_each_level_may_have_a_share_of_its_own_with_uniform_weights() -> None:
    """Low levels pay, high ones do not: `optimal` weights are about another population."""
    metric = metric_of("auto", (0.5, 4))
    values, level = np.repeat([3, 1], 20_000), np.repeat([0, 1], 20_000)
    statistic = statistic_of(metric, values, level)
    covered = asked(metric, statistic, "paid / visit..", weights="uniform")
    other = asked(metric, statistic, "paid / visit..")
    assert covered.lower[0] < 0.5 < covered.upper[0] < 0.9
    assert other.upper[0] < 0.5
    users = asked(metric, statistic, "paid / visit..", target="sample")
    assert users.upper[0] - users.lower[0] > 1.001 * (other.upper[0] - other.lower[0])
    weights = other.weights
    assert users.lower[0] < weights[0] < users.upper[0]


def test_bounds_for_the_users_own_values_are_narrow_at_a_large_epsilon() -> None:
    """Only noise counts. If the spread of values were paid for, they would be wider than 0.08."""
    for name, levels, width in (("grr", [8], 0.01), ("grr", [64], 1e-3), ("auto", [0.5, 8], 0.03)):
        metric = metric_of(name, levels)
        values = np.repeat([0, 1, 2, 3], [2_000, 300, 300, 300])
        statistic = statistic_of(metric, values, np.arange(values.size) % len(levels))
        users = asked(metric, statistic, "paid / visit..", target="sample")
        assert users.lower[0] <= 1 / 3 <= users.upper[0] <= users.lower[0] + width
        people = asked(metric, statistic, "paid / visit..")
        assert people.upper[0] - people.lower[0] > 3 * (users.upper[0] - users.lower[0])


def test_all_numbers_of_a_question_share_beta() -> None:
    """A category beside a share is as wide as beside another category; alone it is narrower."""
    metric = metric_of()
    statistic = statistic_of(metric, *drawn(3_000, 3, [0.4, 0.3, 0.2, 0.1]))
    mixed = asked(metric, statistic, "paid/cart ..", "visit", 3)
    assert mixed.labels == ("paid / cart..", "visit", "paid")
    plain = asked(metric, statistic, "visit", "paid", "none")
    assert (mixed.lower[1:] == plain.lower[:2]).all()
    alone = asked(metric, statistic, "paid / cart..")
    assert mixed.lower[0] < alone.lower[0] < alone.upper[0] < mixed.upper[0]
    every: Any = metric.estimate(statistic)
    cart, paid = every.value[2:]
    assert alone.value[0] == pytest.approx(paid / (cart + paid))
    total = asked(metric, statistic, "visit..")
    assert total.value[0] == pytest.approx(every.value[1:].sum())


def test_an_empty_b_has_no_value_and_says_nothing() -> None:
    """Neither has a metric without reports."""
    metric = metric_of(levels=[1])
    for statistic in (np.array([1_000, 600, 60, 170, 170]), metric.zero()):
        estimate = asked(metric, statistic, "visit / visit + cart")
        if statistic.any():
            assert estimate.denominators[0] < 0
            assert math.isinf(metric.manipulation_bound(estimate, 1).largest)
        assert math.isnan(estimate.value[0])
        assert (estimate.lower[0], estimate.upper[0]) == (0, 1)


@pytest.mark.parametrize("among", [False, True])
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("share", ["cart / visit..", "cart + paid"])
def test_the_best_liar_moves_a_share_by_what_is_said(name: str, share: str, among: bool) -> None:
    """Of all lies that agree, at every level; without privacy, reports are true values."""
    metric = metric_of(name)
    statistic = statistic_of(metric, *drawn(900, 3, [0.3, 0.2, 0.3, 0.2]))
    levels, moved = np.repeat(range(3), 400), []
    reports = metric.randomize(np.arange(1200) % 4, levels, SeededBits(2))
    before = asked(metric, statistic, share)
    for lie in np.unique(np.column_stack([levels, reports]), axis=0):
        changed = statistic.copy()
        same = np.repeat(lie[1:].astype(reports.dtype).reshape(1, *reports.shape[1:]), 300, axis=0)
        metric.accumulate(changed, np.full(300, lie[0]), same)
        after = asked(metric, changed, share)
        said = metric.manipulation_bound(after if among else before, 300, among=among)
        whole = metric.manipulation_bound(after if among else before, 300, among=among, each=False)
        assert said.largest == whole.largest == pytest.approx(np.asarray(said.shift)[0])
        change = abs(after.value[0] - before.value[0])
        assert change <= said.largest * (1 + 1e-9)
        moved.append(change / said.largest)
    assert among or max(moved) == pytest.approx(1)


@pytest.mark.parametrize("among", [False, True])
def test_no_mixture_of_lies_moves_a_ratio_by_more_than_the_best(among: bool) -> None:
    """Against all choices of up to two lies of any level and kind."""
    random, counts = np.random.default_rng(1), np.array([3, 2])
    for _ in range(60):
        weights, ratio = random.uniform(0.5, 2, 2), random.uniform()
        scores = weights[:, None, None] * random.normal([0, 0.2], [1, 0.6], (2, 3, 2))
        base = 0.9 * float(counts @ weights)
        kinds = [*scores.reshape(-1, 2)]
        choices = [*((x,) for x in kinds), *itertools.combinations_with_replacement(kinds, 2)]
        sums = np.array([sum(choice) for choice in choices])
        bases = base + (-1 if among else 1) * sums[:, 1]
        largest = np.abs(sums @ [1, -ratio] / bases).max() if (bases > 0).all() else math.inf
        weighted = np.moveaxis(scores, -1, 0)
        said = largest_ratio_shift(ratio, 0.9, counts, weights, weighted, 2, among=among)
        assert said == pytest.approx(largest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paid/visit..", "paid / visit.."),
        ("  cart +paid / visit ..", "cart + paid / visit.."),
        ("visit..", "visit.."),
        ("visit / paid..", "it is 0 by definition"),
        ("visit.. / paid", "it is 1 by definition"),
        ("none..", "it is 1 by definition"),
        ("paid / >=visit", r"expected NAME\.\."),
        ("pade / visit..", "did you mean 'paid'"),
        ("paid / visit / none", "expected one of|did you mean"),
        ("paid / ", "expected one of|did you mean"),
        ("C + D", "C + D"),
        ("C + D / C + D + E", "'C [+] D' / .* or 'C' [+] 'D' / "),
        ("a/b", "a/b"),
        ("a/b / a/b + E", "a/b / a/b + E"),
    ],
)
def test_names_of_shares(text: str, expected: str) -> None:
    """A declared name wins; a text is read in one way, or refused with what to ask instead."""
    names = [*STEPS, "C", "D", "C + D", "E", "a/b"]
    metric = metric_of(categories=STEPS if text[0] not in "Ca" else names)
    if text.replace(" ", "") == expected.replace(" ", ""):
        assert metric.domain.select([text])[0] == (expected,)
        return
    with pytest.raises(ValueError, match=expected):
        metric.domain.select([text])


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"bound": "normal"}, "expected 'fixed' or 'anytime'"),
        ({"bound": "anytime", "weights": "uniform"}, "or bound = 'fixed'"),
        ({"bound": "anytime", "target": "sample"}, "or bound = 'fixed'"),
    ],
)
def test_questions_without_proved_bounds_are_refused(question: Any, expected: str) -> None:
    """With what to ask instead."""
    metric = metric_of()
    with pytest.raises(ValueError, match=expected):
        metric.estimate(metric.zero(), categories=["paid / visit.."], **question)


def test_a_bad_share_in_a_definition_is_refused_by_its_text() -> None:
    """Before anything is asked, with what was expected."""
    mean: dict[str, Any] = {"kind": "mean", "mechanism": "windows", "range": (0, 1)}
    frequency: dict[str, Any] = {"kind": "frequency", "mechanism": "grr", "categories": STEPS}
    large = frequency | {"mechanism": "subset_selection", "categories": 400}
    for name, keys, shares, expected in (
        ("unknown", frequency, ["cart / pad"], r"shares = 'cart / pad'.*did you mean 'paid'"),
        ("twice", frequency, ["paid/visit..", "paid / visit.."], "'paid / visit..'.*share once"),
        ("0 or 1", frequency, ["visit / paid"], "'visit / paid'.* is 0 by definition"),
        ("category", frequency, ["paid"], "'paid': .*it is a category"),
        ("too many", frequency, ["paid"] * 33, "at most 32, not 33"),
        ("mechanism", frequency | {"mechanism": "oue"}, ["paid / cart.."], "expected grr"),
        ("large", large, ["200.. / 100.."], r"'200.. / 100..'.*at most 63 in A"),
        ("memoized", frequency | {"memoized": True}, ["paid / cart.."], "memoized"),
        ("kind", mean, ["paid / cart.."], "none for kind 'mean'"),
    ):
        with row(name), pytest.raises(DefinitionError, match=expected):
            define(name="checkout", levels=[1], shares=shares, **keys)


def test_other_mechanisms_answers_and_collections_are_refused() -> None:
    """None of them reads another category in its place: an index below 0 is none."""
    share = ["paid / visit.."]
    for mechanism in ("oue", "hadamard_response"):
        metric = metric_of(mechanism)
        statistic = statistic_of(metric, *drawn(30, 3, [0.25] * 4))
        with pytest.raises(ValueError, match="answers no shares among: expected grr"):
            metric.estimate(statistic, categories=share)
    memoized = frequency_metric("m", "grr", STEPS, [1], memoized=True)
    with pytest.raises(ValueError, match="expected one pane"):
        memoized.estimate(memoized.zero(), panes=2, categories=share)
    with pytest.raises(ValueError, match="each once"):
        metric_of().estimate(metric_of().zero(), categories=["paid/cart..", "paid / cart.."])
    for names, expected in (
        ([f"{'+ visit' * n} / none.." for n in range(40)], "expected at most 32 in a question"),
        (["visit +" * 40], "expected fewer parts"),
    ):
        with pytest.raises(ValueError, match=expected):
            metric_of().domain.select(names)
    metric = metric_of()
    assert metric.domain.work_of(["visit", "paid / visit.."]) > 100
    for asked in (np.array([-1]), np.array([metric_of()], dtype=object)):
        with pytest.raises(ValueError, match="expected indices or keys"):
            Question(asked=asked)


def test_subsets_of_many_categories_are_refused_before_they_take_long() -> None:
    """With what to ask instead, which is answered."""
    metric = metric_of("subset_selection", categories=400)
    statistic = statistic_of(metric, *drawn(300, 3, np.full(400, 1 / 400)))
    for name in ("200.. / 100..", "399 / 20.."):
        with pytest.raises(ValueError, match=r"at most 63 in A .* 'projective_geometry"):
            metric.estimate(statistic, categories=[name])
    other = metric_of("projective_geometry_response", categories=400)
    statistic = statistic_of(other, *drawn(300, 3, np.full(400, 1 / 400)))
    assert asked(other, statistic, "200.. / 100..").upper[0] <= 1


def test_a_mistaken_or_large_share_is_read_in_little_time() -> None:
    """Names that are long and alike, and sums of many large sets."""
    alike = metric_of(categories=[f"{'a' * 60}{index:03}" for index in range(500)])
    large = metric_of(categories=60_000).domain
    sums = [f"{first}.. + " + " + ".join(f"{x}.." for x in range(40, 9, -1)) for first in range(5)]
    start = time.process_time()
    with pytest.raises(ValueError, match="did you mean 'aaa"):
        alike.domain.select(["ab" * 40 + "+", "a" * 61 + "/"])
    large.select(sums[1:])
    assert time.process_time() - start < 1


def test_shares_are_compared_by_the_limits_of_each_arm() -> None:
    """The law is that of a union: no law of both is known. Others need one."""
    metric = metric_of()
    arms = [
        statistic_of(metric, *drawn(20_000, 3, x, 5), seed)
        for seed, x in ((1, [0.4, 0.1, 0.1, 0.4]), (2, [0.4, 0.4, 0.1, 0.1]))
    ]
    answer: Any = compare(metric, *arms, categories=["paid / visit..", "visit"])
    assert (answer.law, answer.labels) == ("union", ("paid / visit..", "visit"))
    assert answer.lower[0] < 0.5 < answer.upper[0]
    assert answer.decided.all()
    with pytest.raises(ValueError, match="expected independent arms"):
        compare(metric, arms[0], arms[1], categories=["paid / visit.."], weights="standard")


def test_windows_together_or_in_parts_have_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for mechanism, bound in itertools.product(("grr", "subset_selection"), ("fixed", "anytime")):
        metric = metric_of(mechanism)
        users = (drawn(n, 3, [0.2, 0.3, 0.3, 0.2]) for n in (30, 3000, 500))
        statistics = [statistic_of(metric, *values_and_levels) for values_and_levels in users]
        together = metric.estimate_each(statistics, 0.05, bound, ["paid / visit.."])
        with monkeypatch.context() as patch:
            patch.setattr(limits, "ROWS_AT_A_TIME", 1)
            alone = [asked(metric, x, "paid / visit..", bound=bound) for x in statistics]
        assert [(x.lower, x.upper) for x in together] == [(x.lower, x.upper) for x in alone]
