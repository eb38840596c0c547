"""The package without its extras: what a device needs works, the rest says what to install."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from aggregator.cli.main import COMMANDS
from aggregator.extras import EXTRAS, NEEDS
from tests.support import base_install
from tests.support.base_install import link_base_requirements, run_as_device

WITHOUT = {
    "audit",
    "completion",
    "define",
    "kafka",
    "ledger",
    "produce",
    "roles",
    "tokens",
    "topics",
}
"""Commands that need no extra."""
ARGUMENTS = {
    "compare": ["m"],
    "discover": ["m"],
    "estimate": ["m"],
    "series": ["m"],
    "watch": ["m"],
    "weights": ["m"],
    "deadletters": ["list"],
}
DEVICE = """
import numpy as np
import producers
from estimators import define
from producers import Ledger, Reporter
from tests.support.reports.cases import CASES, metric_for, values_for

for name in producers.__all__:
    try:
        getattr(producers, name)
    except ModuleNotFoundError as error:
        assert "dither[otel]" in str(error), error
from producers import AsyncHttpReporter, AsyncReporter, HttpReporter, RollUp, Rounds
for case in CASES:
    metric = metric_for(case)
    metric.randomize(values_for(metric, 9), np.zeros(9, dtype=int))
metric = define(name="m", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
statistic, level = metric.zero(), np.zeros(9, dtype=int)
metric.accumulate(statistic, level, metric.randomize(np.ones(9), level))
try:
    metric.estimate(statistic)
except ModuleNotFoundError as error:
    print(error)
try:
    from aggregator import Reader
except ModuleNotFoundError as error:
    print(error)

here = {"test.mock.num.brokers": 1}
ledger = Ledger("ledger", budget=4.0, period="1d")
metric = define(name="m", kind="frequency", mechanism="rappor", categories=9, levels=[1])
with Reporter(metric, here) as reporter:
    reporter.report([1, 2], epsilon=1, ledger=ledger)
    reporter.flush()
    print(reporter.delivered.reports)
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("device")
    link_base_requirements(folder)
    return folder


def extras() -> dict[str, list[Requirement]]:
    found = base_install.project()["optional-dependencies"]
    assert isinstance(found, dict)
    return {
        extra: [Requirement(each) for each in requirements] for extra, requirements in found.items()
    }


def test_each_module_of_an_extra_is_known_by_its_extra() -> None:
    brought = {
        module: extra
        for extra, requirements in extras().items()
        for requirement in requirements
        if requirement.name != "dither"
        for module in base_install.modules(requirement.name)
    }
    assert {m: e for m, e in brought.items() if m in EXTRAS} == EXTRAS
    assert set(extras()) == set(EXTRAS.values())
    assert all(Requirement("dither[server]") in extras()[extra] for extra in NEEDS.values())


def test_a_device_reports_with_the_base_alone(device: Path) -> None:
    done = run_as_device(device, DEVICE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "an estimate needs scipy, which is not installed: pip install 'dither[server]'",
        "Reader needs structlog, which is not installed: pip install 'dither[server]'",
        "2",
    ]


COMMAND = """
import contextlib, io, json, sys
from aggregator.cli.main import main
told = {}
for command, arguments in json.loads(sys.argv[1]).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main([command, *arguments])
        except SystemExit as end:
            told[command] = [end.code, said.getvalue()]
print(json.dumps(told))
"""


def test_a_command_that_lacks_an_extra_says_in_one_line_what_to_install(device: Path) -> None:
    (device / "metrics.toml").write_text(
        '[metrics.m]\nkind = "mean"\nmechanism = "laplace"\nrange = [0, 1]\nlevels = [1]\n'
    )
    given = {name: ["--help"] if name in WITHOUT else ARGUMENTS.get(name, []) for name in COMMANDS}
    done = run_as_device(device, COMMAND, json.dumps(given))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == set(COMMANDS)
    for command, (code, message) in told.items():
        if command in WITHOUT:
            assert code == 0, message
            continue
        needed = NEEDS.get(command, "server")
        assert message.startswith(f"Error: dither {command} needs "), message
        assert message.endswith(f", which is not installed: pip install 'dither[{needed}]'\n")
        assert message.count("\n") == 1
        assert code == 1
