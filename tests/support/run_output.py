"""The output of a test run: its progress, the first failure, and one line at the end."""

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import pytest

from tests.support.paths import ROOT

#: The marker expressions of the tiers, as pyproject.toml and the Makefile give them.
USUAL, MORE = "not slow and not more", "more and not slow"
TIERS = {
    USUAL: ("make test", "`make test-more` runs the rest"),
    MORE: ("make test-more", "`make slow` runs those that take minutes"),
}

#: Files with long tests, and the weight of such a test in the forecast of the remaining time.
LONG = tuple(f"tests/{name}/" for name in ("services", "models", "statistics", "unit/reproduction"))
LONG_TESTS = 6

#: Seconds between two lines of progress where output is not a terminal.
LINE_SECONDS = 10.0

#: The most lines of the first failure that are shown: they fit a terminal without scrolling.
MAX_FAILURE_LINES = 18

#: The reference job, which prints its processor time; it measures the speed of the machine.
REFERENCE_JOB = """
import time
import numpy, scipy.stats
words = {f"{number * 7919 % 10_007:x}" for number in range(250_000)}
assert len(words) == 10_007
print(time.process_time())
"""

#: Seconds between two timings of the reference job, which runs beside the tests.
REFERENCE_SECONDS = 40.0

SLOWEST = 10

#: The key in pytest's cache of the durations of the files in their last runs.
SECONDS = "dither/seconds"


class RunOutput:
    """Replaces pytest's dots and tracebacks in the process that reports.

    Parameters
    ----------
    config : pytest.Config
    ran_against : mapping
        The server behind each component that the tests used; filled while they run.
    """

    def __init__(self, config: pytest.Config, ran_against: Mapping[str, str]) -> None:
        self._ran_against = ran_against
        self._tier, self._rest = TIERS.get(config.option.markexpr, ("pytest", ""))
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self._is_whole = whole and not config.option.keyword and self._tier != "pytest"
        self._is_checked = self._is_whole and os.environ.get("DITHER_REQUIRE_REAL", "0") != "0"
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._began = time.monotonic()
        self._references: list[float] = []
        self._total = self._done = self._work = self._worked = 0
        self._shown = self._began
        self._outcomes: Counter[str] = Counter()
        self._first: pytest.TestReport | pytest.CollectReport | None = None
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._took = self._allowed = self._used = 0.0

    # -- While tests run ----------------------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Store the number of tests."""
        self._total = len(session.items)
        self._work = sum(work(item.nodeid) for item in session.items)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count a report as pytest does, without printing its letter."""
        if report.passed:
            return ("passed" if report.when == "call" else ""), "", ""
        if report.failed:
            return ("failed" if report.when == "call" else "error"), "", "FAILED"
        return "skipped", "", ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Show a file that cannot be collected."""
        if report.failed:
            self._note_failure(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report, and show the first failure at once."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._outcomes["failed"] += 1
            self._note_failure(report)
        elif report.skipped:
            self._outcomes["skipped"] += 1
        if report.when == "teardown":
            self._done += 1
            self._worked += work(report.nodeid)
            self._show_progress()
            self._time_reference()

    def _note_failure(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if self._first is None:
            self._first = report
            self._write_line("\n".join(failure_lines(report)))

    def _show_progress(self) -> None:
        now, is_terminal = time.monotonic(), self._terminal.isatty
        if now - self._shown < (0.2 if is_terminal else LINE_SECONDS) and self._done < self._total:
            return
        self._shown = now
        passed = now - self._began
        line = (
            f"{self._done:,} of {self._total:,} tests, {self._outcomes['failed']} failed, "
            f"{minutes(passed)} so far"
        )
        if 20 * self._worked >= self._work:  # before, a forecast has too few tests
            left = passed / self._worked * (self._work - self._worked)
            line += f", about {minutes(left)} left"
        if is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._terminal.rewrite(line[:width], erase=True)
        else:
            self._write_line(line)

    def _time_reference(self) -> None:
        """Time the reference job at intervals: other load on the cores slows it and the tests."""
        due = self._began + REFERENCE_SECONDS * len(self._references)
        if self._is_checked and time.monotonic() >= due:
            self._references.append(reference_seconds())

    def _write_line(self, line: str) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(line)
        self._terminal.flush()

    # -- At the end ---------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Store the files' durations; fail a run that used more processor time than allowed."""
        if (cache := getattr(session.config, "cache", None)) is not None:
            cache.set(SECONDS, {**cache.get(SECONDS, {}), **files(self._seconds)})
        self._took = processor_seconds()
        if self._is_checked:
            limits = tomllib.loads((ROOT / "pyproject.toml").read_text())
            self._allowed = limits["tool"]["dither"]["processor-time"][self._tier[len("make ") :]]
            self._used = self._took / statistics.median(self._references or [reference_seconds()])
            if self._used > self._allowed and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the missing components, the slowest tests, and the first failure."""
        write = terminalreporter.write_line
        terminalreporter.ensure_newline()
        for reason, count in missing_components(terminalreporter.stats.get("skipped", ())).items():
            write(f"{count} skipped: {reason}")
        if self._is_checked:
            for line in slowest(self._seconds):
                write(line)
        if self._first is not None and self._outcomes["failed"] > 1:
            for line in failure_lines(self._first):
                write(line)
        if self._is_checked:
            write(
                f"{self._used:,.0f} times the reference job of {self._took / self._used:.3f} s; "
                f"pyproject.toml allows {self._tier} {self._allowed:,}"
            )
        if self._used > self._allowed:
            write(
                "FAILED: too much processor time. Make tests cheaper, or mark some `more` or "
                "`slow` (CONTRIBUTING.md)"
            )

    def pytest_unconfigure(self) -> None:
        """Print the last line: what ran against what, how long it took, and how to run the rest."""
        components = ", ".join(self._ran_against.values()) or "no server"
        more = f"; {self._rest}" if self._is_whole else ""
        elapsed = minutes(time.monotonic() - self._began)
        self._write_line(
            f"{self._tier}: {self._done:,} tests, {self._outcomes['failed']} failed, in {elapsed} "
            f"({minutes(self._took)} of processor time) on {components}{more}"
        )


def work(test: str) -> int:
    """Return the weight of a test in the forecast of the remaining time."""
    return LONG_TESTS if test.startswith(LONG) else 1


def failure_lines(report: pytest.TestReport | pytest.CollectReport) -> list[str]:
    """Return a failure in a few lines: which test, where, what, and how to run it again."""
    text = report.longreprtext.rstrip().splitlines()
    errors = [line for line in text if line.startswith("E ")]
    location = [line for line in text if re.match(r"\S+:\d+: ", line)][-1:]
    shown = errors or text[-MAX_FAILURE_LINES:]
    if len(shown) > MAX_FAILURE_LINES:
        shown = [*shown[: MAX_FAILURE_LINES - 1], f"E  ... ({len(shown)} lines)"]
    again = f"again: .venv/bin/python -m pytest -m '' '{report.nodeid}'"
    return [f"FAILED {report.nodeid}", *shown, *location, again]


def missing_components(skipped: Any) -> Counter[str]:
    """Return how many tests were skipped because of each missing component."""
    reasons = (
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple)
    )
    return Counter(reason for reason in reasons if reason.startswith("needs "))


def slowest(seconds: Mapping[str, float]) -> Iterator[str]:
    """Yield lines with the slowest tests and files, by seconds."""
    for what, figures in (("tests", seconds), ("files", files(seconds))):
        yield f"slowest {what}, in seconds:"
        for name, spent in sorted(figures.items(), key=itemgetter(1), reverse=True)[:SLOWEST]:
            yield f"{spent:8.1f}  {name}"


def files(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the duration of each file in seconds, the sum over its tests."""
    summed: defaultdict[str, float] = defaultdict(float)
    for name, spent in seconds.items():
        summed[name.partition("::")[0]] += spent
    return summed


def minutes(seconds: float) -> str:
    """Return a time as minutes and seconds.

    Examples
    --------
    >>> minutes(221.4)
    '3:41'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


def processor_seconds() -> float:
    """Return the processor time of this process, and of its descendants that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def reference_seconds() -> float:
    """Return the processor time of the reference job: a start, imports and work, as in tests."""
    job = [sys.executable, "-c", REFERENCE_JOB]
    return float(subprocess.run(job, check=True, capture_output=True, text=True).stdout)
