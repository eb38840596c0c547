"""Mechanisms and kinds of metric that other distributions bring, and what importing brings."""

import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import estimators
from estimators import DefinitionError, define
from estimators.mechanisms import MECHANISMS, RandomizedResponse
from estimators.plugin_registry import PluginRegistry
from tests.support.paths import ROOT

GROUP = "dither.tested"


def installed(folder: Path, name: str, entries: str, group: str = GROUP) -> None:
    """Put a distribution into a folder, as pip would, with these entry points."""
    place = folder / f"{name}-1.5.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (place / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")


def registry() -> PluginRegistry[int]:
    """Return one with a single built-in entry, which takes whole numbers."""

    def accept(name: str, found: Any) -> int:
        if not isinstance(found, int):
            raise ValueError(f"a whole number for {name}")
        return found

    return PluginRegistry(GROUP, {"one": 1}, accept)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_entry_that_cannot_be_used_names_its_distribution_and_a_remedy(folder: Path) -> None:
    missing = "what can be imported, found "
    broken = {
        "gone": ("no_such_module:x", f"{missing}ModuleNotFoundError: No module"),
        "nothing": ("os:no_such_thing", f"{missing}AttributeError"),
        "word": ("os:name", "a whole number for word"),
    }
    entries = "\n".join(f"{name} = {place}" for name, (place, _) in broken.items())
    installed(folder, "broken-plug", entries)
    numbers = registry()
    for name, (_, told) in broken.items():
        with pytest.raises(DefinitionError, match=f"entry point '{name}' of group") as refused:
            _ = numbers[name]
        assert told in str(refused.value)
        assert "comes with broken-plug 1.5: change, update or uninstall" in str(refused.value)
    assert numbers["one"] == 1, "what is built in does not suffer"


def test_nobody_takes_a_built_in_name(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    installed(folder, "greedy", "one = os:X_OK\ntwo = os:W_OK")
    numbers = registry()
    assert list(numbers.items()) == [("one", 1), ("two", os.W_OK)]
    assert re.search(r"another name: Dither itself has this one.* greedy", caplog.text)


PLUGGED = """
import dataclasses
from estimators.mechanisms import Laplace
from estimators.metrics.domains import ValueRange
from estimators.metrics.kinds import Kind
from estimators.shapes import Shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grained(ValueRange):
    grain: int = dataclasses.field(metadata={"expected": "how coarse it is"})

    @property
    def meaning(self):
        return {**super().meaning, "grain": self.grain}


class Coarse(Laplace):
    name = "coarse"
    kinds = frozenset({"trimmed_mean"})


trimmed = Kind("trimmed_mean", Grained, Shape.NUMBER)
"""
USED = """
from estimators import DefinitionError, SeededBits, define
from estimators.metrics.loading import definition_of
from estimators.shapes import Shape

keys = {"kind": "trimmed_mean", "mechanism": "coarse", "range": (0, 8), "levels": [4]}
metric = define(name="m", grain=3, **keys)
assert metric.shape is Shape.NUMBER
assert '"grain":3' in metric.canonical
assert define(name="m", **definition_of(metric)) == metric
level = metric.level_of([4] * 1000)
statistic = metric.zero()
metric.accumulate(statistic, level, metric.randomize([2.0] * 1000, level, SeededBits(1)))
assert abs(metric.estimate(statistic).value - 2) < 0.5
wrong = {"grain": "x"}, {"grain": 1, "mechanism": "laplace"}, {"grain": 1, "mechanism": None}
for changes in (keys, *(keys | each for each in wrong)):
    try:
        define(name="m", **changes)
    except DefinitionError as error:
        print(error)
"""


def test_a_kind_from_outside_has_keys_and_a_mechanism_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "plugged.py").write_text(PLUGGED)
    installed(tmp_path, "plug", "trimmed_mean = plugged:trimmed", "dither.metrics")
    with (tmp_path / "plug-1.5.dist-info" / "entry_points.txt").open("a") as points:
        points.write("[dither.mechanisms]\ncoarse = plugged:Coarse\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", USED],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "m.grain is missing: expected how coarse it is",
        "m.grain = 'x': expected int, got str",
        "m.mechanism = 'laplace': expected a mechanism for kind 'trimmed_mean': coarse",
        "m.mechanism is missing: expected one of coarse",
    ]


class Leak(RandomizedResponse):
    """Flips half as often as its level demands."""

    name = "leak"

    def privacy_ratio(self, level: int) -> Fraction:
        return super().privacy_ratio(level) ** 2


def test_a_mechanism_from_outside_has_to_prove_its_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(MECHANISMS), "_loaders", {"leak": lambda: {"mean": Leak}})
    with pytest.raises(DefinitionError, match="one that proves epsilon = 1: see `privacy_ratio`"):
        define(name="m", kind="mean", mechanism="leak", range=(0, 1), levels=[1])


FOLDER = Path(estimators.__file__).parent


def test_importing_the_estimators_imports_nothing_slow() -> None:
    script = (
        "import sys, estimators\n"
        "slow = {'scipy', 'redis', 'confluent_kafka', 'starlette'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=FOLDER.parent, timeout=60)
