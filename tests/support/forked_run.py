"""Runs tests in several processes, forked once everything has been imported and collected.

A process that began by itself would import and collect it all again, which takes six seconds.
"""

import contextlib
import itertools
import multiprocessing
import os
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from deploy.kafka.distribution import missing
from tests.support.running import fleet, servers

CONTEXT = multiprocessing.get_context("fork")

#: The server behind each component that the tests used.
RAN_AGAINST = pytest.StashKey[dict[str, str]]()

#: Gives each process of a run the shared Kafka, or the reason why it did not start. Topics have
#: unique names, so tests do not share any.
SHARED_KAFKA = pytest.StashKey["multiprocessing.SimpleQueue[servers.Kafka | str]"]()


class ForkedRun:
    """Runs the tests in several processes, each of which takes one test file after the other.

    Parameters
    ----------
    processes : int
    together : iterable of str
        Folders: one process takes all files of such a folder.
    """

    def __init__(self, processes: int, together: Iterable[str]) -> None:
        self._processes, self._together = processes, tuple(together)
        self._readers: dict[Connection, BaseProcess] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in place of pytest's own loop."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        is_shared = shares_kafka(session.items)
        if is_shared:
            session.config.stash[SHARED_KAFKA] = CONTEXT.SimpleQueue()
        if any(item.nodeid.startswith("tests/services/") for item in session.items):
            fleet.serve_all_forks()
        self._fork(session)
        with ExitStack() as stack:
            kafka = threading.Thread(target=self._share_kafka, args=(session.config, stack))
            if is_shared:
                kafka.start()
            try:
                self._receive_reports(session)
            finally:
                for reader in self._readers:
                    reader.close()  # a process that sends more ends
                for process in self._readers.values():
                    process.join()
                if is_shared:
                    kafka.join()
        return True

    def _fork(self, session: pytest.Session) -> None:
        files: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            name = item.nodeid.partition("::")[0]
            folder = next((each for each in self._together if name.startswith(each)), name)
            files.setdefault(folder, []).append(item)
        left: multiprocessing.SimpleQueue[str | None] = CONTEXT.SimpleQueue()
        config: Any = session.config
        folder = config._tmp_path_factory.getbasetemp()
        for number in range(self._processes):
            reader, writer = CONTEXT.Pipe(duplex=False)
            items = itertools.chain.from_iterable(map(files.__getitem__, iter(left.get, None)))
            given = (session, items, folder / f"process{number}", [*self._readers, reader], writer)
            process = CONTEXT.Process(target=run_items, args=given)
            process.start()
            writer.close()
            self._readers[reader] = process
        for name in files:
            left.put(name)
        for _ in range(self._processes):
            left.put(None)

    def _share_kafka(self, config: Any, stack: ExitStack) -> None:
        folder = config._tmp_path_factory.mktemp("kafka")
        try:
            kafka: servers.Kafka | str = servers.start_kafka(folder, stack)
        except Exception as error:
            kafka = str(error)
        for _ in range(self._processes):
            config.stash[SHARED_KAFKA].put(kafka)

    def _receive_reports(self, session: pytest.Session) -> None:
        """Report what the processes send, until all have ended or the run has to stop."""
        config, hook = session.config, session.config.hook
        unfinished = {item.nodeid: item for item in session.items}
        running: dict[Connection, str] = {}
        waiting = set(self._readers)
        while waiting:
            for reader in wait(waiting):
                assert isinstance(reader, Connection)
                try:
                    told = reader.recv()
                except EOFError:
                    waiting.remove(reader)
                    self._readers[reader].join()
                    if test := running.pop(reader, None):
                        code = self._readers[reader].exitcode
                        fail(unfinished.pop(test), f"its process ended with code {code}")
                    continue
                if isinstance(told, dict):
                    config.stash[RAN_AGAINST].update(told)
                elif isinstance(told, str):
                    running[reader] = told
                else:
                    del unfinished[running.pop(reader)]
                    for data in told:
                        report = hook.pytest_report_from_serializable(config=config, data=data)
                        hook.pytest_runtest_logreport(report=report)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        for item in unfinished.values():
            fail(item, "it was not run: the process that had its file has ended")


def fail(item: pytest.Item, reason: str) -> None:
    """Report the failure of a test whose process cannot report it."""
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "teardown")
    item.config.hook.pytest_runtest_logreport(report=report)


def shares_kafka(items: Iterable[pytest.Item]) -> bool:
    """Return whether these tests use an Apache Kafka that the run has to start."""
    if any(os.environ.get(name) for name in ("DITHER_TEST_BROKER", "DITHER_TEST_KAFKA")):
        return False
    return not missing() and any("kafka" in getattr(item, "fixturenames", ()) for item in items)


def run_items(
    session: pytest.Session,
    items: Iterable[pytest.Item],
    folder: Path,
    readers: Iterable[Connection],
    writer: Connection,
) -> None:
    """Run tests in this process, and send their reports.

    Parameters
    ----------
    session : pytest.Session
    items : iterable of pytest.Item
        The tests that this process takes; it may take the next one only when the last one begins.
    folder : Path
        The folder for temporary files.
    readers : iterable of Connection
        The reporting process's ends of the connections; open here, they would hide its end.
    writer : Connection
        The connection to the reporting process.
    """
    for reader in readers:
        reader.close()
    config: Any = session.config
    capture = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # its file is that of all processes
    with Path(os.devnull).open("wb") as nowhere:
        for descriptor in (1, 2):  # threads may log between tests
            os.dup2(nowhere.fileno(), descriptor)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder
    config.pluginmanager.register(Teller(writer))
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):  # the run has been stopped
        try:
            for item, following in itertools.pairwise(itertools.chain(items, [None])):
                assert item is not None
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            writer.send(config.stash[RAN_AGAINST])
        finally:
            session._setupstate.teardown_exact(None)


class Teller:
    """Sends the reports of the tests to the reporting process."""

    def __init__(self, writer: Connection) -> None:
        self._writer = writer

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test, and send its reports instead of reporting them here."""
        self._writer.send(item.nodeid)
        serialize = item.config.hook.pytest_report_to_serializable
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        self._writer.send([serialize(config=item.config, report=report) for report in reports])
        return True
