"""What devices say of themselves, and in which batches."""

import dataclasses
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric
from producers import Ledger, Reporter
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Arrivals, Population
from producers.populations.produce import produce
from producers.populations.simulated import simulate
from producers.populations.tables import read_population
from producers.wire.reports_pb2 import ReportBatch
from tests.support.running.broker import LATE, Broker

BY: dict[str, Any] = {
    "by": ["version", "country"],
    "attributes": {"version": ["1", "2"], "country": ["DE", "FR", "NA"]},
}
SLICED = dataclasses.replace(LATE, **BY)
MIX = LevelDistribution.parse("0.5:0.5,4:0.5")
MINUTE = 60_000


def said(batch: ReportBatch) -> dict[str, str]:
    """Return a batch's attributes, which are in the order of their names."""
    names = [each.name for each in batch.attributes]
    assert names == sorted(set(names))
    return {each.name: each.value for each in batch.attributes}


def sizes(batches: list[ReportBatch]) -> dict[str, int]:
    """Return the number of reports of each slice."""
    found: defaultdict[str, int] = defaultdict(int)
    for batch in batches:
        found[" ".join(said(batch).values())] += len(batch.levels)
    return dict(found)


def test_only_declared_and_used_attributes_leave_a_device(broker: Broker, topic: str) -> None:
    own = {"country": "Liechtenstein", "version": "2", "city": "Vaduz"}
    with Reporter(SLICED, broker.config, topic=topic, attributes=own) as reporter:
        reporter.report([1.0, 0.0], epsilon=1)
    [message] = broker.read(topic)
    assert said(message.batch) == {"country": "other", "version": "2"}
    assert len(message.batch.levels) == 2
    assert b"Vaduz" not in message.batch.SerializeToString()
    assert b"Liecht" not in message.batch.SerializeToString()
    topic = broker.topic()
    with Reporter(LATE, broker.config, topic=topic, attributes=own) as plain:
        plain.report(1.0, epsilon=1, attributes={"country": "FR"})
    assert not broker.batches(topic)[0].attributes, "a metric without slices sends none"


def test_a_batch_has_one_slice_and_a_call_may_name_another(broker: Broker, topic: str) -> None:
    with Reporter(SLICED, broker.config, topic=topic, attributes={"country": "DE"}) as reporter:
        for _ in range(10):
            reporter.report([1.0] * 3, epsilon=1, time=5.0)
            reporter.report([1.0] * 2, epsilon=1, time=5.0, attributes={"version": "1"})
            reporter.report([1.0], epsilon=1, time=5.0, attributes={})
    batches = broker.batches(topic)
    assert (sizes(batches), len(batches)) == ({"DE": 30, "1": 20, "": 10}, 3)


def test_groups_of_devices_have_own_attributes_in_one_call(broker: Broker, topic: str) -> None:
    """Each device has a level and a time of its own, so that one in a wrong batch is noticed."""
    values, epsilons, times = [1.0] * 6, [1, 2, 1, 2, 2, 1], [5.0, 6.0, 7.0, 8.0, 9.0, 9.5]
    groups = [({"country": "DE"}, [0, 2, 5]), ({"version": "1"}, [1, 3]), ({}, [4])]
    level = SLICED.level_of(epsilons)
    with Reporter(SLICED, broker.config, topic=topic) as reporter:
        reporter.report_groups(
            values, epsilons, times, [(np.array(rows), own) for own, rows in groups]
        )
        with pytest.raises(ValueError, match="attribute 'country' = 49"):
            reporter.report_groups(values, 1, None, [(np.array([0]), {"country": 49})])  # type: ignore[dict-item]
    batches = {" ".join(said(batch).values()): batch for batch in broker.batches(topic)}
    assert len(set(level)) == 2
    for own, rows in groups:
        batch = batches.pop(" ".join(own.values()))
        assert [*batch.levels] == level[rows].tolist()
        assert batch.time_ms == 1000 * times[rows[-1]]
    assert not batches


def test_a_wrong_attribute_spends_nothing(broker: Broker, topic: str, tmp_path: Path) -> None:
    wrong: Any = {"country": 49}
    with pytest.raises(ValueError, match="attribute 'country' = 49: expected texts"):
        Reporter(SLICED, broker.config, topic=topic, attributes=wrong)
    ledger = Ledger(tmp_path / "ledger", budget=2)
    with Reporter(SLICED, broker.config, topic=topic) as reporter:
        with pytest.raises(ValueError, match="attribute 'country' = 49"):
            reporter.report(1.0, epsilon=1, ledger=ledger, attributes=wrong)
        assert ledger.accounts()[""].reports == 0
        reporter.report(1.0, epsilon=1, ledger=ledger, attributes={"country": "FR"})
    assert sizes(broker.batches(topic)) == {"FR": 1}


def test_many_attributes_leave_room_in_a_message(broker: Broker, topic: str) -> None:
    names = [f"a{i}{'x' * 60}" for i in range(6)]
    longest = {name: ["y" * 64] for name in names}
    wide = dataclasses.replace(LATE, by=names, attributes=longest)
    own = {name: value for name, [value] in longest.items()}
    config = {**broker.config, "message.max.bytes": 3_000}
    with Reporter(wide, config, topic=topic, attributes=own, batch_reports=5_000) as reporter:
        reporter.report(np.zeros(5_000), epsilon=1)
    batches = broker.batches(topic)
    assert sum(len(batch.levels) for batch in batches) == 5_000
    assert max(batch.ByteSize() for batch in batches) <= 3_000


def test_a_population_reports_in_slices_and_no_slice_comes_late(broker: Broker, topic: str) -> None:
    """The reports of a pane are all sent before the first one that closes it."""
    country = np.random.default_rng(5).choice(np.array(["DE", "FR", "XX", ""], dtype=object), 3_000)
    times = np.arange(3_000) * 500 + MINUTE
    who = Population(times, {"late": np.ones(3_000)}, attributes={"country": country})
    done = produce({"late": SLICED}, who, broker.config, MIX, topic=topic, batch_age=60.0)
    batches = broker.batches(topic)
    assert done.reports == 3_000
    names = {"DE": "DE", "FR": "FR", "other": "XX", "": ""}
    expected = {name: int((country == value).sum()) for name, value in names.items()}
    assert sizes(batches) == expected
    assert len(batches) == 4 * len({batch.time_ms // MINUTE for batch in batches})
    messages = broker.read(topic)
    for partition in {message.partition for message in messages}:
        order = [m.batch.time_ms // MINUTE for m in messages if m.partition == partition]
        assert order == sorted(order)


TABLE = """late,Country,os,when
1,DE,2,2026-01-02
0,NA,,2026-01-01
1,,1,2026-01-03
0,Iceland,3,2026-01-04
"""


def test_attributes_are_the_columns_of_their_names_or_those_that_are_given(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(TABLE)
    metrics: dict[str, LocalMetric] = {"late": SLICED}
    options: dict[str, Any] = {"columns": {"late": ["late"]}, "arrivals": Arrivals(1)}
    assert [*read_population(file, metrics, **options).attributes] == ["country"]
    notes = read_population(file, metrics, missing=["NA"], **options).notes
    assert "as 'other' ('Iceland' 1); rows without a value: 2 ('NA' 1, '' 1)" in "".join(notes)
    times: dict[str, Any] = {"columns": {"late": ["late"]}, "time": ["when"]}
    named = read_population(file, metrics, attributes={"version": "os"}, **times)
    assert named.attributes["version"].tolist() == ["", "2", "1", "3"], "sorted by time"
    slicing = SLICED.slicing
    assert slicing is not None
    words = [[*slicing.slice(code).values()] for code in named.slices(slicing).tolist()]
    assert words == [[None, "NA"], ["2", "DE"], ["1", None], ["other", "other"]]
    said = {"os": "attribute 'os': expected one of country, version", "country": "no column 'land'"}
    for name, message in said.items():
        with pytest.raises(ValueError, match=message):
            read_population(file, metrics, attributes={name: "land"}, **options)
    simulated = simulate(SLICED, 2_000, "uniform", Arrivals(1), seed=3)
    assert {*simulated.attributes["country"]} == {"DE", "FR", "NA"}
    assert simulated.part(10, 20).attributes["version"].size == 10
