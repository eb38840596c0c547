"""The commands as processes, on a deployment that has counted something."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregator.storage.parsing import LAST_COMMIT_MS
from aggregator.storage.redis_keys import tag
from estimators.rounding import common_decimals, interval, nearest
from tests.support.reports.messages import EPOCH
from tests.support.reports.searching import METRICS as SEARCH
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, as_json, wait_until
from tests.support.running.processes import children, living
from tests.support.running.servers import Kafka

BATCHES = 40


@pytest.fixture
def counted(deployment: Deployment) -> Deployment:
    deployment.produce(traffic(deployment, BATCHES))
    with deployment.worker():
        deployment.wait_until_counted()
    return deployment


def accepted(deployment: Deployment, name: str) -> int:
    return deployment.counts()[f"accepted:{name}"]


def test_estimate_answers_for_people_and_as_json(counted: Deployment) -> None:
    found = as_json(counted.dither("estimate", "delay", "--json"))
    assert found["metric"] == "delay"
    assert found["reports"] == accepted(counted, "delay")
    assert -60 <= found["lower"] < found["value"] < found["upper"] <= 180
    assert found["status"] == "provisional"
    told = counted.dither("estimate", "delay")
    assert told.returncode == 0
    value, lower, upper = interval([found[key] for key in ("value", "lower", "upper")])
    assert f"{value} minutes in [{lower}, {upper}]" in told.stdout
    carrier = as_json(counted.dither("estimate", "carrier", "--json"))
    assert carrier["categories"] == ["AA", "B6", "DL", "EV", "UA"]
    for key in ("value", "lower", "upper"):
        assert len(carrier[key]) == 5


def test_estimate_answers_for_some_categories_one_by_one_or_as_a_distribution(
    counted: Deployment,
) -> None:
    command = ("estimate", "carrier", "--json")
    whole = as_json(counted.dither(*command, "--simplex"))
    assert sum(whole["simplex"]) == pytest.approx(1)
    assert min(whole["simplex"]) >= 0
    told = counted.dither("estimate", "carrier", "--simplex", "--top=2").stdout
    places = common_decimals(whole["lower"], whole["upper"])
    assert nearest(max(whole["simplex"]), places) in told
    assert "and 3 more categories" in told
    some = as_json(counted.dither(*command, "--category=UA", "--category=DL"))
    assert some["categories"] == ["UA", "DL"]
    assert some["value"] == pytest.approx([whole["value"][4], whole["value"][2]])
    alone = as_json(counted.dither(*command, "--category=UA", "--pointwise"))
    assert whole["lower"][4] < some["lower"][0] < alone["lower"][0]
    assert alone["upper"][0] < some["upper"][0] < whole["upper"][4]
    refused = counted.dither(*command, "--category=UA", "--simplex")
    assert refused.returncode == 2
    assert "all categories of a frequency" in refused.stderr
    unknown = counted.dither(*command, "--category=UB")
    assert unknown.returncode == 2
    assert "category 'UB' of 'carrier': did you mean" in unknown.stderr


def test_estimate_of_a_window_counts_that_window_alone(counted: Deployment) -> None:
    begin, end = EPOCH / 1000, EPOCH / 1000 + 3 * 3600
    arguments = ("estimate", "delay", "--json")
    parts = [
        as_json(counted.dither(*arguments, "--from", str(begin), "--to", str(end))),
        as_json(counted.dither(*arguments, "--from", "2013-01-01T03:00", "--to", "2013-02-01")),
    ]
    assert all(part["reports"] > 0 for part in parts)
    assert sum(part["reports"] for part in parts) == accepted(counted, "delay")


def test_metrics_tell_how_far_each_is_counted(counted: Deployment) -> None:
    found = as_json(counted.dither("metrics", "--json"))
    assert [row["metric"] for row in found] == ["delay", "carrier", "age"]
    for row in found:
        assert row["reports"] == accepted(counted, row["metric"])
        assert row["event_time"] == "2013-01-01T09:45:00Z"
    told = counted.dither("metrics")
    assert told.returncode == 0
    listed, _, notes = told.stdout.partition("\n\n")
    assert [line.split()[0] for line in listed.splitlines()] == [
        *("metric", "delay", "carrier", "age")
    ]
    assert " ".join(notes.split()) == "slices delay: 4 slices, 2.0 bits, by country"


def test_verify_proves_the_sums_and_names_what_is_wrong(counted: Deployment) -> None:
    proved = counted.dither("verify", "--json")
    assert proved.returncode == 0, proved.stdout + proved.stderr
    found = json.loads(proved.stdout)
    assert found["verified"] is True
    assert found["messages"] == 3 * BATCHES
    assert found["differences"] == found["unverifiable"] == []
    client: Any = counted.store.client
    key = min(client.scan_iter(match=f"{{dither:{counted.topic}:*}}:pane:delay@*"))
    client.setrange(key, 0, b"\x7f")
    partition = key.decode().split("}")[0].rpartition(":")[2]
    disproved = counted.dither("verify")
    assert disproved.returncode == 1
    assert f"partition {partition}: pane of delay from 2013-01-01T" in disproved.stdout
    assert "Traceback" not in disproved.stderr


def test_an_estimate_says_that_more_is_waiting_and_that_nobody_counts(counted: Deployment) -> None:
    assert "waiting" not in counted.dither("estimate", "delay", "--json").stderr
    assert "waiting" not in counted.dither("estimate", "delay").stdout
    counted.produce(traffic(counted, 7, seed=9))
    waiting = sum(
        end - int(counted.store.owner(number).get("next", 0))
        for number, end in counted.log_ends().items()
    )
    assert waiting > 0
    told = counted.dither("estimate", "delay").stdout
    assert f"waiting    {waiting} messages in Kafka are not counted yet" in told
    assert f"waiting    {waiting} mess" in counted.dither("estimate", "delay", "--json").stderr
    assert "no worker" not in told, "one has counted a moment ago"
    client: Any = counted.store.client
    for number in counted.store.partitions():
        mark = f"{tag(counted.topic, number)}:committed"
        client.pexpire(mark, LAST_COMMIT_MS - 3_600_000)
    assert "no worker has counted since 20" in counted.dither("estimate", "delay").stdout


def test_a_halted_partition_is_named_while_others_count(counted: Deployment) -> None:
    said = "partition 2 is halted, and only up to offset "
    for command in (("estimate", "delay"), ("metrics",)):
        assert said not in counted.dither(*command).stdout
    client: Any = counted.store.client
    key = f"{tag(counted.topic, 2)}:owner"
    client.hset(key, "halted", "offset 7 cannot be counted")
    done = int(client.hget(key, "next"))
    told = f"warning    {said}{done} is counted: offset 7 cannot be counted"
    for command in (("estimate", "delay"), ("metrics",)):
        assert told in counted.dither(*command).stdout
        assert told in counted.dither(*command, "--json").stderr


def owners(deployment: Deployment) -> set[str]:
    numbers = range(deployment.partitions)
    return {deployment.store.owner(number).get("worker", "") for number in numbers}


def test_a_supervised_worker_that_is_killed_is_started_again(deployment: Deployment) -> None:
    supervisor = deployment.start_worker("--workers", "2")
    try:
        wait_until(lambda: len(owners(deployment) - {""}) == 2, "two workers count")
        workers = children(supervisor.pid)
        assert len(workers) == 2
        deployment.produce(traffic(deployment, 20))
        killed = min(workers)
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: len(children(supervisor.pid)) == 2 and killed not in children(supervisor.pid),
            "another worker in its place",
        )
        workers = children(supervisor.pid)
        deployment.produce(traffic(deployment, 20, seed=1))
        deployment.wait_until_counted()
    finally:
        supervisor.send_signal(signal.SIGTERM)
        exit_code = supervisor.wait(40)
    assert exit_code == 0
    assert living(workers) == set()
    assert deployment.store.registry.deaths() == 1
    assert deployment.verify().verified


def test_workers_whose_supervisor_is_killed_count_no_further(deployment: Deployment) -> None:
    supervisor = deployment.start_worker("--workers", "2")
    try:
        wait_until(lambda: len(owners(deployment) - {""}) == 2, "two workers count")
        workers = children(supervisor.pid)
        deployment.produce(traffic(deployment, 20))
        deployment.wait_until_counted()
    finally:
        supervisor.kill()
        supervisor.wait()
    wait_until(lambda: not living(workers), "the workers have ended, too")
    counted = deployment.state()
    deployment.produce(traffic(deployment, 20, seed=1))
    assert deployment.state() == counted
    with deployment.worker():
        deployment.wait_until_counted()
    assert deployment.verify().verified


def test_supervised_workers_commit_what_they_have_counted_when_they_are_stopped(
    deployment: Deployment,
) -> None:
    deployment.settings.aggregate.commit_interval = "1h"
    bad: list[tuple[int, bytes]] = [(n, b"\xff") for n in range(deployment.partitions)]
    deployment.produce([*traffic(deployment, 20), *bad])
    for seconds in (1, 5, 20):  # nothing tells from outside what was counted, and not committed
        supervisor = deployment.start_worker("--workers", "2")
        try:
            wait_until(lambda: len(owners(deployment) - {""}) == 2, "two workers count")
            workers = children(supervisor.pid)
            threading.Event().wait(seconds)
        finally:
            supervisor.send_signal(signal.SIGTERM)
            exit_code = supervisor.wait(40)
        assert exit_code == 0
        assert living(workers) == set()
        counted = {n: int(deployment.store.owner(n)["next"]) for n in range(deployment.partitions)}
        if counted == deployment.log_ends():
            break
    assert counted == deployment.log_ends()
    assert deployment.counts()["malformed:"] == deployment.partitions
    assert deployment.verify().verified


@contextlib.contextmanager
def producing(
    deployment: Deployment, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run `dither produce`; its messages are in the file."""
    errors = deployment.metrics_file.with_name("produce.log")
    command = [sys.executable, "-m", "aggregator", "produce", *arguments, *deployment.flags]
    with errors.open("wb") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file)
    try:
        yield process, errors
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_production_that_is_interrupted_tells_what_was_delivered(deployment: Deployment) -> None:
    command = ("delay", "--simulate", "uniform", "--devices=100000", "--seconds=600", "--json")
    with producing(deployment, *command) as (process, errors):
        wait_until(lambda: any(deployment.log_ends().values()), "something is delivered")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    told = errors.read_text()
    assert "Traceback" not in told
    assert process.returncode == 0, told
    found = json.loads(output)
    assert 0 < found["reports"] < 100_000
    assert -60 < found["truth"] < 180
    assert "`dither deadletters list` shows those that they refuse" in told
    with deployment.worker():
        deployment.wait_until_counted()
    assert accepted(deployment, "delay") == found["reports"]


def test_devices_that_wait_for_a_round_say_so(kafka: Kafka, redis_url: str, tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(SEARCH)
    deployment = Deployment(kafka, redis_url, file)
    with producing(deployment, "longest", "--simulate", "uniform") as (process, errors):
        wait_until(lambda: "waiting for a round" in errors.read_text(), "it is told")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, errors.read_text()
    assert output.startswith(b"0 reports of longest")
    assert "refused" not in errors.read_text(), "nothing was delivered"


QUESTIONS = """
[metrics.words]
kind = "frequency"
categories = "open"
watch = ["sun"]
levels = [4]

[metrics.place]
kind = "vector_mean"
mechanism = "hemisphere"
dimension = 2
radius = 5
levels = [4]
"""


def test_strings_and_vectors_go_from_a_table_to_the_proof(
    kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    file, table = tmp_path / "metrics.toml", tmp_path / "table.csv"
    file.write_text(QUESTIONS)
    rows = ["word,east,north", *["sun,3,-4"] * 300, *["rain,1,NA"] * 700]
    table.write_text("\n".join(rows) + "\n")
    deployment = Deployment(kafka, redis_url, file)
    words = as_json(
        deployment.dither("produce", "words", "--csv", str(table), "--column", "word", "--json")
    )
    assert words["truth"] == {"sun": 0.3}
    columns = ("--column", "east", "--column", "north")
    place = as_json(deployment.dither("produce", "place", "--csv", str(table), *columns, "--json"))
    assert (place["reports"], place["missing"]) == (300, 700)
    assert place["truth"] == {"0": 3.0, "1": -4.0}
    with deployment.worker():
        deployment.wait_until_counted()
    asked = deployment.dither("estimate", "words", "--category", "rain", "--beta=1e-6", "--json")
    rain = as_json(asked)
    assert rain["categories"] == ["rain"]
    assert rain["lower"][0] <= 0.7 <= rain["upper"][0]
    found = as_json(deployment.dither("estimate", "place", "--beta=1e-6", "--json"))
    assert found["lower"][0] <= 3 <= found["upper"][0]
    assert found["radius"] < 5
    assert deployment.dither("verify").returncode == 0


def test_production_tells_how_it_read_the_file_and_what_it_clipped(
    deployment: Deployment, tmp_path: Path
) -> None:
    table = tmp_path / "delays.csv"
    rows = ["31.01.2026 09:00;5", "31.01.2026 10:00;-61", "01.02.2026 10:00;900"]
    table.write_text("\n".join(["Hour;DELAY", *rows]) + "\n")
    arguments = ("delay", "--csv", str(table), "--time-column", "Hour")
    zone = ("--time-zone", "Europe/Berlin")
    done = deployment.dither("produce", *arguments, *zone)
    assert done.returncode == 0, done.stderr
    assert "0 had no value, 2 were clipped to [-60, 180]" in done.stdout
    assert done.stderr.splitlines()[:3] == [
        "file: UTF-8, separated by semicolons",
        "column: 'DELAY' for 'delay'",
        "times: %d.%m.%Y %H:%M; times without a zone are in Europe/Berlin",
    ]
    assert as_json(deployment.dither("produce", *arguments, "--json"))["clipped"] == 2
    unknown = deployment.dither("produce", "age", "--csv", str(table))
    assert unknown.returncode == 1
    assert "no column 'age'" in unknown.stderr
    assert "name the column with the values: --column NAME" in unknown.stderr


def test_rows_that_are_too_old_are_announced_refused_and_counted_once_they_are_allowed(
    deployment: Deployment, tmp_path: Path
) -> None:
    table = tmp_path / "delays.csv"
    hours = ["2013-01-01T00:00:00Z,5"] * 30
    table.write_text("\n".join(["hour,delay", *hours]) + "\n")
    deployment.settings.aggregate.past = "400d"
    arguments = ("delay", "--csv", str(table), "--time-column", "hour", "--json")
    told = deployment.dither("produce", *arguments).stderr
    assert "30 of 30 rows are older than aggregate.past = 400d" in told
    with deployment.worker():
        deployment.wait_until_counted()
    assert deployment.counts() == {"too_old:delay": 30}
    found = re.search(r"`dither aggregate --set (aggregate\.past)=(\d+d)`", told)
    assert found is not None
    deployment.settings.aggregate.past = found[2]
    assert deployment.dither("produce", *arguments).stderr.count("older than") == 0
    replayed = as_json(deployment.dither("deadletters", "replay", "--json"))
    assert replayed["sent"] == 1
    with deployment.worker():
        deployment.wait_until_counted()
    assert accepted(deployment, "delay") == 60
