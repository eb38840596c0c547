"""A server that makes up definitions gets no more of a person than budget and demand allow."""

import dataclasses
import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import Metric, SearchMetric, define
from estimators.extremes import Progress
from estimators.mechanisms.caps import best_score
from estimators.metrics.metric import ReportedMetric as Reporting
from producers import BudgetSpent, Connection, DefinitionChanged, Ledger, Reporter
from producers.device.rounds import Round, decode
from producers.http.definitions import read_served
from producers.http.gateway_answers import GatewayAnswer, Verdict, verdict
from producers.wire.reports_pb2 import ReportBatch
from tests.support.running.broker import Broker

VALUE, DEMANDED = 0.7, 0.5
CATEGORIES = [f"c{index}" for index in range(8)]


def made_up(count: int) -> list[Metric]:
    """Return definitions that somebody made up: new names, levels, ranges, kinds and revisions."""
    generator, found = np.random.default_rng(3), []
    for number in range(count):
        fields: dict[str, Any] = {
            "name": f"late_{number % (count // 2)}",
            "levels": sorted({0.1, DEMANDED, *np.round(generator.uniform(0.1, 64, 3), 4).tolist()}),
            "pane": str(generator.choice(["1m", "1h", "7s"])),
        }
        kind = number % 4
        if kind == 0:
            low, high = sorted(generator.uniform(0, 1, 2).tolist())
            fields |= {"kind": "mean", "mechanism": "laplace", "range": (low, high)}
        elif kind == 1:
            fields |= {"kind": "frequency", "mechanism": "grr", "categories": CATEGORIES}
        elif kind == 2:
            fields |= {"kind": "mean", "mechanism": "randomized_response", "range": (0, 1)}
            fields |= {"memoized": True}
        else:
            fields |= {"kind": "maximum", "range": (0, 1), "rounds": int(generator.integers(1, 50))}
            fields |= {"split": str(generator.choice(["users", "budget"]))}
        found.append(define(**fields))
    return found


def give(reporter: Reporter, ledger: Ledger | None) -> None:
    """Report the person's value, or answer the round, as whatever the definition asks for."""
    metric = reporter.metric
    if isinstance(metric, SearchMetric):
        reporter.answer(Round.of(metric, Progress(), 0), VALUE, DEMANDED, ledger=ledger)
    else:
        value = CATEGORIES[5] if metric.kind == "frequency" else VALUE
        reporter.report(value, DEMANDED, ledger=ledger)


def test_made_up_metrics_share_one_budget(broker: Broker, topic: str, tmp_path: Path) -> None:
    ledger, refused, changed = Ledger(tmp_path / "ledger", budget=3), 0, 0
    definitions = made_up(60)
    with Connection(broker.config) as connection:
        for metric in definitions:
            with Reporter(metric, connection, topic=topic) as reporter:
                try:
                    give(reporter, ledger)
                except BudgetSpent:
                    refused += 1
                except DefinitionChanged:
                    changed += 1
    by_revision = {(metric.name, metric.revision): metric for metric in definitions}
    worth = 0.0
    for batch in broker.batches(topic):
        metric = by_revision[batch.metric, batch.revision]
        for level in batch.levels:
            assert metric.levels[level] <= DEMANDED
            worth += float(metric.randomizer.epsilons[level])
    assert refused > 10
    assert changed > 0
    assert 2 < worth <= 3
    assert worth <= float(ledger.accounts()[""].spent) + 1e-9 <= 3 + 1e-9


def test_a_definition_of_high_levels_gets_none(broker: Broker, topic: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", budget=100)
    with Connection(broker.config) as connection:
        demanded: list[list[float]] = [[1, 64], [0.5001], [2]]
        for metric, levels in itertools.product(made_up(8), demanded):
            greedy = dataclasses.replace(metric, levels=levels)
            reporter = Reporter(greedy, connection, topic=topic)
            for book in (ledger, None):
                with pytest.raises(ValueError, match="do not report"):
                    give(reporter, book)
    assert broker.batches(topic) == []
    assert ledger.accounts()[""].spent == 0


def test_a_batch_has_its_question_and_no_more(broker: Broker, topic: str, tmp_path: Path) -> None:
    """What is in a message, field by field; ids are random, and name nobody."""
    metric, ids = made_up(8)[4], set()
    ledgers = [None, Ledger(tmp_path / "ledger", budget=9)]
    with Reporter(metric, broker.config, topic=topic) as reporter:
        for time in range(60, 600, 60):
            reporter.report(VALUE, DEMANDED, time=float(time), ledger=ledgers[time % 120 == 0])
    names = ("metric", "revision", "batch_id", "time_ms", "levels", "values")
    for message in broker.read(topic):
        batch = message.batch
        assert message.key == batch.batch_id
        assert (batch.metric, batch.revision) == (metric.name, metric.revision)
        only = ReportBatch(**{name: getattr(batch, name) for name in names})
        assert only.SerializeToString() == batch.SerializeToString()  # nor unknown fields
        ids.add(batch.batch_id)
    assert len(ids) == 9


OPEN: dict[str, Any] = {"kind": "frequency", "categories": "open", "levels": [0.5, 1, 2]}


def test_a_device_makes_no_table_of_the_size_that_a_definition_says() -> None:
    for mechanism, options in (
        ("projection", {"rows": 2**24}),
        ("count_sketch", {"rows": 2**24, "buckets": 1}),
        ("projective_sketch", {"rows": 2**18, "points": 64}),
        ("prefix_tree", {"rows": 2**13, "last": 16}),
    ):
        keys = {"discover": True, "preset": "text"} if mechanism == "prefix_tree" else {}
        tracemalloc.start()
        metric = define(name="m", mechanism=mechanism, options=options, **OPEN, **keys)
        Reporting.require(metric).randomize(["x"], metric.level_of([DEMANDED]))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**22, (mechanism, metric.revision)


def test_levels_that_are_near_each_other_share_what_they_cost() -> None:
    best_score.cache_clear()
    levels = [round(0.1 + 0.25 * i, 4) for i in range(255)]
    define(name="m", kind="vector_mean", mechanism="caps", dimension=16, radius=1, levels=levels)
    assert best_score.cache_info().misses < 2 * len(levels), "and not eleven for each"


def test_lists_in_lists_are_no_definition_no_round_and_no_answer() -> None:
    deep = b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    with pytest.raises(ValueError, match="not a whole definition"):
        read_served(deep, "late")
    with pytest.raises(ValueError, match="recursion depth"):
        decode(deep)
    assert verdict(GatewayAnswer(202, "application/json", "", "", deep), bytes(16)) is Verdict.AGAIN
