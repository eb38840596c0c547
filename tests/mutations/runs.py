"""Runs the tests on a mutated copy of the repository, to the first failure."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
PACKAGES = ("estimators", "producers", "aggregator", "reproduction")  # each imports those before
SHARED = (".venv", "deploy/kafka/jars")
"""What a copy takes from the repository as it is."""
MINUTES = 25
"""After so long a run has found a mutation that does not end."""

QUICK, MORE = "not slow and not more", "more and not slow"
"""The tests of `make test`, and those of `make test-more`."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a mutation.

    Attributes
    ----------
    mutation : Mutation
    found_by : str
        The test that failed first; empty if none did.
    tier : str
        `test`, `test-more`, or empty if no test failed.
    seconds : float
    """

    mutation: Mutation
    found_by: str
    tier: str
    seconds: float


class Copy:
    """A copy of the repository in which one mutation at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        names = _output(["git", "ls-files", "--cached", "--others", "--exclude-standard"], ROOT)
        for name in names.splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        for name in SHARED:
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(ROOT / name)

    def first_failure(self, tests: Sequence[str], tier: str, processes: int = 0) -> str:
        """Run tests to the first failure; return its name, or an empty string.

        Parameters
        ----------
        tests : sequence of str
            Files, in the order in which they run.
        tier : str
            Of which tests, as a marker expression.
        processes : int
            0: in one.
        """
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["--tb=no", "--timeout=120", "-n", str(processes), "-m", tier, *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.root), "OPENBLAS_NUM_THREADS": "1"}
        try:
            run = subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60 * MINUTES,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no test: they did not end within {MINUTES} minutes"
        if run.returncode in {0, 5}:  # 5: nothing was collected
            return ""
        if run.returncode < 0:
            return f"no test: pytest was ended by signal {-run.returncode}"
        failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED ")]
        if not failed:
            raise RuntimeError(f"pytest ended with {run.returncode}: {run.stdout}{run.stderr}")
        return failed[0].split(" ", 1)[1]

    def try_mutation(
        self,
        mutation: Mutation,
        order: Callable[[Iterable[str]], list[str]],
        tests: Sequence[str] | None = None,
    ) -> Outcome:
        """Return what becomes of a mutation: first the tests near it, then all others.

        Parameters
        ----------
        mutation : Mutation
        order : callable
            Puts files of tests in the order in which they run.
        tests : sequence of str, optional
            Files or folders: no others run.
        """
        mutation.apply(self.root)
        began = time.monotonic()
        near = order(tests_near(mutation.path))
        rest = order(set(test_files()) - set(near))
        runs = [(near, QUICK, "test"), (rest, QUICK, "test"), (near + rest, MORE, "test-more")]
        if tests is not None:
            runs = [(list(tests), QUICK, "test"), (list(tests), MORE, "test-more")]
        try:
            for files, tier, name in runs:
                if files and (found_by := self.first_failure(files, tier)):
                    return Outcome(mutation, found_by, name, time.monotonic() - began)
        finally:
            shutil.copy2(ROOT / mutation.path, self.root / mutation.path)
        return Outcome(mutation, "", "", time.monotonic() - began)


def test_files() -> list[str]:
    """Return all files with tests, and the packages with examples that run."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    return [*files, *PACKAGES]


def tests_near(path: str) -> set[str]:
    """Return the tests of a file's package and those that import the file, however indirectly.

    Those are the unit tests of its folder, and each file of tests that imports the module, or
    imports what imports it. Tests of the dashboard and of browsers are near JavaScript.
    """
    if not path.endswith(".py"):
        return {name for name in test_files() if name.startswith("tests/services/browser/")}
    importers = _importers()
    module, reached = _module(path), set[str]()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting += importers.get(current, ())
    package = path.split("/")[0]
    folder = f"tests/unit/{Path(path).parent}/"
    near = {
        name
        for name in test_files()
        if name.startswith(("tests/unit/", "tests/statistics/")) and _module(name) in reached
    }
    return near | {name for name in test_files() if name.startswith(folder)} | {package}


def fastest_first(seconds: Mapping[str, float]) -> Callable[[Iterable[str]], list[str]]:
    """Return what puts files in order, by their seconds in an earlier run; unknown ones last."""
    return lambda names: sorted(names, key=lambda name: (seconds.get(name, 1e9), name))


@functools.cache
def _importers() -> Mapping[str, Collection[str]]:
    """Return which modules import a module, by its name."""
    importers: dict[str, set[str]] = {}
    for folder in (*PACKAGES, "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            module = _module(str(path.relative_to(ROOT)))
            for node in ast.walk(ast.parse(path.read_text())):
                for name in _imported(node):
                    importers.setdefault(name, set()).add(module)
    return importers


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _output(command: Sequence[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
