"""A relay in a process of its own, which may be killed at any of its changes of the disk."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aggregator.config.settings import Settings
from aggregator.web.http.listening import run_server
from aggregator.web.http.traffic import Traffic
from aggregator.web.relay_application import relay_application
from producers.relay import crowd_folder, forwarding, intake
from producers.relay.intake import CrowdRelay
from tests.unit.producers.relay.crowds import KEY, LATE, REPORT_BYTES, forwarder_of

CHANGES = ("pwrite", "fdatasync", "fsync", "rename", "unlink")


def serve(
    path: Path, service_port: int, clock: Path, listening: socket.socket, kill_at: int = 0
) -> None:
    """Serve a relay on a socket that outlives this process, until its change number `kill_at`.

    It looks at its crowds often, and posts them in small parts.
    """
    intake.TICK_SECONDS = forwarding.TURN_SECONDS = 0.01
    setattr(crowd_folder, "MAX_CROWD_BYTES", 220 * REPORT_BYTES)  # noqa: B010
    setattr(forwarding, "pause", lambda *_: 0.005)  # noqa: B010
    left, pwrite = kill_at, os.pwrite

    def killed_at(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                if change is pwrite:
                    descriptor, data, offset = arguments
                    pwrite(descriptor, data[: len(data) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments)

        return changed

    for name in CHANGES:
        setattr(os, name, killed_at(getattr(os, name)))
    forwarder = forwarder_of(path, service_port)
    relay = CrowdRelay({"late": LATE}, KEY, forwarder, clock=lambda: float(clock.read_text()))
    run_server(
        relay_application(relay, Settings(), Traffic()), Settings(), None, "error", [listening]
    )
