"""Commands of `dither` in processes that begin with everything imported.

The process of a command spends half a second of processor time on imports. Here one process has
imported them, and forks for each command: it still is a process of its own, with its arguments,
environment, folder, output and exit code. Workers and servers are started as users start them.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.paths import ROOT

IMPORTED = (
    "aggregator.cli.commands.deadletters",
    "aggregator.cli.commands.estimate",
    "aggregator.cli.commands.produce",
    "aggregator.cli.commands.verify",
    "aggregator.verifying.verify",
    "aggregator.kafka.topic_admin",
    "aggregator.reading.reader",
    "producers",
    "scipy.special",
)
MOST_BYTES = 1 << 17
"""Of a command's arguments and environment."""
ONE_AT_A_TIME = threading.Lock()
PYTHONPATH = os.environ.get("PYTHONPATH")
"""With another one, a command has other modules, and begins with none."""


def run(
    arguments: Sequence[str], timeout: float, environ: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` would.

    Raises
    ------
    TimeoutExpired
        After `timeout` seconds; the command has been killed.
    """
    if environ.get("PYTHONPATH") != PYTHONPATH:
        command = [sys.executable, "-m", "aggregator", *arguments]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=timeout, check=False
        )
    asked = json.dumps([[*arguments], {**environ}, str(Path.cwd())]).encode()
    with ONE_AT_A_TIME, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        server = _server()
        socket.send_fds(server, [asked], [output.fileno(), errors.fileno()])
        pid = int(server.recv(64))
        server.settimeout(timeout)
        try:
            code = int(server.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            server.settimeout(None)
            server.recv(64)
            raise subprocess.TimeoutExpired([*arguments], timeout) from None
        server.settimeout(None)
        told = []
        for file in (output, errors):
            file.seek(0)
            told.append(file.read().decode())
    return subprocess.CompletedProcess([*arguments], code, *told)


@functools.cache
def _server() -> socket.socket:
    """Start the process that forks; it ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST_BYTES)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())],
            cwd=ROOT,
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end(owner: int) -> None:
        if os.getpid() == owner:  # and none that was forked from it
            ours.shutdown(socket.SHUT_RDWR)
            ours.close()
            process.wait()

    atexit.register(end, os.getpid())
    return ours


def serve(asking: socket.socket) -> None:
    """Fork for each command that is asked for, and say how it ended."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    while True:
        asked, files, *_ = socket.recv_fds(asking, MOST_BYTES, 2)
        if not asked:
            return
        pid = os.fork()
        if pid == 0:
            asking.close()
            for number, file in enumerate(files, start=1):
                os.dup2(file, number)
                os.close(file)
            arguments, environ, folder = json.loads(asked)
            os.environ.clear()
            os.environ.update(environ)
            os.chdir(folder)
            sys.argv[1:] = arguments
            runpy.run_module("aggregator", run_name="__main__", alter_sys=True)
            sys.exit()
        for file in files:
            os.close(file)
        asking.send(str(pid).encode())
        asking.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)
