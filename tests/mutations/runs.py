"""Runs the tests on a mutated copy of the repository, to the first failure."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.mutations import reach
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
PACKAGES = ("estimators", "producers", "aggregator", "dither", "reproduction")
WEB = ("tests/services/browser/", "tests/unit/aggregator/web/")
SHARED = (".venv", "deploy/kafka/jars")
"""What a copy takes from the repository as it is."""
MINUTES = 40
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
            run = self._pytest(["-x", "--timeout=120", "-n", "0", "-m", tier, *tests])
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

    def _pytest(
        self, arguments: Sequence[str], more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(self.root), "OPENBLAS_NUM_THREADS": "1", **(more or {})}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments],
            cwd=self.root,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60 * MINUTES,
            check=False,
        )

    def reached(self, mutations: Sequence[Mutation]) -> list[list[str]]:
        """Return the files of tests that execute each mutation, after one run of all tests.

        Mutations of JavaScript are reached by the tests of browsers and of the web application.
        """
        places: dict[str, list[tuple[int, int, str]]] = {}
        for number, mutation in enumerate(mutations):
            if mutation.path.endswith(".py"):
                place = number, mutation.offset, mutation.before
                places.setdefault(mutation.path, []).append(place)
        everywhere = set[int]()
        for path, inside in places.items():
            everywhere |= reach.instrument(self.root / path, inside)
        folder = self.root / "reached"
        folder.mkdir()
        self._pytest(
            ["-n", "4", "--dist", "loadfile", "-m", "not slow"], {reach.FOLDER: str(folder)}
        )
        tests = []
        for number, files in enumerate(reach.reached(folder, len(mutations))):
            if not mutations[number].path.endswith(".py"):
                tests.append([name for name in test_files() if name.startswith(WEB)])
            elif files is None or number in everywhere:
                tests.append(test_files())
            else:
                tests.append(sorted(files))
        for path in places:
            shutil.copy2(ROOT / path, self.root / path)
        return tests

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
                if tests and (found_by := self.first_failure(tests, tier)):
                    return Outcome(mutation, found_by, name, time.monotonic() - began)
        finally:
            shutil.copy2(ROOT / mutation.path, self.root / mutation.path)
        return Outcome(mutation, "", "", time.monotonic() - began)


def test_files() -> list[str]:
    """Return all files with tests, and the packages with examples that run."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    return [*files, *PACKAGES]


def fastest_first(tests: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Return files by their seconds in an earlier run; unknown ones last."""
    return sorted(tests, key=lambda name: (seconds.get(name, 1e9), name))


def _output(command: Sequence[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
