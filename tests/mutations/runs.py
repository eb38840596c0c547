"""Runs the tests on a mutated copy of the repository, to the first failure."""

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutations.import_graph import ImportGraph
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
WEB = ("tests/services/browser/", "tests/unit/aggregator/web/")
SHARED = (".venv", "deploy/kafka/jars")
"""What a copy takes from the repository as it is."""
NEAREST = 16
"""How many files run first: collecting the others takes longer than these."""
TEST_SECONDS = 300
MINUTES = 40
"""After so long, a test or a run has found a mutation that does not end."""

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

    def first_failure(self, tests: Sequence[str], tier: str) -> str:
        """Run tests to the first failure; return its name, or an empty string.

        Parameters
        ----------
        tests : sequence of str
            Files, in the order in which they run.
        tier : str
            Of which tests, as a marker expression.
        """
        try:
            run = self._pytest(["-x", f"--timeout={TEST_SECONDS}", "-m", tier, *tests])
        except subprocess.TimeoutExpired:
            return f"no test: they did not end within {MINUTES} minutes"
        if run.returncode in {0, 5}:  # 5: nothing was collected
            return ""
        if run.returncode < 0:
            return f"no test: pytest was ended by signal {-run.returncode}"
        if "+ Timeout +" in run.stdout + run.stderr:
            return f"no test: one did not end within {TEST_SECONDS} seconds"
        failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED ")]
        if not failed:
            raise RuntimeError(f"pytest ended with {run.returncode}: {run.stdout}{run.stderr}")
        return failed[0].split(" ", 1)[1]

    def _pytest(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(self.root), "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments],
            cwd=self.root,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60 * MINUTES,
            check=False,
        )

    def try_mutation(self, mutation: Mutation, tests: Sequence[str]) -> Outcome:
        """Return what becomes of a mutation.

        Parameters
        ----------
        mutation : Mutation
        tests : sequence of str
            Files or folders, in the order in which they run.
        """
        mutation.apply(self.root)
        began = time.monotonic()
        try:
            for tier, name in ((QUICK, "test"), (MORE, "test-more")):
                for part in filter(None, (tests[:NEAREST], tests[NEAREST:])):
                    if found_by := self.first_failure(part, tier):
                        return Outcome(mutation, found_by, name, time.monotonic() - began)
        finally:
            shutil.copy2(ROOT / mutation.path, self.root / mutation.path)
        return Outcome(mutation, "", "", time.monotonic() - began)


def tests_by_distance(
    mutation: Mutation, graph: ImportGraph, seconds: Mapping[str, float]
) -> list[str]:
    """Return the files of tests that a mutation can reach, likely finders first.

    The tests of its package come first, then tests of others, then examples of others; of each,
    the nearest, then the fastest. Mutations of JavaScript reach the tests of browsers and of the
    web application.

    Parameters
    ----------
    mutation : Mutation
    graph : ImportGraph
    seconds : mapping
        How long files took in an earlier run; those that are missing come last.
    """
    if mutation.path.endswith(".py"):
        distances = graph.tests(mutation.path)
    else:
        files = (str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
        distances = {name: 0 for name in files if name.startswith(WEB)}
    packages = [f"tests/unit/{folder}" for folder in Path(mutation.path).parents]
    package = next(folder for folder in packages if (ROOT / folder).is_dir())

    def rank(name: str) -> tuple[bool, bool, int, float, str]:
        is_of_package = name == mutation.path or name.startswith(f"{package}/")
        is_example = not name.startswith("tests/")
        return not is_of_package, is_example, distances[name], seconds.get(name, 1e9), name

    return sorted(distances, key=rank)


def _output(command: Sequence[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
