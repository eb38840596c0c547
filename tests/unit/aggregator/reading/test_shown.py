"""What is shown of an estimate: a value within its own bounds, and of a search what is certain."""

import dataclasses
import json
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from aggregator.cli.live_view import LiveView
from aggregator.features.reader import Reader
from aggregator.publishing import events
from aggregator.reading.query import Query
from aggregator.reading.serialization import answer, as_dict
from aggregator.reading.window import SearchState, Window, WindowStatistic
from aggregator.terminal.estimate_text import EstimateView, as_line, as_text
from estimators import Metric, SearchMetric, define
from estimators.extremes import Decision, Progress
from estimators.metrics.domains import ValueRange
from producers.device.rounds import Round
from tests.support.metrics import mean_metric
from tests.support.rows import row

RARE = define(name="rare", kind="frequency", mechanism="grr", categories=4, levels=[1])
OUTSIDE = np.array([200, 120, 78, 2, 0])
"""Of which two categories come out far below zero, and below their bounds."""


def window(metric: Metric, statistic: Any, **more: Any) -> Window:
    return Window(
        metric=metric, status="provisional", content=WindowStatistic(np.asarray(statistic)), **more
    )


def printed(console: Any) -> str:
    with (found := Console(width=200)).capture() as capture:
        found.print(console)
    return capture.get()


def texts(seen: Window, found: Any) -> tuple[str, str, str]:
    """Return an answer as the command line prints it: whole, as a line and as a live view."""
    whole = as_text(EstimateView(seen, found, 4))
    return whole, as_line(seen, found), printed(LiveView(4).draw(seen, found))


def test_a_shown_value_is_within_its_bounds_and_no_farther_from_a_covered_truth() -> None:
    for support in [[0, 0, 0, 1], *np.random.default_rng(1).integers(0, 300, (30, 4)).tolist()]:
        for bound in ("fixed", "anytime", "normal"):
            found = RARE.estimate(np.array([sum(support), *support]), bound=bound)
            with row(support, bound):
                assert np.all((found.lower <= found.shown) & (found.shown <= found.upper))
                for truth in (found.lower, found.upper, (found.lower + found.upper) / 2):
                    assert np.all(np.abs(found.shown - truth) <= np.abs(found.value - truth))


def listed(numbers: Any) -> list[float]:
    found: list[float] = np.asarray(numbers).tolist()
    return found


def test_answers_and_events_have_it_beside_the_unbiased_value() -> None:
    seen = window(RARE, OUTSIDE, policy="optimal")
    found = Reader.answer(seen)
    assert np.any(found.value < found.lower), "or this test says nothing"
    dated = dataclasses.replace(seen, arrived_ms=1)
    of_pane = dataclasses.replace(seen, start_ms=0, end_ms=60_000, status="final")
    for told in (
        as_dict(answer(seen, found)),
        json.loads(events.provisional_event(dated, found, 4, "/").data),
        json.loads(events.final_event(of_pane, Reader.answer(of_pane), 4, "/").data),
    ):
        assert all(
            low <= value <= high
            for low, value, high in zip(told["lower"], told["value"], told["upper"], strict=True)
        )
        assert told["unbiased"] == sorted(listed(found.value), reverse=True) or (
            told["unbiased"] == listed(found.value)
        )
        assert min(told["unbiased"]) < 0 == min(told["value"])


def test_printed_bounds_contain_the_computed_ones_whatever_the_unit() -> None:
    rng = np.random.default_rng(3)
    for highest, each in ((0.01, 50_000), (1.0, 200_000_000), (1e9, 5)):
        spent = mean_metric("spent", "randomized_response", (0, highest), [4], unit="s")
        for ones in rng.integers(each // 2, each, 10).tolist():
            seen = window(spent, [each, ones])
            found = Reader.answer(seen)
            for text in texts(seen, found):
                pair = re.search(r" s in \[(-?[\d.]+), (-?[\d.]+)\]", text)
                assert pair is not None, text
                low, high = map(Fraction, pair.groups())
                lower, upper = (Fraction(repr(float(x))) for x in (found.lower, found.upper))
                assert low <= lower < upper <= high
                assert high - low <= 1.1 * (upper - lower), "at least two significant digits"


def test_a_certainty_that_is_printed_is_never_larger_than_the_real_one() -> None:
    seen = window(RARE, OUTSIDE)
    whole, _, live = texts(seen, Reader.answer(seen, Query(beta=1e-7)))
    for text in (whole, live):
        assert "100%" not in text
        assert "99.99999% " in text
    sought = dataclasses.replace(LONGEST, beta=1e-7)
    told = as_dict(answer(searching(sought), Reader.answer(searching(sought))))
    assert "99.99999%" in told["search"]["statement"]


# -- A search -------------------------------------------------------------------------------------

LONGEST = define(
    name="longest", kind="maximum", range=(0, 724), levels=[1], rounds=2, unit="minutes"
)


def searching(metric: SearchMetric) -> Window:
    """One round went outwards, the other inwards: [362, 543] of a maximum, its middle 452.5."""
    search = metric.search
    first = Decision(search.threshold(Progress()), (10_000,), (5_000,), 0.5, 0.1, outwards=True)
    second = search.threshold(Progress((first,)))
    both = (first, Decision(second, (10_000,), (2_700,), 0.0, 0.1, outwards=False))
    over = Round(
        metric=metric.name,
        revision=metric.revision,
        number=2,
        rounds=2,
        threshold=None,
        opened_ms=0,
        decisions=both,
    )
    return Window(metric=metric, status="final", content=SearchState(over, metric.zero()))


@pytest.mark.parametrize(("kind", "side"), [("maximum", "at least"), ("minimum", "at most")])
def test_the_headline_of_a_search_is_what_is_certain(kind: str, side: str) -> None:
    metric = dataclasses.replace(LONGEST, kind=kind)
    seen = searching(metric)
    found = Reader.answer(seen)
    told = as_dict(answer(seen, found))
    assert told["search"]["certified"] == 362
    statement = f"{side} 362 minutes, with probability 95%"
    assert told["search"]["statement"] == statement
    assert "interval" not in told["search"], "what is left of the range is no interval"
    assert "unbiased" not in told
    for text in texts(seen, found):
        assert statement in text
        assert f"{found.value:g}" not in text, "the middle of what is left is a guess"
    assert texts(seen, found)[0].splitlines().count(statement) == 1
    assert "answers    20000 to rounds that are decided" in texts(seen, found)[0]
    assert not re.search("^reports|\\d reports", "\n".join(texts(seen, found)), re.MULTILINE)
    for top in np.linspace(1e6, 2**26, 30).tolist():
        domain = ValueRange(range=(0.0, top / 3))
        seen = searching(dataclasses.replace(metric, domain=domain, unit=""))
        told = as_dict(answer(seen, Reader.answer(seen)))["search"]
        number = re.match(r"at (?:most|least) (\S+), with", told["statement"])
        assert number is not None
        said, exact = Fraction(number[1]), Fraction(repr(told["certified"]))
        assert said >= exact if kind == "minimum" else said <= exact, "no stronger than certain"


def test_names_send_nothing_to_a_terminal_and_are_no_markup() -> None:
    hostile = ("[/]", "\x1b[31mred", "\u202eleft")
    metric = define(name="m", kind="frequency", mechanism="grr", categories=hostile, levels=[4])
    seen = window(metric, [9, 4, 3, 2])
    for text in texts(seen, Reader.answer(seen)):
        assert all(char.isprintable() for char in text.replace("\n", ""))
        for shown in ("[/]", "\\u001b[31mred", "\\u202eleft"):
            assert shown in text
