"""The commands as processes, also as a person at a terminal has them."""

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aggregator.cli import report_outcomes
from aggregator.cli.main import cli
from aggregator.storage.parsing import LAST_COMMIT_MS
from aggregator.storage.redis_keys import tag
from estimators.rounding import common_decimals, interval, nearest
from tests.support.events import ages
from tests.support.reports.messages import EPOCH
from tests.support.reports.metrics import METRICS
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, as_json, wait_until
from tests.support.running.processes import children, living


@pytest.fixture(scope="module")
def counted(lasting: Callable[[str], Deployment]) -> Deployment:
    deployment = lasting(METRICS)
    deployment.count(traffic(deployment, 40))
    return deployment


def accepted(deployment: Deployment, name: str) -> int:
    return deployment.counts()[f"accepted:{name}"]


def test_estimate_prints_text_and_json_of_a_window_or_of_categories(counted: Deployment) -> None:
    command = ("estimate", "delay", "--json")
    found = as_json(counted.dither(*command))
    assert (found["metric"], found["status"]) == ("delay", "provisional")
    assert found["reports"] == accepted(counted, "delay")
    told = counted.dither("estimate", "delay").stdout
    value, lower, upper = interval([found[key] for key in ("value", "lower", "upper")])
    assert f"{value} minutes in [{lower}, {upper}]" in told
    begin, end = str(EPOCH / 1000), str(EPOCH / 1000 + 3 * 3600)
    parts = [
        as_json(counted.dither(*command, "--from", since, "--to", until))["reports"]
        for since, until in ((begin, end), ("2013-01-01T03:00", "2013-02-01"))
    ]
    assert all(parts)
    assert sum(parts) == found["reports"]
    command = ("estimate", "carrier", "--json")
    whole = as_json(counted.dither(*command, "--simplex"))
    assert whole["categories"] == ["AA", "B6", "DL", "EV", "UA"]
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
    for options, why in (
        (("--category=UA", "--simplex"), "all categories of a frequency"),
        (("--category=UB",), "category 'UB' of 'carrier': did you mean"),
    ):
        refused = counted.dither(*command, *options)
        assert (refused.returncode, why in refused.stderr) == (2, True)


def test_an_estimate_tells_what_waits_or_is_halted_and_uncounted(counted: Deployment) -> None:
    command, as_rows = ("estimate", "delay"), ("estimate", "delay", "--json")
    assert "waiting" not in counted.dither(*as_rows).stderr + counted.dither(*command).stdout
    before = counted.log_ends()
    counted.produce(traffic(counted, 7, seed=9))
    waiting = sum(counted.log_ends().values()) - sum(before.values())
    said = f"waiting    {waiting} messages in Kafka are not counted yet"
    # a command waits three seconds for Kafka's answer
    wait_until(lambda: said in counted.dither(*command).stdout, "it tells how many")
    wait_until(lambda: said in counted.dither(*as_rows).stderr, "beside JSON, too")
    client: Any = counted.store.client
    for ago_ms, told_times in ((0, 0), (3_600_000, 1)):
        for number in counted.store.partitions():
            client.pexpire(f"{tag(counted.topic, number)}:committed", LAST_COMMIT_MS - ago_ms)
        told = counted.dither(*command).stdout
        assert told.count("no worker has counted since 20") == told_times
    for asked in (command, ("metrics",)):
        assert "halted" not in counted.dither(*asked).stdout
        client.hset(f"{tag(counted.topic, 2)}:owner", "halted", "offset 7 cannot be counted")
        said = f"warning    partition 2 is halted, and only up to offset {before[2]} is counted: "
        assert f"{said}offset 7 cannot be counted" in counted.dither(*asked).stdout
        assert f"{said}offset 7 cannot be counted" in counted.dither(*asked, "--json").stderr
        client.hset(f"{tag(counted.topic, 2)}:owner", "halted", "")


@pytest.mark.more
def test_columns_of_a_file_become_a_two_way_table(
    lasting: Callable[[str], Deployment], tmp_path: Path
) -> None:
    """By the commands alone: define, produce, estimate; devices report what the rows say."""
    table = tmp_path / "crashes.csv"
    rows = {"yes,No": 100, "no,No": 700, "yes,Yes": 150, "no,Yes": 50, "NA,Yes": 9, "no,NA": 3}
    lines = [row for row, count in rows.items() for _ in range(count)]
    table.write_text("\n".join(["Used X,crashed", *lines]))
    columns = ("--column", "used x", "--column", "crashed")
    options = ("--level", "16", "--name", "crash")
    defined = CliRunner().invoke(cli, ["define", str(table), *columns, *options])
    assert 'shares = ["crashed=Yes / used_x"] adds a share' in defined.stderr
    deployment = lasting(f'{defined.stdout}shares = ["crashed=Yes / used_x"]\n')
    told = deployment.dither("produce", "crash", "--csv", str(table))
    assert "no column 'used_x': did you mean 'Used X'" in told.stderr
    assert "name a column for each axis, in order: --column NAME --column NAME" in told.stderr
    assert "| dither produce crash --csv - ..." in told.stderr
    (command,) = re.findall("second terminal: dither (.*)", defined.stderr)
    told = deployment.dither(*shlex.split(command))
    assert told.stdout.endswith(
        "truth: used_x=no, crashed=No 0.7000, used_x=yes, crashed=Yes 0.1500, used_x=yes, "
        "crashed=No 0.1000, used_x=no, crashed=Yes 0.0500\n"
        "truth of shares: crashed=Yes / used_x=no 0.0667, crashed=Yes / used_x=yes 0.6000\n"
    )
    assert "of 1,012 rows 12 had no value" in told.stdout
    deployment.count()
    shown = as_json(deployment.dither("estimate", "crash", "--json"))
    assert shown["value"] == pytest.approx([0.7, 0.05, 0.1, 0.15], abs=1e-3)


@pytest.mark.more
def test_workers_are_started_again_by_a_supervisor_and_end_with_it(deployment: Deployment) -> None:
    supervisor = deployment.start_worker("--workers", "2")
    try:
        wait_until(lambda: len({*deployment.owners("worker")} - {""}) == 2, "two workers count")
        pid = supervisor.pid or 0
        killed = min(children(pid))
        deployment.produce(traffic(deployment, 20))
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: len(children(pid)) == 2 and killed not in children(pid),
            "another worker in its place",
        )
        workers = children(pid)
        deployment.produce(traffic(deployment, 20, seed=1))
        deployment.wait_until_counted()
    finally:
        supervisor.kill()
        supervisor.join()
    wait_until(lambda: not living(workers), "the workers have ended, too")
    assert deployment.store.registry.worker_deaths() == 1
    assert deployment.verify().verified


@pytest.mark.more
def test_too_old_rows_are_refused_until_allowed(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`produce` waits until all is counted: 10 seconds, by default, for the first report."""
    for patience in ("FIRST_SECONDS", "QUIET_SECONDS"):
        monkeypatch.setattr(report_outcomes, patience, PATIENCE)
    table = tmp_path / "delays.csv"
    hours = [f"2013-01-01T00:00:00Z,5,{land}" for land in ("DE", "DE", "Iceland")] * 10
    table.write_text("\n".join(["hour,delay,land", *hours]) + "\n")
    deployment.settings.aggregate.past = "400d"
    columns = ("--time-column", "hour", "--attribute", "country=land")
    arguments = ("delay", "--csv", str(table), *columns, "--json")

    def produce() -> Result:
        return CliRunner().invoke(cli, ["produce", *arguments, *deployment.flags])

    with deployment.worker():
        told = produce().stderr
    assert "30 of 30 rows are older than aggregate.past = 400d" in told
    assert "attribute: 'country'; 10 of 30 values are not declared" in told
    assert deployment.counts() == {"too_old:delay": 30}
    found = re.search(r"`dither aggregate --set (aggregate\.past)=(\d+d)`", told)
    assert found is not None
    deployment.settings.aggregate.past = found[2]
    with deployment.worker():
        assert "older than" not in produce().stderr
        assert as_json(deployment.dither("deadletters", "replay", "--json"))["sent"] == 2
        deployment.wait_until_counted()
    assert accepted(deployment, "delay") == 60
    found = as_json(deployment.dither("estimate", "delay", "--by", "country", "--json"))["slices"]
    assert [(one["slice"]["country"], one["reports"]) for one in found if one["reports"]] == [
        ("DE", 40),
        ({"other": True}, 20),
    ]
    days = [f"2013-02-{1 + i // 24:02}T{i % 24:02}:00:00Z,5,DE" for i in range(300)]
    table.write_text("\n".join(["hour,delay,land", *days]) + "\n")
    monkeypatch.setattr(report_outcomes, "FIRST_SECONDS", 1.0)
    assert "300 not counted by any worker yet" in produce().stderr
    monkeypatch.setattr(report_outcomes, "FIRST_SECONDS", PATIENCE)
    deployment.count()
    table.write_text("\n".join(["hour,delay,land", "2013-01-01,,DE", *hours, days[-1]]) + "\n")
    with deployment.worker():
        late = produce()
    assert "30 of 31 rows, the last one of 2013-01-01T00:00:00Z, are in panes" in late.stderr
    assert late.exit_code == 1


DITHER = [sys.executable, "-m", "aggregator"]


@contextlib.contextmanager
def watching(
    deployment: Deployment, output: Path | int, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `dither watch` with its output in a file or a terminal."""
    command = [*DITHER, "watch", *arguments, "--interval=100ms", *deployment.flags]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with contextlib.ExitStack() as stack:
        out = output if isinstance(output, int) else stack.enter_context(output.open("wb"))
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environ)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def interrupt(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(90)


@pytest.mark.more
def test_each_change_is_a_line_or_drawn_in_place(deployment: Deployment, tmp_path: Path) -> None:
    screen, terminal = pty.openpty()
    files, drawn = (tmp_path / "json", tmp_path / "text"), b""

    def answers() -> list[dict[str, float]]:
        told = files[0].read_text().splitlines()
        return [json.loads(line) for line in told if line.startswith("{") and line.endswith("}")]

    try:
        with (
            watching(deployment, files[0], "age", "--json") as as_json,
            watching(deployment, files[1], "age", "--window", "10m") as as_text,
            watching(deployment, terminal, "age") as in_place,
        ):
            deployment.count(ages(deployment, range(2)))
            wait_until(lambda: [one["reports"] for one in answers()][-1:] == [240], "a first line")
            wait_until(lambda: "120 reports" in files[1].read_text(), "a line of the last pane")
            while b"240 reports" not in drawn or "●".encode() not in drawn:
                drawn += os.read(screen, 65536)
            owner = f"{tag(deployment.topic, 2)}:owner"
            deployment.store.client.hset(owner, "halted", "for a reason")
            wait_until(lambda: "partition 2 is halted" in files[1].read_text(), "it is named")
            deployment.store.client.hset(f"{tag(deployment.topic, 3)}:owner", "halted", "another")
            wait_until(lambda: "partition 3 is halted" in files[1].read_text(), "so is the next")
            assert interrupt(in_place) == 0
            while b"\x1b[?25h" not in drawn:  # the cursor is shown again
                drawn += os.read(screen, 65536)
            assert [interrupt(one) for one in (as_json, as_text)] == [0, 0]
    finally:
        os.close(screen)
        os.close(terminal)
    shown = json.loads(deployment.dither("estimate", "age", "--json").stdout)
    for key in ("metric", "reports", "value", "lower", "upper"):
        assert answers()[-1][key] == shown[key]
    text = files[1].read_text()
    assert " in [" in text
    assert "\x1b" not in text
    assert text.count("for a reason") == 1
    assert b"epsilon" in drawn
    assert b"Traceback" not in drawn
