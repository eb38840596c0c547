"""Two processes never draw the same noise, and a fork never tears what is private.

Each test forks in a fresh interpreter: the test's own has threads of Kafka's client.
"""

import subprocess
import sys
from pathlib import Path

from producers.http.posting_thread import _sole_sender
from tests.support.running.broker import Broker
from tests.support.running.processes import run

PYTHON = (sys.executable, "-c")
DRAWS = """
import os, threading
import numpy as np
from estimators import define
from estimators.exact.randomness import SystemBits
bits = SystemBits()
metric = define(name="m", kind="frequency", mechanism="rappor", categories=64, levels=[1])

def drawn():
    values, level = np.zeros(8, dtype=int), np.zeros(8, dtype=int)
    yield from (row.tobytes() for row in metric.randomize(values, level, bits))
    yield from (word.tobytes() for word in bits.integers(32))
    yield os.urandom(8)

list(drawn())  # so that a buffer, if there were one, would be full before the fork
written = []
threads = [threading.Thread(target=lambda: written.extend(drawn())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
reading, writing = os.pipe()
children = []
for _ in range(4):
    child = os.fork()
    if not child:
        os.write(writing, b"".join(d.ljust(8, b"\\0") for d in drawn()))
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
os.close(writing)
with os.fdopen(reading, "rb") as file:
    sent = file.read()
written += [sent[i:i + 8] for i in range(0, len(sent), 8)] + list(drawn())
print(len(written), len({*written}))
"""


def test_processes_and_threads_never_draw_the_same_noise() -> None:
    """369 words of 64 bits: two honest ones are alike with probability below 2^-47."""
    assert run([*PYTHON, DRAWS]).split() == ["369", "369"]


SPENDING = """
import os, sys, threading
from producers import Ledger
ledger, stop = Ledger(sys.argv[1], budget=1000), threading.Event()

def spend():
    while not stop.wait(0.001):
        ledger.spend("parent", "0.1")

thread = threading.Thread(target=spend)
thread.start()
for _ in range(8):
    child = os.fork()
    if not child:
        code = 1
        try:
            ledger.spend("child", 1)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
accounts = ledger.accounts()
assert accounts["child"].spent == 8
assert accounts[""].spent == 8 + accounts["parent"].spent
"""


def test_a_ledger_goes_on_after_forks_while_a_thread_spends(tmp_path: Path) -> None:
    run([*PYTHON, SPENDING, str(tmp_path / "ledger")])


REPORTING = """
import os, sys
from estimators import define
from producers import Reporter
metric = define(name="late", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
with Reporter(metric, {"bootstrap.servers": sys.argv[1]}, topic=sys.argv[2]) as reporter:
    reporter.report([1.0, 0.0, 1.0], epsilon=1)
    child = os.fork()
    if not child:
        try:
            reporter.report(1.0, epsilon=1)
        except ValueError as error:
            print(error, flush=True)
            reporter.close()
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
"""


def test_a_reporter_does_not_send_on_the_other_side_of_a_fork(broker: Broker, topic: str) -> None:
    assert "open a new one in each process" in run([*PYTHON, REPORTING, broker.servers, topic])
    assert sum(len(batch.levels) for batch in broker.batches(topic)) == 3


QUEUING = """
import os, sys
from estimators import define
from producers import HttpReporter
metric = define(name="late", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])

def opened():
    return HttpReporter(metric, "http://127.0.0.1:9", queue=sys.argv[1], batch_age=100)

reporter = opened()
reporter.report([1.0, 0.0, 1.0], epsilon=1)
child = os.fork()
if not child:
    try:
        reporter.report(1.0, epsilon=1)
    except ValueError as error:
        print(error, flush=True)
        open_files = {os.path.realpath(file) for file in os.scandir("/proc/self/fd")}
        assert os.path.realpath(sys.argv[1]) not in open_files, "SQLite forbids to carry it along"
        own = opened()
        own.report([1.0, 1.0], epsilon=1)
        own.close()
        os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
reporter.report(1.0, epsilon=1)
assert reporter.close() == 6
"""


def test_a_fork_opens_its_own_reporter_on_the_same_queue(tmp_path: Path) -> None:
    assert "open a new one in each process" in run([*PYTHON, QUEUING, str(tmp_path / "queue")])


LOCKING = """
import os, sys
from producers.http.posting_thread import _sole_sender
with _sole_sender(sys.argv[1]):
    if os.fork():
        os._exit(0)
    sys.stdin.read()
    os._exit(0)
"""


def test_a_fork_does_not_keep_the_lock_of_a_sender_that_died(tmp_path: Path) -> None:
    line = [*PYTHON, LOCKING, str(tmp_path / "queue")]
    with subprocess.Popen(line, stdin=subprocess.PIPE) as sender:
        sender.wait(60)
        with _sole_sender(tmp_path / "queue") as is_alone:
            assert is_alone
