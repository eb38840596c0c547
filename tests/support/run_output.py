"""What a run of the tests prints: its progress, the first failure, and one line at the end."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT

#: The marker expressions of the tiers, as the Makefile gives them.
TIERS = {
    "not slow and not more": ("make test", "`make test-more` runs the rest"),
    "more and not slow": ("make test-more", "`make slow` runs those that take minutes"),
}

#: Seconds between two lines of progress where output is not a terminal.
LINE_SECONDS = 10.0

#: Lines of the first failure that are shown: they fit a terminal without scrolling.
MAX_FAILURE_LINES = 18

SLOWEST = 10

#: Where pytest's cache keeps how long each file took when it ran last.
SECONDS = "dither/seconds"


class RunOutput:
    """Replaces pytest's dots and tracebacks in the process that reports.

    Parameters
    ----------
    config : pytest.Config
    ran_against : mapping
        What the tests ran against, by component; filled while they run.
    """

    def __init__(self, config: pytest.Config, ran_against: Mapping[str, str]) -> None:
        self._ran_against = ran_against
        self._tier, self._rest = TIERS.get(config.option.markexpr, ("pytest", ""))
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self._is_whole = whole and not config.option.keyword and self._tier != "pytest"
        self._is_checked = self._is_whole and os.environ.get("DITHER_REQUIRE_REAL", "0") != "0"
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._began = time.monotonic()
        self._reference = reference_seconds() if self._is_checked else 0.0
        self._total = self._done = 0
        self._shown = self._began
        self._outcomes: Counter[str] = Counter()
        self._first: pytest.TestReport | pytest.CollectReport | None = None
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._took = self._budget = 0.0

    # -- While tests run ----------------------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Learn how many tests there are, in a run of one process."""
        self._total = self._total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Learn how many tests there are, in a run of several processes."""
        self._total = len(ids)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count a report as pytest does, without its letter."""
        if report.passed:
            return ("passed" if report.when == "call" else ""), "", ""
        if report.failed:
            return ("failed" if report.when == "call" else "error"), "", "FAILED"
        return "skipped", "", ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Show what cannot be collected."""
        if report.failed:
            self._note_failure(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report, and show the first failure as soon as it is known."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._outcomes["failed"] += 1
            self._note_failure(report)
        elif report.skipped:
            self._outcomes["skipped"] += 1
        if report.when == "teardown":
            self._done += 1
            self._show_progress()

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
        if 20 * self._done >= self._total:  # the first ones tell too little
            left = passed / self._done * (self._total - self._done)
            line += f", about {minutes(left)} left"
        if is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._terminal.rewrite(line[:width], erase=True)
        else:
            self._write_line(line)

    def _write_line(self, line: str) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(line)
        self._terminal.flush()

    # -- At the end ---------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep how long files took; fail a run that took more processor time than allowed."""
        if (cache := getattr(session.config, "cache", None)) is not None:
            cache.set(SECONDS, {**cache.get(SECONDS, {}), **files(self._seconds)})
        self._took = processor_seconds()
        if self._is_checked:
            reference = (self._reference + reference_seconds()) / 2
            limits = tomllib.loads((ROOT / "pyproject.toml").read_text())
            multiple = limits["tool"]["dither"]["processor-time"][self._tier.removeprefix("make ")]
            self._budget = multiple * reference
            if self._took > self._budget and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what is missing, what was slow, and what failed first."""
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
        if self._took > self._budget > 0:
            write(
                f"FAILED: {self._took:.0f} s of processor time, of {self._budget:.0f} that "
                f"pyproject.toml allows {self._tier} on this machine: make its tests cheaper, or "
                "mark some `more` or `slow` (CONTRIBUTING.md)"
            )

    def pytest_unconfigure(self) -> None:
        """Say in the last line what ran on what, how long it took, and how to run the rest."""
        components = ", ".join(self._ran_against.values()) or "no server"
        more = f"; {self._rest}" if self._is_whole else ""
        elapsed = minutes(time.monotonic() - self._began)
        self._write_line(
            f"{self._tier}: {self._done:,} tests, {self._outcomes['failed']} failed, in {elapsed} "
            f"({minutes(self._took)} of processor time) on {components}{more}"
        )


def failure_lines(report: pytest.TestReport | pytest.CollectReport) -> list[str]:
    """Return a failure in a few lines: which test, where, what, and how to run it again."""
    text = report.longreprtext.rstrip().splitlines()
    errors = [line for line in text if line.startswith("E ")]
    location = [line for line in text if re.match(r"\S+:\d+: ", line)][-1:]
    shown = errors or text[-MAX_FAILURE_LINES:]
    if len(shown) > MAX_FAILURE_LINES:
        shown = [*shown[: MAX_FAILURE_LINES - 1], f"E  ... ({len(shown)} lines)"]
    again = f"again: .venv/bin/python -m pytest -m '' -n 0 '{report.nodeid}'"
    return [f"FAILED {report.nodeid}", *shown, *location, again]


def missing_components(skipped: Any) -> Counter[str]:
    """Return how many tests were skipped for want of each component."""
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
    """Return the seconds of files, from those of tests."""
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
    """Return the processor time of this process and of all that it started and that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def reference_seconds() -> float:
    """Return the processor time of a fixed job, the least of three: how fast this machine is."""
    return min(_reference_job() for _ in range(3))


def _reference_job() -> float:
    """Work as the tests do: half of it in Python's interpreter, half in numpy."""
    began = time.process_time()
    words: dict[str, int] = {}
    for number in range(250_000):
        word = f"{number * 7919 % 10_007:x}"
        words[word] = words.get(word, 0) + len(word)
    values = np.arange(1, 200_001, dtype=np.float64)
    for _ in range(15):
        values = np.sort(np.sqrt(values * 7919 % 10_007) + 1)
    assert len(words) == 10_007, values
    return time.process_time() - began


if __name__ == "__main__":
    sys.stdout.write(f"{reference_seconds():.3f} s\n")
